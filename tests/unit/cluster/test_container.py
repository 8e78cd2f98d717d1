"""Where Ray runs, with a stand-in for docker."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rayfleet.cluster.commands import Request
from rayfleet.cluster.container import where_ray_runs


def run(command: str, folder: Path, running: str) -> str:
    """What ``command`` prints where the container's state is ``running``."""
    docker = folder / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$1" = inspect ] && exec echo {running}\necho "docker $*"\n')
    docker.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", command], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_command_runs_in_the_container_where_there_is_one(tmp_path: Path) -> None:
    command = where_ray_runs("echo 'a  b' | tr a c")
    assert (
        run(command, tmp_path, "true") == "docker exec -i ray_docker sh -c echo 'a  b' | tr a c\n"
    )
    assert run(command, tmp_path, "false") == "c  b\n"


def test_without_a_command_it_is_a_login(tmp_path: Path) -> None:
    command = where_ray_runs("", terminal=True)
    assert run(command, tmp_path, "true") == "docker exec -it ray_docker bash --login\n"


@pytest.mark.parametrize("container", [False, True])
def test_words_reach_the_command_as_they_are(tmp_path: Path, container: bool) -> None:
    request = Request(words=("printf", "[%s]", "a  b", "$HOME", "'"), container=container)
    assert run(request.line(), tmp_path, "false") == "[a  b][$HOME][']"
    line = Request(words=("echo one | tr o i",), container=container).line()
    assert run(line, tmp_path, "false") == "ine\n"

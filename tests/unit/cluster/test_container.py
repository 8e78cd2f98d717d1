"""Where Ray runs, with a stand-in for docker."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rayfleet.cluster.commands import Request
from rayfleet.cluster.container import entered, where_ray_runs
from rayfleet.cluster.head import HeadAddress

NAME = "my-ray_1.x"
# Behind what keeps shells out that are not interactive.
BASHRC = """\
echo Welcome; echo careful >&2
case $- in *i*) ;; *) return ;; esac
PATH=$PATH:~/bin
"""
DOCKER = """\
#!/bin/sh
echo "$*" | head -n 1 >> "$0.log"
[ "$1" = inspect ] && exec echo {running}
while [ "$1" != {name} ]; do shift; done
shift; exec "$@"
"""


def run(command: str, folder: Path, *, running: bool = True, stdin: bytes | None = None) -> str:
    """What ``command`` prints where the container is ``running``; its stdin stays open."""
    docker = folder / "docker"
    docker.write_text(DOCKER.format(running=str(running).lower(), name=NAME))
    docker.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    with subprocess.Popen(
        ["sh", "-c", command],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(stdin or b"")
        process.stdin.flush()
        out, err = process.stdout.read().decode(), process.stderr.read().decode()
        assert (process.wait(), err) == (0, "")
    return out


def asked(folder: Path) -> list[str]:
    """How docker was called."""
    return (folder / "docker.log").read_text().splitlines()


def address(container: str = NAME) -> HeadAddress:
    return HeadAddress(
        cluster="c",
        host="h",
        user="u",
        private_key=None,
        known_hosts=Path("k"),
        alias="a",
        container=container,
    )


def test_a_command_runs_in_the_container_where_there_is_one(tmp_path: Path) -> None:
    command = where_ray_runs(NAME, "echo 'a  b' | tr a c")
    assert run(command, tmp_path) == "c  b\n"
    assert [line.split()[0] for line in asked(tmp_path)] == ["inspect", "exec"]
    assert asked(tmp_path)[1].startswith(f"exec -i {NAME} sh -c ")
    assert run(command, tmp_path, running=False) == "c  b\n"
    assert len(asked(tmp_path)) == 3


def test_without_a_container_docker_is_not_even_asked() -> None:
    assert where_ray_runs("", "echo one") == "echo one"


def test_what_is_given_reaches_the_command_there(tmp_path: Path) -> None:
    given = b"\0\n'x\xff"
    command = where_ray_runs(NAME, f"head -c {len(given)} | cksum", given=len(given))
    sum_of = subprocess.run(["cksum"], input=given, capture_output=True, check=True).stdout
    assert run(command, tmp_path, stdin=given) == sum_of.decode()


def test_without_a_command_it_is_a_login(tmp_path: Path) -> None:
    (tmp_path / ".bash_profile").write_text("echo $0 $-; exit\n")
    assert "i" not in run(entered(NAME, terminal=False), tmp_path)
    assert asked(tmp_path)[1] == f"exec -i {NAME} bash --login"


@pytest.mark.parametrize("container", [False, True])
@pytest.mark.parametrize("running", [False, True])
def test_words_reach_the_command_as_they_are(
    tmp_path: Path, container: bool, running: bool
) -> None:
    request = Request(words=("printf", "[%s]", "a  b", "$HOME", "'", "!x"), container=container)
    line = request.line(address())
    assert run(line, tmp_path, running=running) == "[a  b][$HOME]['][!x]"
    line = Request(words=("echo one | tr o i",), container=container).line(address())
    assert run(line, tmp_path, running=running) == "ine\n"


@pytest.mark.parametrize("container", [False, True])
def test_what_a_login_sets_is_set_and_what_it_prints_is_not_printed(
    tmp_path: Path, container: bool
) -> None:
    (tmp_path / ".bashrc").write_text(BASHRC)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ray").write_text("#!/bin/sh\necho ray, version 2.60.0\n")
    (tmp_path / "bin" / "ray").chmod(0o755)
    request = Request(words=("ray", "--version"), container=container)
    assert run(request.line(address()), tmp_path) == "ray, version 2.60.0\n"
    assert run(request.entry(address(), terminal=False), tmp_path) == "ray, version 2.60.0\n"


def test_a_command_has_no_input_and_one_of_ssh_has_the_operators(tmp_path: Path) -> None:
    request = Request(words=("head -c 3",), container=True)
    assert run(request.line(address()), tmp_path, stdin=b"abc") == ""
    assert run(request.entry(address(), terminal=False), tmp_path, stdin=b"abc") == "abc"

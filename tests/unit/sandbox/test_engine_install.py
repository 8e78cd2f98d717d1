"""An engine that was killed does not keep the next one from starting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rayfleet.sandbox.engine_install import forget_stranger


@pytest.mark.parametrize("content", ["4194305", "", "rubbish", "ours"])
def test_a_process_id_of_nobody_or_of_a_stranger_is_forgotten(tmp_path: Path, content: str) -> None:
    file = tmp_path / "docker.pid"
    file.write_text(content.replace("ours", str(os.getpid())))
    forget_stranger(file, "dockerd")
    assert not file.exists()


def test_the_process_id_of_a_running_engine_stays(tmp_path: Path) -> None:
    file = tmp_path / "docker.pid"
    file.write_text(str(os.getpid()))
    forget_stranger(file, Path("/proc/self/comm").read_text().strip())
    assert file.exists()


def test_no_file_is_fine(tmp_path: Path) -> None:
    forget_stranger(tmp_path / "docker.pid", "dockerd")

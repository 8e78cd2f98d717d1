"""Nobody reads what is printed: ``invoke --list | head -1``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INVOKE = str(Path(sys.executable).with_name("invoke"))
SECONDS = 60.0


def run_unread(
    *argv: str, state: Path, buffered: bool = True, stderr_too: bool = False
) -> tuple[int, str]:
    """Run a program whose stdout has no reader; its exit code and stderr."""
    ours, theirs = os.pipe()
    os.close(ours)
    environment = {**os.environ, "INVOKE_STATE": str(state), "COLUMNS": "80"}
    environment["PYTHONUNBUFFERED"] = "" if buffered else "1"
    try:
        finished = subprocess.run(
            argv,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs if stderr_too else subprocess.PIPE,
            timeout=SECONDS,
        )
    finally:
        os.close(theirs)
    return finished.returncode, (finished.stderr or b"").decode()


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        (INVOKE, "--list"),
        (INVOKE, "tail-logs", "--help"),
        (INVOKE, "fleet.list"),
        (INVOKE, "fleet.list", "--json"),
        (sys.executable, "-m", "rayfleet", "--list"),
        (sys.executable, "-m", "rayfleet", "--help"),
    ],
    ids=lambda words: " ".join(words[1:]),
)
def test_a_program_ends_of_sigpipe_and_says_nothing(
    words: tuple[str, ...], buffered: bool, tmp_path: Path
) -> None:
    assert run_unread(*words, state=tmp_path, buffered=buffered) == (-signal.SIGPIPE, "")


def test_so_it_does_where_nobody_reads_errors_either(tmp_path: Path) -> None:
    ended = run_unread(INVOKE, "no-such-task", state=tmp_path, stderr_too=True)
    assert ended == (-signal.SIGPIPE, "")


def test_a_broken_pipe_of_another_kind_is_told_as_ever(tmp_path: Path) -> None:
    code = "import rayfleet.tasks; raise BrokenPipeError('of a socket')"
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )
    assert finished.returncode == 1
    assert finished.stderr.endswith("BrokenPipeError: of a socket\n")


def test_what_is_cleared_up_on_the_way_is_cleared_up(tmp_path: Path) -> None:
    mark = tmp_path / "cleared"
    code = (
        "import pathlib, sys, rayfleet.tasks\n"
        "try:\n    print('x', flush=True)\n"
        f"finally:\n    pathlib.Path({str(mark)!r}).touch()\n"
    )
    ended = run_unread(sys.executable, "-c", code, state=tmp_path)
    assert ended == (-signal.SIGPIPE, "")
    assert mark.exists()

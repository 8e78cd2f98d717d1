"""CI's guard: it passes an exit code on, and ends what hangs, daemons included."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.support.processes import runs

ROOT = Path(__file__).parents[2]
WITHIN = ROOT / "scripts" / "ci" / "within.py"


def within(seconds: int, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script under the guard."""
    return subprocess.run(
        [sys.executable, WITHIN, str(seconds), "bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_exit_code_of_the_command_is_passed_on() -> None:
    assert within(30, "exit 7").returncode == 7
    assert within(30, "kill -TERM $$").returncode == 128 + 15


def test_what_hangs_is_named_and_ended() -> None:
    started = time.monotonic()
    finished = within(1, "echo $$; sleep 600")
    assert finished.returncode == 124
    assert time.monotonic() - started < 30
    assert "not done after 1 s" in finished.stderr
    assert "sleep 600" in finished.stderr
    assert not runs(int(finished.stdout))


def test_a_daemon_in_a_session_of_its_own_is_ended_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    # The daemon outlives the shell that started it: nobody but the guard is its parent then.
    script = f"setsid bash -c 'echo $$ > {pid_file}; exec sleep 600' >/dev/null 2>&1 & disown;"
    finished = within(30, f"{script} until [ -s {pid_file} ]; do sleep 0.05; done")
    assert finished.returncode == 0
    assert not runs(int(pid_file.read_text()))

"""Programs that are run: how they end is reported, and none outlives its deadline."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rayfleet.errors import PrerequisiteMissing, ToolFailed
from rayfleet.process import must_run, run
from rayfleet.waiting import wait_until
from tests.support.processes import runs, with_default_signals


def test_lines_are_handed_on_kept_and_logged(tmp_path: Path) -> None:
    lines: list[str] = []
    log = tmp_path / "logs" / "tool.log"
    done = run(
        ["sh", "-c", "echo one; echo two >&2; exit 7"], timeout=30, log=log, on_line=lines.append
    )
    assert (done.code, done.ok, lines) == (7, False, ["one", "two"])
    assert done.tail == ("one", "two")
    assert log.read_text() == "one\ntwo\n"


def test_a_signal_is_128_and_its_number() -> None:
    assert run(["sh", "-c", "kill -TERM $$"], timeout=30).code == 143


def test_a_program_that_reads_its_stdin_finds_the_end_of_it_at_once() -> None:
    assert run(["cat"], timeout=30).ok


def test_missing_program_and_failure_are_clear_errors() -> None:
    with pytest.raises(PrerequisiteMissing, match="no-such-tool is not installed"):
        run(["no-such-tool"], timeout=30)
    with pytest.raises(ToolFailed, match=r"building failed \(exit 3\)[\s\S]*because"):
        must_run(["sh", "-c", "echo because; exit 3"], timeout=30, what="building")


def test_past_the_deadline_the_whole_group_ends(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "child.wait()"
    )
    with pytest.raises(ToolFailed, match="did not end within"):
        run([sys.executable, "-c", code], timeout=2)
    child = int(mark.read_text())
    wait_until(lambda: not runs(child), what="the grandchild to end", timeout=10)


def test_a_program_dies_with_an_operator_that_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    code = (
        "import sys\n"
        "from rayfleet.process import run\n"
        "run(['sh', '-c', 'echo $$ > $0.new; mv $0.new $0; exec sleep 600', sys.argv[1]],\n"
        "    timeout=600)\n"
    )
    operator = subprocess.Popen([sys.executable, "-c", code, mark])
    child = int(wait_until(lambda: mark.exists() and mark.read_text(), what="it", timeout=20))
    assert runs(child)
    operator.kill()
    operator.wait(timeout=10)
    wait_until(lambda: not runs(child), what="the program to end", timeout=10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_process_of_the_tests_hears_signals_that_the_tests_ignore(number: signal.Signals) -> None:
    code = (
        "import signal, subprocess, sys\n"
        f"signal.signal({number:d}, signal.SIG_IGN)\n"
        "sys.exit(-subprocess.run(sys.argv[1:]).returncode)\n"
    )
    itself = ["sh", "-c", f"kill -{number:d} $$"]
    for argv, code_seen in ((itself, 0), (with_default_signals(*itself), number)):
        assert subprocess.run([sys.executable, "-c", code, *argv]).returncode == code_seen

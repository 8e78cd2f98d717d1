"""Processes of this machine: how they are started, and whether they run."""

from __future__ import annotations

from pathlib import Path


def with_default_signals(*argv: str) -> list[str]:
    """``argv`` for a process that a signal is to reach, whoever started the tests.

    A shell lets what it runs in the background ignore Ctrl-C, and nohup the end of the terminal;
    what is ignored stays so in all that is started from there.
    """
    return ["env", "--default-signal", *argv]


def runs(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        # The name before the state may hold anything, parentheses too.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        # Between opening and reading it, a process that ends is "no such process", not "no file".
        return False
    return state != "Z"

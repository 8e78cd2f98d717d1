"""Run a command for at most so many seconds; past them, show what hung and end it.

    python3 scripts/ci/within.py 1500 make test

Exits with the command's code, or with 124 when time was up. Whatever the command leaves running
is ended too, daemons in sessions of their own included: this process adopts them. The Docker
engine and its containers stay. Linux only (/proc, prctl); the standard library only, because it
runs before anything is installed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
ENGINE = ("dockerd", "containerd", "docker-proxy")
TIMED_OUT = 124  # what coreutils' timeout exits with
STACK_SECONDS = 2.0
GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of the machine, as /proc tells of it."""

    pid: int
    parent: int
    name: str
    command: str


def main(argv: list[str]) -> int:
    """Run ``argv[1:]`` for at most ``argv[0]`` seconds and return the exit code."""
    if len(argv) < 2 or not argv[0].isdigit():
        sys.stderr.write("usage: within.py SECONDS COMMAND...\n")
        return 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGALRM, _time_is_up)
    child = subprocess.Popen(argv[1:], stdin=subprocess.DEVNULL)
    try:
        signal.alarm(int(argv[0]))
        code = _wait_for(child.pid)
        return code if code >= 0 else 128 - code
    except TimeoutError:
        _report(argv[0], list(descendants(os.getpid())))
        return TIMED_OUT
    except KeyboardInterrupt:
        return 130
    finally:
        signal.alarm(0)
        end_all(os.getpid())


def descendants(root: int) -> Iterator[Process]:
    """Everything below the process ``root``, parents first, without the Docker engine."""
    children: dict[int, list[Process]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process)
    waiting = children.get(root, [])
    while waiting:
        process = waiting.pop(0)
        if not process.name.startswith(ENGINE):
            yield process
            waiting += children.get(process.pid, [])


def processes() -> Iterator[Process]:
    """Every process of the machine that still runs."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            # The name stands in parentheses and may itself hold any character.
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if state != "Z":
                yield Process(
                    pid=int(folder.name),
                    parent=int(parent),
                    name=name,
                    command=b" ".join(words).decode(errors="replace").strip(),
                )


def end_all(root: int) -> None:
    """End everything below ``root``: SIGTERM, and SIGKILL for what ignores it."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_SECONDS
        _signal(descendants(root), sign)
        while any(descendants(root)) and time.monotonic() < deadline:
            _reap()
            time.sleep(0.1)
    _reap()


def _wait_for(child: int) -> int:
    # The adopted are buried as they die: a test may wait for the end of a daemon of its own.
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _report(seconds: str, hung: list[Process]) -> None:
    sys.stderr.write(f"\nwithin.py: not done after {seconds} s; this still ran:\n")
    for process in hung:
        sys.stderr.write(f"  {process.pid:>7} {process.command[:160]}\n")
    sys.stderr.flush()
    # pytest answers SIGABRT with the stack of every thread (faulthandler): its workers, which
    # know the test, first, because they end with it.
    for words in ("sys.stdin.readline()", "pytest"):
        _signal((process for process in hung if words in process.command), signal.SIGABRT)
        time.sleep(STACK_SECONDS)


def _signal(targets: Iterator[Process], sign: signal.Signals) -> None:
    for process in list(targets):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, sign)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _time_is_up(*_: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

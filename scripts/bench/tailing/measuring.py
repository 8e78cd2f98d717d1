"""Run one program, and what it took."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from preserving.methods import Stopwatch
from publishing.processes import busy_seconds

from tailing.methods import Bench, Method

LIMIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run: wall seconds of the whole process, processor seconds of it and its children,
    and of the whole machine (the heads are on it); ``others`` is what was busy before."""

    seconds: float
    cpu: float
    machine: float
    others: float


def sample(method: Method, bench: Bench, command: str, output: Path) -> Sample:
    """Run ``method`` with its stdout in ``output``.

    Raises:
        SystemExit: it failed.
    """
    argv = method.argv(bench, command)
    errors = output.with_suffix(".err")
    watch = Stopwatch()
    with output.open("wb") as out, errors.open("wb") as err, watch.running():
        busy = busy_seconds()
        code = subprocess.run(
            argv,
            cwd=Path(__file__).resolve().parents[3],
            env=bench.operator.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            timeout=LIMIT_SECONDS,
            check=False,
        ).returncode
        busy = busy_seconds() - busy
    if code != 0:
        sys.exit(f"{method.title} ended with {code}:\n{said(argv, errors)}")
    return Sample(seconds=watch.seconds, cpu=watch.cpu, machine=busy, others=watch.others)


def said(argv: Sequence[str], errors: Path) -> str:
    """What to show of a program that failed."""
    return f"{' '.join(argv)[:300]}\n{errors.read_text(errors='replace')[-2000:]}"

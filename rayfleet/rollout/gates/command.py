"""A gate of the fleet's own: a program whose exit code is the answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.job.redaction import redacted
from rayfleet.process import Finished, Program
from rayfleet.rollout.gates.gate import Reading, Verdict

if TYPE_CHECKING:
    from rayfleet.rollout.gates.subject import Subject

NOT_YET = os.EX_TEMPFAIL
"""75 of sysexits.h: ask again."""


@dataclass
class Command:
    """Runs ``command`` in the folder ``root``: exit code 0 is yes, 75 (EX_TEMPFAIL) not yet, any
    other no. It runs beside the other gates; while it runs, its last answer counts, and when it
    has not given any in time, nobody knows.

    It finds RAYFLEET_CLUSTER, RAYFLEET_REGION, RAYFLEET_ZONE, RAYFLEET_HEAD (an address),
    RAYFLEET_IMAGE and RAYFLEET_ROLLOUT in its environment.
    """

    name: str
    command: tuple[str, ...]
    root: Path
    needs: tuple[str, ...] = ("health",)
    start: Callable[..., Program] = Program
    _program: Program | None = field(default=None, init=False)
    _last: Reading = field(
        default=Reading(Verdict.UNKNOWN, "the program has not ended yet"), init=False
    )

    def check(self, subject: Subject) -> Reading:
        """Start the program, or look whether it has ended."""
        if self._program is None:
            first, *rest = self.command
            # As the fleet file means it: from the project, wherever the operator stands.
            program = str(self.root / first) if "/" in first else first
            self._program = self.start((program, *rest), env=_environment(subject), cwd=self.root)
        finished = self._program.poll()
        if finished is None:
            return self._last
        self._program = None
        reading = _reading(finished)
        if reading.verdict is Verdict.NOT_YET:
            self._last = reading
        return reading

    def close(self, subject: Subject) -> None:  # noqa: ARG002 (a gate's interface)
        """End the program."""
        if self._program is not None:
            self._program.stop()
            self._program = None


def _reading(finished: Finished) -> Reading:
    said = redacted(finished.tail[-1])[:200] if finished.tail else "it printed nothing"
    if finished.ok:
        return Reading(Verdict.PASS, said if finished.tail else "exit code 0")
    verdict = Verdict.NOT_YET if finished.code == NOT_YET else Verdict.FAIL
    return Reading(verdict, f"exit code {finished.code}: {said}")


def _environment(subject: Subject) -> Mapping[str, str]:
    cluster = subject.wanted.cluster
    return os.environ | {
        "RAYFLEET_CLUSTER": cluster.name,
        "RAYFLEET_REGION": cluster.region,
        "RAYFLEET_ZONE": cluster.zone,
        "RAYFLEET_HEAD": subject.head().address.host,
        "RAYFLEET_IMAGE": subject.wanted.config.image,
        "RAYFLEET_ROLLOUT": subject.wanted.rollout,
    }

"""The restarts that are measured, in turns, so that both ways meet the same machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from preserving.methods import Stopwatch

from rolling.jobs import Jobs
from rolling.sandbox import ALL, BY_HAND, OURS, Sandbox

AT_ONCE = ("--parallel", "3", "--per-region", "0", "--waves", "100%")
IN_TURN = ("--parallel", "1", "--per-region", "0", "--waves", "100%")


@dataclass(kw_only=True)
class Run:
    """One measured command. ``steps`` are seconds per cluster and step, from the journal."""

    watch: Stopwatch
    load: float
    steps: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(kw_only=True)
class Rounds:
    """All runs of a method by its name, and what was wrong with the jobs."""

    sandbox: Sandbox
    say: Callable[[str], None]
    runs: dict[str, list[Run]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def measure(self, one: int, three: int) -> None:
        """So many rounds with one cluster, and so many with three.

        Ray's launcher restarts one cluster, we restart its twin; both have the same jobs. Those
        of the first are gone afterwards and are submitted anew, unmeasured.
        """
        jobs = {name: Jobs(sandbox=self.sandbox, cluster=name) for name in ALL}
        jobs[OURS].submit()
        for turn in range(one):
            jobs[BY_HAND].submit()
            for by_hand in (True, False) if turn % 2 else (False, True):
                if by_hand:
                    self._by_hand("ray", BY_HAND)
                else:
                    self._ours("rayfleet", [jobs[OURS]])
        self.sandbox.take_over(BY_HAND)
        for name in set(ALL) - {OURS}:
            jobs[name].submit()
        for turn in range(three):
            both = [("at once", AT_ONCE), ("in turn", IN_TURN)]
            for name, options in reversed(both) if turn % 2 else both:
                self._ours(name, list(jobs.values()), options)
        # Last: it loses all jobs.
        for _ in range(three):
            self._by_hand("ray at once", *ALL)

    def _by_hand(self, name: str, *clusters: str) -> None:
        watch = Stopwatch()
        self.sandbox.by_hand(*clusters, watch=watch)
        self._add(name, watch, journal=False)

    def _ours(self, name: str, jobs: Sequence[Jobs], options: tuple[str, ...] = ()) -> None:
        watch = Stopwatch()
        self.sandbox.restart(*(each.cluster for each in jobs), watch=watch, options=options)
        self._add(name, watch, journal=True)
        self.faults += [fault for each in jobs for fault in each.faults()]

    def _add(self, name: str, watch: Stopwatch, *, journal: bool) -> None:
        load = os.getloadavg()[0]
        steps = last_steps(self.sandbox.state) if journal else {}
        self.runs.setdefault(name, []).append(Run(watch=watch, load=load, steps=steps))
        self.say(
            f"{name}: {watch.seconds:.1f} s ({watch.cpu:.1f} s CPU of the operator;"
            f" {watch.others:.1f} processors were busy before; load {load:.1f})"
        )


def last_steps(state: Path) -> dict[str, dict[str, float]]:
    """Seconds of each step of each cluster in the latest rollout of ``state``."""
    journal = max((state / "rollouts").iterdir()) / "journal.jsonl"
    begun: dict[tuple[str, str], datetime] = {}
    found: dict[str, dict[str, float]] = {}
    for row in map(json.loads, journal.read_text().splitlines()):
        if row["kind"] not in ("intent", "done"):
            continue
        at, key = datetime.fromisoformat(row["at"]), (row["cluster"], row["step"])
        if row["kind"] == "intent":
            begun[key] = at
        else:
            seconds = round((at - begun[key]).total_seconds(), 2)
            found.setdefault(row["cluster"], {})[row["step"]] = seconds
    return found

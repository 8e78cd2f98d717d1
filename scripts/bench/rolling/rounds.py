"""The restarts that are measured, in turns, so that both ways meet the same machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from preserving.methods import Stopwatch

from rolling.jobs import Jobs
from rolling.sandbox import ALL, BY_HAND, OURS, Sandbox

AT_ONCE = ("--parallel", "3", "--per-region", "0", "--waves", "100%", "--bake", "0s")
IN_TURN = ("--parallel", "1", "--per-region", "0", "--waves", "100%", "--bake", "0s")


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

    def one_cluster(self, rounds: int) -> None:
        """Ray's launcher on one cluster, ours on its twin; both have the same jobs.

        Those of the first are gone afterwards and are submitted anew, unmeasured.
        """
        theirs = Jobs(sandbox=self.sandbox, cluster=BY_HAND)
        ours = Jobs(sandbox=self.sandbox, cluster=OURS)
        ours.submit()
        for turn in range(rounds):
            order = [self._by_hand, self._one] if turn % 2 else [self._one, self._by_hand]
            for measure in order:
                measure(ours if measure == self._one else theirs)
        self.sandbox.take_over(BY_HAND)

    def three_clusters(self, rounds: int) -> None:
        """Three clusters at once, and the same three one after the other."""
        jobs = [Jobs(sandbox=self.sandbox, cluster=name) for name in ALL]
        for each in jobs:
            if each.cluster == OURS:
                self.sandbox.take_over(OURS)
            each.submit()
        for turn in range(rounds):
            both = [("at once", AT_ONCE), ("in turn", IN_TURN)]
            for name, options in reversed(both) if turn % 2 else both:
                watch = Stopwatch()
                self.sandbox.restart(*ALL, watch=watch, options=options)
                self._add(name, watch, journal=True)
                self.faults += [fault for each in jobs for fault in each.faults()]

    def _by_hand(self, jobs: Jobs) -> None:
        jobs.submit()
        watch = Stopwatch()
        self.sandbox.by_hand(jobs.cluster, watch)
        self._add("ray", watch, journal=False)

    def _one(self, jobs: Jobs) -> None:
        watch = Stopwatch()
        self.sandbox.restart(jobs.cluster, watch=watch)
        self._add("rayfleet", watch, journal=True)
        self.faults += jobs.faults()

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

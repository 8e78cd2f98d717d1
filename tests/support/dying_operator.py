"""Operators that are killed at their first write to the journal, their second, and so on; after
each kill another process goes on.

``python -m tests.support.dying_operator FOLDER SCENARIO`` rehearses SCENARIO once unkilled and
then with kills, each in a folder of its own, and prints what went wrong and how many were killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from rayfleet.rollout.journal.file import Journal
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Direction, OnFailure, Plan, Step
from rayfleet.rollout.rehearsal import Failure, FakeCluster, Rehearsal
from tests.support.rehearsals import create, done_again, faults, leases, make_plan, place_of, run


class Moment(StrEnum):
    """When the kill comes, about a write to the journal or to a fake cluster."""

    BEFORE = "before"
    TORN = "in the middle of"
    AFTER = "after"


class DyingJournal(Journal):
    """Kills its process at the write with the number ``at`` (from 0)."""

    def __init__(self, path: Path, at: int, moment: Moment) -> None:
        super().__init__(path)
        self._at, self._moment, self._writes = at, moment, count()

    def write(self, file: int, data: bytes) -> None:
        if next(self._writes) != self._at:
            super().write(file, data)
            return
        if self._moment is Moment.TORN:
            os.write(file, data[: len(data) * 2 // 3])
        if self._moment is Moment.AFTER:
            super().write(file, data)
        die()


class DyingRehearsal(Rehearsal):
    """Kills its process, inside a step, at the change of a fake cluster with the number ``at``."""

    def __init__(self, folder: Path, at: int, moment: Moment, failures: tuple[Failure, ...]):
        super().__init__(folder, failures=failures)
        self._at, self._moment, self._changes = at, moment, count()

    def save(self, cluster: str, truth: FakeCluster) -> None:
        dies = next(self._changes) == self._at
        if dies and self._moment is Moment.BEFORE:
            die()
        super().save(cluster, truth)
        if dies:
            die()


def die() -> None:
    """Be killed, now."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A plan, what goes wrong in it each time, and whether it is to end as if nothing had.

    ``every``: each write is tried with each moment; else the moments take turns.
    """

    plan: Callable[[], Plan]
    failures: tuple[Failure, ...] = ()
    unspoiled: bool = True
    every: bool = False


def _broken(cluster: str, step: Step, **more: Any) -> Failure:
    return Failure(cluster=cluster, step=step, times=1000, **more)


SCENARIOS: Mapping[str, Scenario] = {
    "serial": Scenario(
        plan=lambda: make_plan(["a"], ["b"], jobs=1, canary=True, parallel=1), every=True
    ),
    "parallel": Scenario(plan=lambda: make_plan(["a", "b", "c"], jobs=1, parallel=3)),
    "start": Scenario(plan=lambda: make_plan(["a"], ["b"], jobs=1, start=["a"], bake=0.01)),
    "rollback": Scenario(
        plan=lambda: make_plan(["a"], ["b"], jobs=2, parallel=1, on_failure=OnFailure.ROLLBACK_ALL),
        failures=(_broken("b", Step.START, late=True),),
        unspoiled=False,
    ),
    "broken rollback": Scenario(
        plan=lambda: make_plan(["a"], jobs=1, on_failure=OnFailure.ROLLBACK_FAILED),
        failures=(
            _broken("a", Step.GATES),
            _broken("a", Step.START, direction=Direction.BACK),
        ),
        unspoiled=False,
    ),
}


def _child(work: Callable[[], object]) -> bool:
    """Do ``work`` in a process of its own; True when that was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in {0, signal.SIGKILL}, status
    return status != 0


def end_of(rollout: Rollout) -> dict[str, Any]:
    """How it ended, in what must not depend on kills."""
    state, fakes = rollout.state(), Rehearsal(place_of(rollout))
    ends: dict[str, Any] = {"result": str(state.result), "leases": leases(rollout)}
    for name, cluster in state.clusters.items():
        truth = fakes.look(name)
        ways = [str(way.outcome) if way else "" for way in (cluster.forward, cluster.back)]
        made = (truth.starts, truth.stops, truth.up, truth.digest)
        ends[name] = [ways, made, sorted(truth.running), truth.runs, cluster.held]
    return ends


def rehearse(folder: Path, scenario: Scenario) -> tuple[list[str], int]:
    """Kill it at every write; what went wrong, and how many were killed."""
    plain = create(folder / "unkilled", scenario.plan())
    _child(lambda: run(plain, failures=scenario.failures))
    wanted, problems, killed = end_of(plain), _wrong(plain, scenario), 0
    for where, moments in (("journal", list(Moment)), ("cluster", [Moment.BEFORE, Moment.AFTER])):
        for turn in [[each] for each in moments] if scenario.every else [moments]:
            for at in count():
                moment = turn[at % len(turn)]
                rollout = create(folder / f"{where}-{moment.name}-{at}", scenario.plan())
                if not _child(partial(_die, rollout, where, at, moment, scenario)):
                    break
                killed += 1
                _child(partial(run, rollout, failures=scenario.failures))
                wrong = _wrong(rollout, scenario)
                if end_of(rollout) != wanted:
                    wrong.append(f"{end_of(rollout)} instead of {wanted}")
                problems += [f"{moment} write {at} to the {where}: {each}" for each in wrong]
                shutil.rmtree(place_of(rollout))
    return problems, killed


def _wrong(rollout: Rollout, scenario: Scenario) -> list[str]:
    return faults(rollout) if scenario.unspoiled else done_again(rollout.records())


def _die(rollout: Rollout, where: str, at: int, moment: Moment, scenario: Scenario) -> None:
    state = place_of(rollout)
    if where == "journal":
        dying = Rollout(rollout.folder, journal=DyingJournal(rollout.journal.path, at, moment))
        run(dying, failures=scenario.failures)
    else:
        run(rollout, performer=DyingRehearsal(state, at, moment, scenario.failures))


def again_and_again(folder: Path, *, writes: int) -> int:
    """Carry one rollout out by processes that are all killed after so many writes; how many."""
    rollout = create(folder, make_plan(["a"], ["b", "c"], canary=True))
    for lives in count(1):
        journal = DyingJournal(rollout.journal.path, writes, list(Moment)[lives % 3])
        dying = Rollout(rollout.folder, journal=journal)
        if not _child(partial(run, dying)):
            assert faults(rollout) == []
            return lives
    raise AssertionError


def main(folder: Path, name: str) -> None:
    """Rehearse one scenario and print a line of JSON."""
    if name.isdigit():
        problems, killed = [], again_and_again(folder, writes=int(name)) - 1
    else:
        problems, killed = rehearse(folder, SCENARIOS[name])
    sys.stdout.write(json.dumps({"problems": problems, "killed": killed}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

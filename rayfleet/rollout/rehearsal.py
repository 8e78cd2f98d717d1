"""A rollout without machines: clusters that exist only as files, with scripted failures.

What happened to a fake cluster is on the disk, so that another process can go on with it, and
so that what was done can be counted after any number of kills.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from rayfleet.cluster.lease import Names, hold_cluster, release_cluster
from rayfleet.errors import Locked, ToolFailed, Unreachable, UsageError
from rayfleet.rollout.model import (
    Change,
    Direction,
    Output,
    Owed,
    Plan,
    Step,
    Target,
    owed_document,
)
from rayfleet.rollout.performer import Inconclusive, LeftAlone, Task


class Mishap(StrEnum):
    """How a step goes wrong: Ray refuses, a head does not answer, another run is there, a gate
    cannot tell, the preflight leaves the cluster alone, or rayfleet itself has a defect."""

    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    LOCKED = "locked"
    INCONCLUSIVE = "inconclusive"
    LEFT_ALONE = "left alone"
    DEFECT = "defect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """``step`` of ``cluster`` goes wrong the first ``times`` times that it is begun.

    ``late``: it has done its work by then.
    """

    cluster: str
    step: Step
    mishap: Mishap = Mishap.REFUSED
    direction: Direction = Direction.FORWARD
    times: int = 1
    late: bool = False


@dataclass(slots=True, kw_only=True)
class FakeCluster:
    """The truth about one cluster.

    ``running`` and ``stopped`` are ids of jobs on the head, ``runs`` how often each was ever
    started. ``vault`` has the jobs of each backup. ``begun`` counts steps by "direction step".
    """

    up: bool = True
    digest: str = ""
    starts: int = 0
    stops: int = 0
    running: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    vault: dict[str, list[str]] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    trouble: str = ""


class Rehearsal:
    """Does every step to fake clusters: a Performer.

    ``folder`` keeps them, and the leases. A step takes ``seconds``; ``entered`` is called when
    one begins.
    """

    def __init__(
        self,
        folder: Path,
        *,
        operator: str = "nobody@rehearsal",
        failures: Sequence[Failure] = (),
        seconds: float = 0.0,
        entered: Callable[[Step, Task], None] = lambda step, task: None,
    ) -> None:
        self.state = folder
        self._operator = operator
        self._failures = {(f.cluster, f.direction, f.step): f for f in failures}
        self._seconds = seconds
        self._entered = entered

    def prepare(self, plan: Plan) -> None:
        """Make the clusters of ``plan`` as it found them, each unless it is there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, target in plan.targets.items():
            if not self._path(name).exists():
                ids = [job.id for job in target.jobs]
                up = target.change is Change.RESTART
                self.save(
                    name,
                    FakeCluster(
                        up=up,
                        digest=target.digest_now,
                        running=ids if up else [],
                        runs=dict.fromkeys(ids, 1),
                    ),
                )

    def look(self, cluster: str) -> FakeCluster:
        """The truth about ``cluster``."""
        *_, last = self._path(cluster).read_text().splitlines()
        return FakeCluster(**json.loads(last))

    def save(self, cluster: str, truth: FakeCluster) -> None:
        """Make something true, at once: what a step does to the world.

        One line more, in one write: a kill leaves the old truth or the new one.
        """
        line = json.dumps({name: getattr(truth, name) for name in truth.__slots__}) + "\n"
        file = os.open(self._path(cluster), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def perform(
        self,
        step: Step,
        task: Task,
        *,
        note: Callable[[Output], None],
        narrate: Callable[[str], None],
    ) -> Output:
        """Do ``step`` to a fake cluster."""
        name = task.target.cluster
        self._entered(step, task)
        narrate(f"{step}")
        if self._seconds:
            time.sleep(self._seconds)
        truth = self.look(name)
        key = f"{task.direction} {step}"
        truth.begun[key] = truth.begun.get(key, 0) + 1
        failure = self._failures.get((name, task.direction, step))
        if failure is not None and truth.begun[key] > failure.times:
            failure = None
        output: Output = {}
        if failure is None or failure.late:
            output = _Fake(self, task, truth, note).does(step)
        self.save(name, truth)
        if failure is not None:
            _fail(failure)
        return output

    def trouble(self, target: Target) -> str:
        """What :meth:`ail` has said of the cluster."""
        return self.look(target.cluster).trouble

    def ail(self, cluster: str, trouble: str) -> None:
        """Let a cluster be unwell from now on."""
        truth = self.look(cluster)
        truth.trouble = trouble
        self.save(cluster, truth)

    @contextmanager
    def hold(self, plan: Plan, target: Target) -> Iterator[str]:
        """Hold the fake cluster with a real lease."""
        names = _names(target)
        with hold_cluster(self, names, rollout=plan.id, operator=self._operator) as lease:
            yield lease

    def release(self, plan: Plan, target: Target) -> None:
        """End the lease."""
        release_cluster(self, _names(target), rollout=plan.id)

    @property
    def _folder(self) -> Path:
        return self.state / "clusters"

    def _path(self, cluster: str) -> Path:
        return self._folder / f"{cluster}.jsonl"


class _Fake:
    """One step of one fake cluster. Each looks first, as the real ones do."""

    def __init__(
        self, stage: Rehearsal, task: Task, truth: FakeCluster, note: Callable[[Output], None]
    ) -> None:
        self._stage = stage
        self._task = task
        self._truth = truth
        self._note = note
        self._name = task.target.cluster
        back = task.direction is Direction.BACK
        self._wanted = task.target.digest_now if back else task.target.digest_wanted

    def does(self, step: Step) -> Output:
        """Do it, and return its output."""
        done: Mapping[Step, Callable[[], Output]] = {
            Step.PREFLIGHT: self._preflight,
            Step.SNAPSHOT: self._snapshot,
            Step.VERIFY: self._verify,
            Step.QUIESCE: self._quiesce,
            Step.STOP: self._stop,
            Step.EMPTY: self._empty,
            Step.START: self._start,
            Step.JOBS: self._jobs,
            Step.WATCH: self._watch,
        }
        return done[step]() if step in done else {}

    def _save(self) -> None:
        self._stage.save(self._name, self._truth)

    def _preflight(self) -> Output:
        if self._task.direction is Direction.BACK and not self._task.target.previous:
            raise UsageError(f"{self._name}: the config that it ran with is not known")
        return {"head": f"head-{self._truth.starts}"}

    def _snapshot(self) -> Output:
        jobs = list(self._truth.running)
        unpaid = [
            replace(owed, jobs=tuple(job for job in owed.jobs if job not in jobs))
            for owed in self._task.owed
        ]
        backup = self._kept(jobs)
        owed = owed_document([*unpaid, Owed(backup=backup, jobs=tuple(jobs))])
        return {"backup": backup, "jobs": len(jobs), "owed": owed}

    def _kept(self, jobs: Sequence[str]) -> str:
        """Put ``jobs`` into the vault; the id of the backup."""
        backup = f"{self._name}-{len(self._truth.vault) + 1}"
        self._truth.vault[backup] = list(jobs)
        self._save()
        return backup

    def _verify(self) -> Output:
        backup = str(self._task.outputs[Step.SNAPSHOT]["backup"])
        if backup not in self._truth.vault:
            raise ToolFailed(f"{self._name}: the vault has no backup {backup}")
        return {"packages": 0, "bytes": 0}

    def _quiesce(self) -> Output:
        """Save and stop what runs, newest first; what somebody else has stopped is not owed."""
        task, running = self._task, list(self._truth.running)
        steps = (Step.SNAPSHOT, Step.QUIESCE, Step.STOP, Step.EMPTY)
        made = (*(task.outputs.get(step, {}) for step in steps), *task.notes)
        ours = {str(one["backup"]) for one in made if "backup" in one}
        older = [owed for owed in task.owed if owed.backup not in ours]
        mine = [owed for owed in task.owed if owed.backup in ours]
        stopped = {job for owed in mine for job in owed.stopped}
        jobs = [job for owed in mine for job in owed.jobs]
        jobs = list(dict.fromkeys([*(j for j in jobs if j in stopped or j in running), *running]))
        backup = max(ours, default="", key=lambda one: int(one.rpartition("-")[2]))
        if not set(jobs) <= set(self._truth.vault.get(backup, ())):
            backup = self._kept(jobs)

        def owed() -> Output:
            asked = tuple(job for job in jobs if job in stopped)
            all_of_it = [*older, Owed(backup=backup, jobs=tuple(jobs), stopped=asked)]
            return {"backup": backup, "owed": owed_document(all_of_it)}

        for job in reversed(running):
            stopped.add(job)
            self._note(owed())
            self._truth.running.remove(job)
            self._truth.stopped.append(job)
            self._save()
        return {**owed(), "ended": {}, "late": 0, "unstopped": []}

    def _last_look(self) -> Output:
        """Before what is up goes: what has come since is saved and stopped as well."""
        preserved = self._truth.up and self._task.plan.settings.preserve_jobs
        return self._quiesce() if preserved else {}

    def _stop(self) -> Output:
        seen = self._last_look()
        if not self._truth.up:
            return {"nodes": 0}
        self._truth.up = False
        self._truth.stops += 1
        self._truth.running, self._truth.stopped = [], []
        self._save()
        return {**seen, "nodes": 1}

    def _empty(self) -> Output:
        seen = self._stop() if self._truth.up else {}
        return {**seen, "at": time.time()}

    def _start(self) -> Output:
        if self._truth.up and self._truth.digest == self._wanted:
            return {"head": f"head-{self._truth.starts}", "launched": False}
        seen = self._last_look()
        self._truth.up = True
        self._truth.starts += 1
        self._truth.digest = self._wanted
        self._truth.running, self._truth.stopped = [], []
        self._save()
        return {**seen, "head": f"head-{self._truth.starts}", "launched": True}

    def _jobs(self) -> Output:
        rows = []
        for job in self._owed():
            new = job not in self._truth.running
            if new:
                self._truth.running.append(job)
                self._truth.runs[job] = self._truth.runs.get(job, 0) + 1
                self._save()
            rows.append({"job": job, "outcome": "restored" if new else "runs", "reason": ""})
        return {"jobs": rows}

    def _watch(self) -> Output:
        lost = [job for job in self._owed() if job not in self._truth.running]
        return {"jobs": [], "lost": lost, "next": ""}

    def _owed(self) -> list[str]:
        return list(dict.fromkeys(job for owed in self._task.owed for job in owed.jobs))


def _names(target: Target) -> Names:
    return Names(name=target.cluster, identity=target.identity)


def _fail(failure: Failure) -> None:
    what = f"{failure.cluster}: the rehearsal's {failure.step} went wrong"
    why, following = f"it was to be {failure.mishap}", "invoke rollouts.show"
    match failure.mishap:
        case Mishap.LOCKED:
            raise Locked(what, why=why, next_step=following)
        case Mishap.UNREACHABLE:
            raise Unreachable(what, why=why, next_step=following)
        case Mishap.INCONCLUSIVE:
            raise Inconclusive(what, why=why, next_step=following)
        case Mishap.LEFT_ALONE:
            raise LeftAlone(what, why=why, next_step=following)
        case Mishap.DEFECT:
            raise ZeroDivisionError(what)
        case Mishap.REFUSED:
            raise ToolFailed(what, why=why, next_step=following)

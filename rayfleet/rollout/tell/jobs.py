"""What became of every job of a rollout. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rayfleet.rollout.model import Plan, PlannedJob, Step, Target
from rayfleet.rollout.state import ClusterState, State, Way
from rayfleet.rollout.tell.facts import in_order, listed
from rayfleet.rollout.tell.words import one_line, safe

KEPT = frozenset(("restored", "already there", "ended by itself", "still running"))
"""Outcomes that need nobody."""

STILL_RUNNING = "still running"
KILLED = "killed"
OPEN = "not given back yet"
_SEES_ENDINGS = (Step.QUIESCE, Step.STOP, Step.EMPTY, Step.START)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFate:
    """A job before and after. ``before`` is its status in the plan, or ``began later``.

    ``outcome`` is that of the restore, or one of this module's words. Nothing holds a secret.
    """

    cluster: str
    job: str
    owner: str
    entrypoint: str
    before: str
    outcome: str
    reason: str = ""

    @property
    def lost(self) -> bool:
        """True for a job that somebody has to look after."""
        return self.outcome not in KEPT

    def document(self) -> dict[str, object]:
        """The job as ``--json`` prints it."""
        return {
            "job": self.job,
            "owner": self.owner,
            "before": self.before,
            "outcome": self.outcome,
            "reason": self.reason,
        }


def job_fates(plan: Plan, state: State) -> tuple[JobFate, ...]:
    """Every job that was planned for or met on the way, in the order of the waves."""
    return tuple(
        fate
        for target in in_order(plan)
        for fate in fates_of(plan, target, state.clusters[target.cluster])
    )


def fates_of(plan: Plan, target: Target, cluster: ClusterState) -> Iterator[JobFate]:
    """The jobs of one cluster: those of the plan first, then those that began later."""
    told = _told(cluster)
    for job in target.jobs:
        row = told.pop(job.id, {})
        outcome, reason = _outcome(plan, cluster, row)
        yield _fate(target, job, outcome, reason)
    for name, row in told.items():
        owner = str(row.get("owner", ""))
        late = PlannedJob(id=name, owner=owner, status="began later", entrypoint="")
        yield _fate(target, late, str(row["outcome"]), str(row.get("reason", "")))


def unpreserved(target: Target, cluster: ClusterState) -> tuple[str, ...]:
    """What ran beside the jobs and cannot be given back: as the snapshot saw it, else the plan."""
    lines: Sequence[object] = target.unpreservable
    if cluster.forward is not None and Step.SNAPSHOT in cluster.forward.outputs:
        lines = listed(cluster.forward.outputs[Step.SNAPSHOT], "unpreservable") or lines
    return tuple(one_line(safe(line)) for line in lines)


def _fate(target: Target, job: PlannedJob, outcome: str, reason: str) -> JobFate:
    return JobFate(
        cluster=target.cluster,
        job=one_line(safe(job.id)),
        owner=one_line(safe(job.owner)) or "unknown",
        entrypoint=one_line(safe(job.entrypoint)),
        before=one_line(job.status),
        outcome=one_line(outcome),
        reason=one_line(safe(reason)),
    )


def _outcome(plan: Plan, cluster: ClusterState, row: Mapping[str, object]) -> tuple[str, str]:
    if row:
        return str(row["outcome"]), str(row.get("reason", ""))
    stopped = any(way is not None and _has_stopped(way) for way in (cluster.forward, cluster.back))
    if not stopped:
        return STILL_RUNNING, ""
    return (OPEN, "") if plan.settings.preserve_jobs else (KILLED, "--no-preserve-jobs")


def _has_stopped(way: Way) -> bool:
    """Whether this way took the jobs from the cluster."""
    seen = {step for step, _, _ in way.times} | set(way.outputs)
    return bool(seen & {Step.QUIESCE, Step.STOP})


def _told(cluster: ClusterState) -> dict[str, Mapping[str, object]]:
    """What the steps have told of each job; what came later counts."""
    rows: dict[str, Mapping[str, object]] = {}
    for way in (cluster.forward, cluster.back):
        if way is None:
            continue
        for step in _SEES_ENDINGS:
            ended = way.outputs.get(step, {}).get("ended")
            for name, status in ended.items() if isinstance(ended, Mapping) else ():
                rows[str(name)] = {"outcome": "ended by itself", "reason": str(status)}
        for step in (Step.JOBS, Step.WATCH):
            for row in listed(way.outputs.get(step, {}), "jobs"):
                if isinstance(row, Mapping) and "job" in row and "outcome" in row:
                    rows[str(row["job"])] = row
    return rows

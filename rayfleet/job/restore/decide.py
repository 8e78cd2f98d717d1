"""What to do about one job of a backup, from what the head says of it now. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from rayfleet.job.model import LOST_WITH_HEAD, Job, JobStatus
from rayfleet.job.restore.report import Outcome
from rayfleet.job.vault.model import SavedJob

NEVER_RAN = frozenset(
    (
        "RUNTIME_ENV_SETUP_FAILURE",
        "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
        "JOB_SUPERVISOR_ACTOR_START_FAILURE",
        "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
    )
)
"""The error types with which Ray 2.60 fails a job whose entrypoint it has not started.

Raised in ray/dashboard/modules/job/job_manager.py. START_FAILURE also comes from a head that
kept its records over a restart and then misses the supervisor of a job that ran.
"""

_GHOST = (
    "is only a record that the head has kept of the lost job; Ray gives it up after "
    "RAY_JOB_START_TIMEOUT_SECONDS: run it again then"
)


class Action(StrEnum):
    """What a restore has to do for a job."""

    SUBMIT = "submit"
    REPLACE = "delete and submit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """There is nothing to do for a job: its outcome is known, and why."""

    outcome: Outcome
    reason: str = ""


Decision: TypeAlias = Action | Settled


def decide(
    job: SavedJob,
    now: Job | None,
    *,
    ended: JobStatus | None = None,
    stopped: bool = False,
    emptied: bool = False,
) -> Decision:
    """What a restore has to do for ``job``.

    ``now`` is what the head has under the submission id (None: nothing), ``ended`` how the job
    ended according to a later backup. ``stopped`` tells that the job was stopped in order to be
    given back. ``emptied`` tells that nothing of the cluster was left since it was saved, and
    that this restore is still at it: a job that the cluster drops is submitted once more.
    Whether its packages are there is not looked at.
    """
    if now is None and ended is not None:
        return Settled(outcome=Outcome.ENDED, reason=f"{ended}, says a later backup")
    if now is not None and not _lost(job, now, stopped=stopped, emptied=emptied):
        if emptied and not now.ended and _same_life(job, now):
            return Settled(outcome=Outcome.FAILED, reason=f"{now.status} {_GHOST}")
        return _kept(job, now)
    if job.missing:
        return Settled(
            outcome=Outcome.NOT_RESTORABLE, reason=f"not saved: {', '.join(job.missing)}"
        )
    return Action.SUBMIT if now is None else Action.REPLACE


def _lost(job: SavedJob, now: Job, *, stopped: bool, emptied: bool) -> bool:
    """True when the head has only the remains of the job under its id."""
    if now.status is JobStatus.STOPPED:
        return stopped and _same_life(job, now)
    if now.status is not JobStatus.FAILED:
        return False
    if _same_life(job, now):
        return now.error_type in LOST_WITH_HEAD
    return now.error_type in (NEVER_RAN | LOST_WITH_HEAD if emptied else NEVER_RAN)


def _kept(job: SavedJob, now: Job) -> Settled:
    if not now.ended:
        return Settled(outcome=Outcome.ALREADY_THERE, reason=now.status.value)
    if _same_life(job, now):
        return Settled(outcome=Outcome.ENDED, reason=_ending(now))
    return Settled(outcome=Outcome.ALREADY_THERE, reason=f"submitted before; {_ending(now)} since")


def _same_life(job: SavedJob, now: Job) -> bool:
    # Ray sets the start time when a job is submitted, so that a restored one has another.
    return job.started == now.started


def _ending(now: Job) -> str:
    return f"{now.status} ({now.error_type})" if now.error_type else now.status.value

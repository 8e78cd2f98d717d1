"""Stop jobs, and see that they have stopped: Ray's own answer tells only that it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from rayfleet.errors import RayfleetError, UsageError
from rayfleet.job.model import (
    Job,
    JobKind,
    JobLost,
    JobStatus,
    JobTimedOut,
    NotStoppable,
    UnknownJob,
)
from rayfleet.waiting import Clock, SystemClock

if TYPE_CHECKING:
    from rayfleet.console import Console

INTERVAL = 1.0


class Stoppable(Protocol):
    """What is used of a :class:`~rayfleet.job.client.JobClient`."""

    @property
    def cluster(self) -> str:
        """Name of the cluster."""

    def get(self, job_id: str) -> Job:
        """The job of that id."""

    def get_known(self, job_id: str) -> Job:
        """The job of that id, which the head has told of before."""

    def stop(self, job_id: str) -> bool:
        """Ask the job to end; False if none of its processes was there to ask."""


class StopOutcome(StrEnum):
    """What became of a job that was to be stopped."""

    WOULD_STOP = "would be stopped"
    STOPPED = "stopped"
    HAD_ENDED = "had ended before"
    ENDED = "ended by itself"
    PENDING = "still waits to start"
    RUNNING = "still runs"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """One job after the attempt."""

    job: Job
    outcome: StopOutcome

    def document(self) -> dict[str, object]:
        """The job as ``--json`` prints it."""
        return {
            "job": self.job.name,
            "owner": self.job.owner,
            "status": self.job.status.value,
            "outcome": self.outcome.value,
        }


def stop_jobs(
    client: Stoppable,
    job_ids: Sequence[str],
    *,
    timeout: float,
    console: Console,
    as_json: bool = False,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> None:
    """Stop the jobs and wait for up to ``timeout`` seconds until they have ended.

    Nothing is stopped unless each of them is known and a submission. Jobs that had ended are
    no failure. A dry run looks at them and asks none to stop.

    Raises:
        UsageError: one is a DRIVER, or the head knows none of that id.
        NotStoppable: one waits for resources. Ray stops it only if it ever starts.
        JobTimedOut: one still runs.
        JobLost: the head has forgotten one meanwhile.
    """
    jobs = [_checked(client, job_id) for job_id in dict.fromkeys(job_ids)]
    if dry_run:
        done = [Stopped(job=job, outcome=_plan(job)) for job in jobs]
    else:
        before = {job.name: job for job in jobs}
        after = _wait(client, jobs, timeout, clock or SystemClock())
        done = [
            Stopped(job=job or before[name], outcome=_outcome(before[name], job))
            for name, job in after.items()
        ]
    if as_json:
        console.json({"cluster": client.cluster, "jobs": [each.document() for each in done]})
    for each in done:
        ended = f" as {each.job.status}" if each.outcome is StopOutcome.ENDED else ""
        had = f" as {each.job.status}" if each.outcome is StopOutcome.HAD_ENDED else ""
        console.say(f"{client.cluster}: {each.job.name} {each.outcome}{ended or had}")
    _raise_failures(client.cluster, done, timeout)


def _plan(job: Job) -> StopOutcome:
    return StopOutcome.HAD_ENDED if job.ended else StopOutcome.WOULD_STOP


def _checked(client: Stoppable, job_id: str) -> Job:
    job = client.get(job_id)
    if job.kind is JobKind.DRIVER:
        raise UsageError(
            f"{client.cluster}: {job_id} cannot be stopped from here",
            why="it is a DRIVER, a script that connected by itself, and Ray stops submissions only",
            next_step=f"end the script itself, which {job.owner} may know of",
        )
    return job


def _wait(
    client: Stoppable, jobs: Sequence[Job], timeout: float, clock: Clock
) -> dict[str, Job | None]:
    """Each job as it is when all have ended or time is up; None: the head forgot it."""
    found: dict[str, Job | None] = {job.name: job for job in jobs}
    deadline = clock.monotonic() + timeout
    # A job that is asked before its supervisor is there has not been asked.
    asked = {job.name: job.ended or _ask(client, job.name) for job in jobs}
    while True:
        for name, job in found.items():
            if job is not None and not job.ended:
                found[name] = _again(client, name)
        waiting = [name for name, job in found.items() if job is not None and not job.ended]
        if not waiting or clock.monotonic() >= deadline:
            return found
        clock.sleep(INTERVAL)
        asked |= {name: _ask(client, name) for name in waiting if not asked[name]}


def _ask(client: Stoppable, job_id: str) -> bool:
    try:
        return client.stop(job_id)
    except UnknownJob:
        # The next look tells that the job is lost.
        return True


def _again(client: Stoppable, job_id: str) -> Job | None:
    try:
        return client.get_known(job_id)
    except JobLost:
        return None


def _outcome(before: Job, after: Job | None) -> StopOutcome:
    if after is None:
        return StopOutcome.LOST
    if before.ended:
        return StopOutcome.HAD_ENDED
    if after.ended:
        return StopOutcome.STOPPED if after.status is JobStatus.STOPPED else StopOutcome.ENDED
    return StopOutcome.PENDING if after.status is JobStatus.PENDING else StopOutcome.RUNNING


def _raise_failures(cluster: str, done: Sequence[Stopped], timeout: float) -> None:
    """Raise for the worst of what happened; every job that was not stopped is named."""
    errors: list[RayfleetError] = []
    names = {
        outcome: ", ".join(each.job.name for each in done if each.outcome is outcome)
        for outcome in StopOutcome
    }
    if lost := names[StopOutcome.LOST]:
        errors.append(JobLost(f"{cluster} has lost {lost}", why="its head was restarted"))
    if waiting := names[StopOutcome.PENDING]:
        errors.append(_not_stoppable(cluster, waiting))
    if running := names[StopOutcome.RUNNING]:
        errors.append(
            JobTimedOut(
                f"{cluster}: {running} still runs {timeout:.0f} s after it was asked to stop",
                why="Ray sends SIGTERM, and SIGKILL after the head's RAY_JOB_STOP_WAIT_TIME_S",
                next_step=f"invoke jobs.list --cluster {cluster}",
            )
        )
    if len(errors) > 1:
        rest = "\n  ".join(f"{error.what}: {error.why}" for error in errors[1:])
        worst = errors[0]
        raise type(worst)(worst.what, why=f"{worst.why}\n  {rest}", next_step=worst.next_step)
    if errors:
        raise errors[0]


def _not_stoppable(cluster: str, names: str) -> NotStoppable:
    return NotStoppable(
        f"{cluster}: not stopped, and not stoppable now: {names}",
        why="it waits for resources or for its environment; Ray has noted the stop and carries "
        "it out only if the job ever starts",
        next_step=f"invoke jobs.stop --cluster {cluster} {names.replace(',', '')}",
    )

"""Stay with restored jobs until each has started, or waits as it should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rayfleet.job.model import LOST_WITH_HEAD, Job, JobStatus
from rayfleet.job.redaction import redacted
from rayfleet.job.restore.decide import NEVER_RAN, Settled
from rayfleet.job.restore.report import Outcome
from rayfleet.job.vault.model import SavedJob
from rayfleet.waiting import Clock

INTERVAL_SECONDS = 0.5
QUIET_SECONDS = 10.0
"""How long nothing may have changed until a job with needs counts as waiting for them.

A job without needs was RUNNING 3 to 7 s after its submit on an idle head (Ray 2.60, 2 cores).
"""

_NOT_STARTED = NEVER_RAN | LOST_WITH_HEAD | {"JOB_ENTRYPOINT_COMMAND_START_ERROR"}
_POISONED = "; Ray refuses this environment for 10 minutes more: run it again after that"


class Lists(Protocol):
    """A head, as far as its list of jobs goes."""

    def list(self) -> tuple[Job, ...]:
        """All jobs that it remembers."""


def watch_starts(
    jobs: Sequence[SavedJob], lists: Lists, *, seconds: float, clock: Clock
) -> Mapping[str, Settled]:
    """The outcome of each of the submitted ``jobs``, by submission id.

    Returns when none is PENDING any more but those that wait for resources; Ray does not tell
    those from others, so a job counts as such that asks for some and was PENDING when it was
    saved, or when nothing has changed for 10 s. Returns after ``seconds`` at the latest.

    Raises:
        Unreachable: the head stopped answering.
    """
    deadline = clock.monotonic() + seconds
    seen: Mapping[str, Job] = {}
    changed = clock.monotonic()
    while True:
        rows = {job.submission_id: job for job in lists.list() if job.submission_id}
        now = clock.monotonic()
        if _statuses(rows, jobs) != _statuses(seen, jobs):
            changed = now
        seen = rows
        waiting = [job for job in jobs if not _settled(job, rows.get(job.submission_id))]
        quiet = now - changed >= QUIET_SECONDS and all(map(has_needs, waiting))
        if not waiting or quiet or now >= deadline:
            return {job.submission_id: _outcome(job, rows.get(job.submission_id)) for job in jobs}
        clock.sleep(min(INTERVAL_SECONDS, deadline - now))


def dropped(reason: str) -> bool:
    """True when the outcome with that ``reason`` is of a job whose worker its cluster lost."""
    return reason.partition(":")[0] in LOST_WITH_HEAD


def has_needs(job: SavedJob) -> bool:
    """True when the job reserves something for its entrypoint, and may have to wait for it."""
    return bool(job.num_cpus or job.num_gpus or job.memory or job.resources or job.label_selector)


def waits(job: SavedJob) -> bool:
    """True when the job waited when it was saved, for something that it may have to wait for."""
    return job.status is JobStatus.PENDING and has_needs(job)


def _settled(job: SavedJob, row: Job | None) -> bool:
    if row is None:
        return False
    return row.status is not JobStatus.PENDING or waits(job)


def _statuses(rows: Mapping[str, Job], jobs: Sequence[SavedJob]) -> list[JobStatus | None]:
    found = (rows.get(job.submission_id) for job in jobs)
    return [row.status if row else None for row in found]


def _outcome(job: SavedJob, row: Job | None) -> Settled:
    if row is None:
        return Settled(outcome=Outcome.FAILED, reason="the head took it and has forgotten it")
    if row.status is JobStatus.FAILED and row.error_type in _NOT_STARTED:
        return Settled(outcome=Outcome.FAILED, reason=_cause(job, row))
    if row.status is JobStatus.PENDING:
        what = "its resources" if has_needs(job) else "its start"
        return Settled(outcome=Outcome.RESTORED, reason=f"PENDING, waits for {what}")
    ended = " since" if row.ended else ""
    return Settled(outcome=Outcome.RESTORED, reason=f"{row.status}{ended}")


def _cause(job: SavedJob, row: Job) -> str:
    lines = row.message.strip().splitlines() or ["no explanation"]
    shown = redacted(lines[0], job.secrets)[:300]
    poisoned = _POISONED if row.error_type == "RUNTIME_ENV_SETUP_FAILURE" else ""
    return f"{row.error_type}: {shown}{poisoned}"

"""The gate that runs a job: it is submitted and succeeds, and it is deleted later.

Later, because Ray 2.60 looks after a job for some seconds more once it has ended: one that is
deleted meanwhile comes back as FAILED, without entrypoint and metadata.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rayfleet.errors import RayfleetError
from rayfleet.job.infrastructure import INFRASTRUCTURE, ROLE
from rayfleet.job.model import Job, JobRequest, JobStatus, UnknownJob
from rayfleet.job.redaction import redacted
from rayfleet.rollout.gates.gate import Reading, Verdict

if TYPE_CHECKING:
    from rayfleet.job.client import JobClient
    from rayfleet.rollout.gates.subject import Subject

ENTRYPOINT = "echo rayfleet"
PREFIX = "rayfleet-probe-"
SETTLED_SECONDS = 5.0
"""How long after its end a job is left alone: three rounds of Ray's own look at it, and more."""

_ENTRYPOINT_FAILED = "JOB_ENTRYPOINT_COMMAND_ERROR"


@dataclass
class Probe:
    """Runs ``entrypoint`` on the head. A probe of this rollout that a killed run left is taken
    over while it runs; those that have ended are deleted.

    A job whose entrypoint failed is a no. One that Ray could not start is tried again.
    """

    entrypoint: str = ENTRYPOINT
    name: str = "probe"
    needs: tuple[str, ...] = ("health", "version")
    _id: str = field(default="", init=False)
    _ended: float | None = field(default=None, init=False)

    def check(self, subject: Subject) -> Reading:
        """Submit the job, or look how it is."""
        jobs = subject.jobs()
        if not self._id:
            return self._begin(jobs, subject)
        try:
            job = jobs.get(self._id)
        except UnknownJob:
            self._id = ""
            return Reading(Verdict.NOT_YET, "the head has forgotten the job")
        if not job.ended:
            return Reading(Verdict.NOT_YET, f"{job.name} is {job.status}")
        if job.status is JobStatus.SUCCEEDED:
            self._ended = subject.now() if self._ended is None else self._ended
            return Reading(Verdict.PASS, f"a job succeeded{_took(job)}")
        self._id = ""
        verdict = Verdict.FAIL if job.error_type == _ENTRYPOINT_FAILED else Verdict.NOT_YET
        return Reading(verdict, f"{redacted(self.entrypoint)[:80]}: {job.status}, {_cause(job)}")

    def close(self, subject: Subject) -> None:
        """Stop a job that still runs; delete one that ended long enough ago."""
        # What stays counts as infrastructure, and `sweep` or the next probe deletes it.
        with suppress(RayfleetError):
            if self._id and self._ended is None:
                subject.jobs().stop(self._id)
            elif self._ended is not None and subject.now() >= self._ended + SETTLED_SECONDS:
                subject.jobs().delete(self._id)

    def _begin(self, jobs: JobClient, subject: Subject) -> Reading:
        mine = f"{PREFIX}{subject.wanted.rollout}-{subject.name}-"
        for job in sweep(jobs):
            if job.submission_id.startswith(mine) and job.entrypoint == self.entrypoint:
                self._id = job.submission_id
                return Reading(Verdict.NOT_YET, f"{self._id} was there already")
        # Never the id of a job that was deleted: Ray may bring that back. Should the answer
        # get lost, the list tells next time.
        request = JobRequest(
            submission_id=f"{mine}{secrets.token_hex(3)}",
            entrypoint=self.entrypoint,
            metadata={ROLE: INFRASTRUCTURE, "owner": "rayfleet"},
        )
        self._id = jobs.submit(request)
        return Reading(Verdict.NOT_YET, f"{self._id} is submitted")


def sweep(jobs: JobClient) -> tuple[Job, ...]:
    """Delete the probes that have ended, of whatever rollout; return those that still run.

    Raises:
        RayfleetError: as the client's own.
    """
    probes = [job for job in jobs.list() if job.submission_id.startswith(PREFIX)]
    for job in probes:
        if job.ended:
            jobs.delete(job.submission_id)
    return tuple(job for job in probes if not job.ended)


def _took(job: Job) -> str:
    if job.start is None or job.end is None:
        return ""
    return f" in {(job.end - job.start).total_seconds():.1f} s"


def _cause(job: Job) -> str:
    lines = job.message.strip().splitlines() or ["no explanation"]
    return f"{job.error_type or 'no error type'}: {redacted(lines[0])[:200]}"

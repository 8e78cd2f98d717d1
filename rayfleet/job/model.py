"""Jobs as frozen values: what is asked of a cluster, and what it says about a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from rayfleet.errors import RayfleetError, ToolFailed, Unreachable, UsageError
from rayfleet.job.needs import Needs
from rayfleet.job.redaction import env_values, redacted, redacted_values


class JobStatus(StrEnum):
    """Ray's own states of a job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        """True when the state cannot change any more."""
        return self not in {JobStatus.PENDING, JobStatus.RUNNING}


class JobKind(StrEnum):
    """SUBMISSION came through the jobs API; DRIVER is a script that connected by itself."""

    SUBMISSION = "SUBMISSION"
    DRIVER = "DRIVER"


_LATEST = datetime.max.replace(tzinfo=UTC)

LOST_WITH_HEAD = frozenset(
    (
        "JOB_SUPERVISOR_ACTOR_START_FAILURE",
        "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
        "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
        "JOB_SUPERVISOR_ACTOR_DIED",
        "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE",
    )
)
"""The error types of a job that its cluster dropped, where it neither ended nor was stopped.

After a restart of a head that keeps its records, a job that ran has START_FAILURE. One that
waited for its start is bound to the node id of the old head and gets START_TIMEOUT.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job to submit.

    ``submission_id`` is chosen by us, so that the same request sent twice is one job.
    ``package`` is the file name of an uploaded working directory (``_ray_pkg_….zip``), or
    empty. ``needs`` are reserved for the entrypoint itself; without any it runs on the head.
    """

    submission_id: str
    entrypoint: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    package: str = ""
    needs: Needs = field(default_factory=Needs)

    def document(self) -> dict[str, object]:
        """The body of ``POST /api/jobs/`` (Ray 2.60, JobSubmitRequest)."""
        runtime_env: dict[str, object] = {}
        if self.env_vars:
            runtime_env["env_vars"] = dict(self.env_vars)
        if self.package:
            runtime_env["working_dir"] = f"gcs://{self.package}"
        return {
            "entrypoint": self.entrypoint,
            "submission_id": self.submission_id,
            "runtime_env": runtime_env,
            "metadata": dict(self.metadata),
            **self.needs.document(),
        }


class Submittable(Protocol):
    """A job that can be submitted: a new one, or one of a backup."""

    @property
    def submission_id(self) -> str:
        """The id, chosen by us, so that the same job sent twice is one job."""

    @property
    def entrypoint(self) -> str:
        """The command line that it runs."""

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """What its owner noted about it."""

    def document(self) -> dict[str, object]:
        """The body of ``POST /api/jobs/``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a cluster says about one job.

    ``submission_id`` is empty for a DRIVER; ``job_id`` is empty until the job's driver has
    connected. ``exit_code`` is the entrypoint's, once it has ended. ``started`` is ``start`` as
    Ray gave it, milliseconds since 1970 (0: not given): it tells two lives of one submission id
    apart.
    """

    submission_id: str
    job_id: str
    kind: JobKind
    status: JobStatus
    entrypoint: str
    started: int = 0
    start: datetime | None = None
    end: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    error_type: str = ""
    exit_code: int | None = None

    @property
    def name(self) -> str:
        """What to call the job in a command: the submission id, or the driver's job id."""
        return self.submission_id or self.job_id

    @property
    def ended(self) -> bool:
        """True when the job cannot change any more."""
        return self.status.ended

    @property
    def owner(self) -> str:
        """Who submitted it, as its metadata says; ``unknown`` when it does not."""
        return self.metadata.get("owner") or "unknown"

    def document(self) -> dict[str, object]:
        """The job as ``--json`` prints it: secrets masked, times as ISO 8601 UTC or null."""
        return {
            "submission_id": self.submission_id,
            "job_id": self.job_id,
            "kind": self.kind.value,
            "status": self.status.value,
            "entrypoint": redacted(self.entrypoint),
            "start": self.start.isoformat() if self.start else None,
            "end": self.end.isoformat() if self.end else None,
            "owner": self.owner,
            "metadata": redacted_values(self.metadata),
            "message": redacted(self.message),
            "error_type": self.error_type,
            "exit_code": self.exit_code,
        }


class UnknownJob(UsageError):
    """The cluster knows no job of that id."""


class JobExists(UsageError):
    """Another job has the submission id already."""


class UnreadableJob(ToolFailed):
    """A head that answers tells of its jobs in a way that nobody here understands."""


class JobFailed(RayfleetError):
    """The job ended as FAILED, whether or not its entrypoint ever ran."""

    exit_code = 2


class JobStopped(RayfleetError):
    """Somebody stopped the job."""

    exit_code = 3


class JobTimedOut(RayfleetError):
    """The job had not ended when the time for it was up; it was left as it is."""

    exit_code = 124  # as timeout(1)


class NotStoppable(RayfleetError):
    """Ray took the request to stop a job that has not started, and the job waits on."""

    exit_code = 2


class JobLost(Unreachable):
    """The cluster has forgotten a job that it had: its head was replaced or restarted."""


def parse_jobs(rows: object) -> tuple[Job, ...]:
    """Read the answer to ``GET /api/jobs/``, oldest first.

    Raises:
        UnreadableJob: it is no list of jobs.
    """
    if not isinstance(rows, list):
        raise UnreadableJob("the jobs API answered with no list")
    return tuple(sorted(map(parse_job, rows), key=lambda job: (job.start or _LATEST, job.name)))


def parse_job(row: object) -> Job:
    """Read one JobDetails of Ray's jobs API (2.60); what it holds of secrets is left out.

    Raises:
        UnreadableJob: the row is not a job.
    """
    if not isinstance(row, Mapping):
        raise UnreadableJob("the jobs API answered with something that is no job")
    metadata = row.get("metadata") or {}
    code = row.get("driver_exit_code")
    try:
        return Job(
            submission_id=str(row.get("submission_id") or ""),
            job_id=str(row.get("job_id") or ""),
            kind=JobKind(row["type"]),
            status=JobStatus(row["status"]),
            entrypoint=str(row["entrypoint"]),
            started=int(row.get("start_time") or 0),
            start=_moment(row.get("start_time")),
            end=_moment(row.get("end_time")),
            metadata={str(key): str(value) for key, value in metadata.items()},
            # It may quote the whole runtime environment, as when that could not be set up.
            message=redacted(str(row.get("message") or ""), env_values(row.get("runtime_env"))),
            error_type=str(row.get("error_type") or ""),
            exit_code=int(code) if code is not None else None,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UnreadableJob("cannot read a job of the jobs API", why=repr(error)) from error


def _moment(milliseconds: object) -> datetime | None:
    # A DRIVER that still runs has end_time 0.
    if not isinstance(milliseconds, int) or milliseconds <= 0:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC)

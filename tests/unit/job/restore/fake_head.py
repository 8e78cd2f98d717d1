"""A head in memory that behaves as Ray 2.60 does to a restore, traps included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from rayfleet.errors import ToolFailed
from rayfleet.job.model import Job, JobExists, JobKind, JobStatus, Submittable
from rayfleet.job.package import Package
from rayfleet.job.vault.model import Backup, SavedJob, SavedPackage
from rayfleet.job.vault.store import Vault
from tests.unit.job.canned import FakeClock

T = TypeVar("T")

PIN_SECONDS = 600.0
EPOCH = 1_700_000_000_000
LATER = 3_600_000


class Killed(BaseException):
    """The operator's process ends here."""


@dataclass
class FakeHead:
    """Keeps jobs, and packages only while something refers to them.

    ``cut_at`` is the number of the call (from 1) that raises ``cut``, before its effect or
    (``cut_late``) after it. ``start_seconds`` is how long a job is PENDING; one that asks for
    CPUs stays so. ``call_seconds`` pass with every call.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    cluster: str = "c1"
    cut: BaseException = field(default_factory=Killed)
    cut_at: int = 0
    cut_late: bool = False
    start_seconds: float = 3.0
    call_seconds: float = 0.0
    calls: list[str] = field(default_factory=list)
    rows: dict[str, Job] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, Exception] = field(default_factory=dict)
    fails: dict[str, tuple[str, str]] = field(default_factory=dict)
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    on_submit: Callable[[], None] = lambda: None
    _lacking: dict[str, list[str]] = field(default_factory=dict)
    _pins: dict[str, float] = field(default_factory=dict)

    @property
    def submitted(self) -> list[str]:
        """The ids of the jobs that it took, in order: an id twice is a job run twice."""
        return [str(body["submission_id"]) for body in self.bodies]

    def list(self) -> tuple[Job, ...]:
        return self._do("list", lambda: tuple(map(self._now, self.rows.values())))

    def has_package(self, name: str) -> bool:
        return self._do(f"has {name}", lambda: self._has(name))

    def upload(self, package: Package) -> bool:
        def effect() -> bool:
            if package.name in self.refused:
                raise self.refused[package.name]
            there = self._has(package.name)
            if not there:
                self.packages[package.name] = package.path.read_bytes()
            return not there

        return self._do(f"upload {package.name}", effect)

    def submit(self, request: Submittable) -> str:
        return self._do(f"submit {request.submission_id}", lambda: self._submit(request))

    def delete(self, job_id: str) -> bool:
        def effect() -> bool:
            if job_id in self.rows and not self._now(self.rows[job_id]).ended:
                raise ToolFailed("c1: cannot delete it", why="it is in a non-terminal state")
            return self.rows.pop(job_id, None) is not None

        return self._do(f"delete {job_id}", effect)

    def _do(self, call: str, effect: Callable[[], T]) -> T:
        self.calls.append(call)
        self.clock.now += self.call_seconds
        cut = len(self.calls) == self.cut_at
        if cut and not self.cut_late:
            raise self.cut
        result = effect()
        if cut:
            raise self.cut
        return result

    def _submit(self, request: Submittable) -> str:
        name = request.submission_id
        self.on_submit()
        if name in self.refused:
            raise self.refused[name]
        if (there := self.rows.get(name)) is not None:
            if (there.entrypoint, there.metadata) != (request.entrypoint, request.metadata or {}):
                raise JobExists("c1 has another job of the id " + name)
            return name
        body: Any = request.document()
        missing = [uri for uri in uris_of(body) if not self._has(uri.removeprefix("gcs://"))]
        if self._lacking.pop(name, None):
            del self.fails[name]
        if missing:
            self._lacking[name] = missing
            self.fails[name] = ("RUNTIME_ENV_SETUP_FAILURE", f"cannot download {missing[0]}")
        self.bodies.append(body)
        self.rows[name] = job_row(
            name,
            JobStatus.PENDING,
            started=EPOCH + LATER + int(self.clock.now * 1000),
            entrypoint=request.entrypoint,
            metadata=request.metadata or {},
        )
        return name

    def _now(self, row: Job) -> Job:
        waited = self.clock.now - (row.started - EPOCH - LATER) / 1000
        lives = (one for one in reversed(self.bodies) if one["submission_id"] == row.name)
        body = next(lives, {})
        if row.status is not JobStatus.PENDING or waited < self.start_seconds:
            return row
        if row.name in self.fails:
            error_type, message = self.fails[row.name]
            return replace(row, status=JobStatus.FAILED, error_type=error_type, message=message)
        return row if body.get("entrypoint_num_cpus") else replace(row, status=JobStatus.RUNNING)

    def _has(self, name: str) -> bool:
        used = {uri.removeprefix("gcs://") for body in self.bodies for uri in uris_of(body)}
        age = self.clock.now - self._pins.get(name, self.clock.now)
        if age >= PIN_SECONDS and name not in used:
            self.packages.pop(name, None)
        self._pins[name] = self.clock.now
        return name in self.packages


def uris_of(body: Mapping[str, Any]) -> list[str]:
    """The packages that a job's body names."""
    env = body.get("runtime_env") or {}
    return [uri for uri in (env.get("working_dir"), *(env.get("py_modules") or ())) if uri]


def job_row(
    name: str,
    status: JobStatus,
    *,
    started: int = EPOCH,
    error_type: str = "",
    entrypoint: str = "true",
    metadata: Mapping[str, str] | None = None,
) -> Job:
    """A job as the head lists it."""
    return Job(
        submission_id=name,
        job_id="",
        kind=JobKind.SUBMISSION,
        status=status,
        entrypoint=entrypoint,
        started=started,
        metadata=metadata or {},
        error_type=error_type,
    )


def saved_job(name: str, **changes: Any) -> SavedJob:
    """A job of a backup that ran when it was saved."""
    given: dict[str, Any] = {
        "submission_id": name,
        "status": JobStatus.RUNNING,
        "started": EPOCH,
        "entrypoint": "true",
    }
    return SavedJob(**(given | changes))


def keep_backup(
    vault: Vault, *jobs: SavedJob, contents: Mapping[str, bytes] | None = None, **changes: Any
) -> Backup:
    """A backup in ``vault`` with ``jobs`` and the packages of ``contents``, by URI."""
    packages: list[SavedPackage] = []
    with vault.incoming() as folder:
        for uri, raw in (contents or {}).items():
            path = Path(folder) / "package"
            path.write_bytes(raw)
            packages.append(vault.keep(uri, path))
        given: dict[str, Any] = {
            "cluster": "c1",
            "identity": "p/z/c1",
            "taken": datetime(2026, 11, 21, tzinfo=UTC),
            "session": "session_1",
            "ray_version": "2.60.0",
            "jobs": jobs,
            "packages": tuple(packages),
        }
        return vault.save(Backup(**(given | changes)))

"""What a backup holds: jobs, packages, and what cannot be given back. Frozen values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from rayfleet.job.model import JobStatus
from rayfleet.job.redaction import env_values

PACKAGE_SCHEME = "gcs://"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedJob:
    """One job that had not ended, with every field that Ray 2.60 was given for it.

    ``started`` is Ray's start_time, milliseconds since 1970, set when the job was submitted: it
    orders the jobs and tells two lives of one submission id apart. None in a field is what Ray
    had, and is given back as None. ``label_selector`` is without what Ray adds by itself.
    ``missing`` says what could not be read of the job, one phrase each.
    """

    submission_id: str
    status: JobStatus
    started: int
    entrypoint: str
    metadata: Mapping[str, str] | None = None
    runtime_env: Mapping[str, Any] | None = field(default=None, repr=False)
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory: int | None = None
    resources: Mapping[str, float] | None = None
    label_selector: Mapping[str, str] | None = None
    infrastructure: bool = False
    missing: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        """Who submitted it, as its metadata says; empty when it does not."""
        return (self.metadata or {}).get("owner", "")

    @property
    def packages(self) -> tuple[str, ...]:
        """The ``gcs://`` URIs of its working directory and its modules, each once."""
        env = self.runtime_env or {}
        named = [env.get("working_dir"), *(env.get("py_modules") or ())]
        found = (uri for uri in named if isinstance(uri, str) and uri.startswith(PACKAGE_SCHEME))
        return tuple(dict.fromkeys(found))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of its environment variables, none of which may be shown."""
        return env_values(self.runtime_env)

    def document(self) -> dict[str, object]:
        """The body of ``POST /api/jobs/`` that makes the same job again."""
        fields: dict[str, object] = {
            "submission_id": self.submission_id,
            "entrypoint": self.entrypoint,
            "metadata": self.metadata,
            "runtime_env": self.runtime_env,
            "entrypoint_num_cpus": self.num_cpus,
            "entrypoint_num_gpus": self.num_gpus,
            "entrypoint_memory": self.memory,
            "entrypoint_resources": self.resources,
            "entrypoint_label_selector": self.label_selector,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPackage:
    """The bytes behind one ``gcs://`` URI: their SHA-256 in hex and how many they are."""

    uri: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        """The file name in the URI, ``_ray_pkg_….zip``."""
        return self.uri.removeprefix(PACKAGE_SCHEME)


class LostKind(StrEnum):
    """What runs on a cluster and was not submitted as a job, so that nobody can give it back."""

    DRIVER = "driver"
    ACTOR = "detached actor"
    SERVE = "Serve application"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrestorable:
    """Something that a loss of the head ends for good. ``detail`` tells whose or what it is."""

    kind: LostKind
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What one look at a cluster saved.

    ``id`` is empty until the vault has taken it. ``jobs`` are in the order of their start.
    ``session`` is Ray's session name, another for every start of a head. ``ended`` maps the
    jobs that had ended by then to their status.
    """

    cluster: str
    identity: str
    taken: datetime
    session: str
    ray_version: str
    jobs: tuple[SavedJob, ...] = ()
    packages: tuple[SavedPackage, ...] = ()
    unrestorable: tuple[Unrestorable, ...] = ()
    ended: Mapping[str, JobStatus] = field(default_factory=dict)
    id: str = ""

    @property
    def restorable(self) -> tuple[SavedJob, ...]:
        """The jobs that a restore gives back: all but those of the infrastructure."""
        return tuple(job for job in self.jobs if not job.infrastructure)

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be saved, ``JOB: what`` each, in order; a complete backup has none."""
        held = {package.uri for package in self.packages}
        found = []
        for job in self.restorable:
            found += [f"{job.submission_id}: {what}" for what in job.missing]
            found += [
                f"{job.submission_id}: the bytes of {uri}"
                for uri in job.packages
                if uri not in held
            ]
        return tuple(found)

    @property
    def complete(self) -> bool:
        """True when every job can be given back exactly."""
        return not self.missing


def without_stopped(
    ended: Mapping[str, JobStatus], stopped: Collection[str]
) -> dict[str, JobStatus]:
    """``ended`` without the jobs of ``stopped`` that are STOPPED: they are to be given back."""
    return {
        name: status
        for name, status in ended.items()
        if not (status is JobStatus.STOPPED and name in stopped)
    }

"""From what the reader found to values, pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rayfleet.errors import ToolFailed
from rayfleet.job.model import LOST_WITH_HEAD, JobStatus
from rayfleet.job.snapshot.source import Look
from rayfleet.job.vault.model import LostKind, SavedJob, Unrestorable

NO_SELECTOR = "its label selector"
"""The job was so new that Ray had no supervisor for it yet: a later look has it."""

FIELDS = frozenset(
    (
        *("status", "entrypoint", "message", "error_type", "start_time", "end_time", "metadata"),
        *("runtime_env_json", "entrypoint_num_cpus", "entrypoint_num_gpus", "entrypoint_memory"),
        *("entrypoint_resources", "driver_agent_http_address", "driver_node_id"),
        "driver_exit_code",
    )
)
"""Every field of a job's record in Ray 2.60 (JobInfo in ray/dashboard/modules/job/common.py)."""

_NODE_ID = "ray.io/node-id"
_SERVE = "serve"
_REPLICA = "SERVE_REPLICA::"  # APPLICATION#DEPLOYMENT#ID
# Queues and collectives of ray.util are made by users, the rest of Ray's actors by Ray.
_USERS_OWN = "ray.util."


def parse_look(document: bytes) -> Look:
    """Read the document of one look.

    A job whose record makes no sense is there with what is missing: one odd job must not keep
    the others from being saved.

    Raises:
        ToolFailed: the document is not the reader's. No content is shown, it holds secrets.
    """
    try:
        found = json.loads(document)
        heads = frozenset(found["heads"])
        jobs = [_job(row, heads) for row in found["live"]]
        return Look(
            session=str(found["session"]),
            ray_version=str(found["ray_version"]),
            jobs=tuple(sorted(jobs, key=lambda job: (job.started, job.submission_id))),
            ended=_ended(found["ended"]),
            unrestorable=(*_drivers(found["drivers"]), *_actors(found["actors"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolFailed(
            "the head's account of its jobs cannot be read", why=type(error).__name__
        ) from error


def _ended(rows: Mapping[str, Mapping[str, str]]) -> dict[str, JobStatus]:
    # A job that its cluster dropped has not ended: it is what a restore gives back.
    return {
        name: JobStatus(row["status"])
        for name, row in rows.items()
        if row["error_type"] not in LOST_WITH_HEAD
    }


def _job(row: Mapping[str, Any], heads: frozenset[str]) -> SavedJob:
    name = str(row["id"])
    try:
        record = json.loads(row["record"])
        env = record.get("runtime_env_json")
        runtime_env = _mapping(None if env is None else json.loads(env))
        # Ray takes anything as a runtime_env, and finds out later.
        _list((runtime_env or {}).get("py_modules"))
        job = SavedJob(
            submission_id=name,
            status=JobStatus(record["status"]),
            started=int(record["start_time"]),
            entrypoint=str(record["entrypoint"]),
            metadata=_mapping(record.get("metadata")),
            runtime_env=runtime_env,
            num_cpus=record.get("entrypoint_num_cpus"),
            num_gpus=record.get("entrypoint_num_gpus"),
            memory=record.get("entrypoint_memory"),
            resources=_mapping(record.get("entrypoint_resources")),
            missing=tuple(_unknown(record)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        missing = f"its record cannot be read ({type(error).__name__})"
        return SavedJob(
            submission_id=name,
            status=JobStatus.PENDING,
            started=0,
            entrypoint="",
            missing=(missing,),
        )
    return _with_selector(job, row.get("supervisor"), heads)


def _unknown(record: Mapping[str, Any]) -> Iterator[str]:
    """What a newer Ray was given for the job, and a restore would not give back."""
    for name in sorted(record.keys() - FIELDS):
        if record[name] is not None:
            yield f"its field {name!r}, which this rayfleet does not know"


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if value is None or isinstance(value, Mapping):
        return value
    raise TypeError("no mapping")


def _list(value: Any) -> None:
    if value is not None and not isinstance(value, list):
        raise TypeError("no list")


def _with_selector(
    job: SavedJob, supervisor: Mapping[str, Any] | None, heads: frozenset[str]
) -> SavedJob:
    # One that ended before this job began was of an earlier job with the same id.
    if supervisor is None or 0 < supervisor["end_time"] < job.started:
        return replace(job, missing=(*job.missing, NO_SELECTOR))
    selector = dict(supervisor["label_selector"])
    asks = (job.num_cpus, job.num_gpus, job.memory, job.resources)
    # Ray sends a job that asks for nothing to the head by the id of the head's node, which a
    # new head does not have.
    if not any(asks) and selector.keys() == {_NODE_ID} and selector[_NODE_ID] in heads:
        selector = {}
    return replace(job, label_selector=selector or None)


def _drivers(rows: Sequence[Mapping[str, Any]]) -> Iterator[Unrestorable]:
    for row in rows:
        if row["submission_id"] or str(row["namespace"]).startswith("_ray_internal"):
            continue
        yield Unrestorable(
            kind=LostKind.DRIVER,
            name=str(row["job_id"]),
            detail=f"process {row['pid']} on {row['address']}",
        )


def _actors(rows: Sequence[Mapping[str, Any]]) -> Iterator[Unrestorable]:
    applications: dict[str, int] = {}
    serves = False
    for row in rows:
        name, module = str(row["name"]), str(row["module"])
        if row["namespace"] == _SERVE and (name + module).startswith(("SERVE_", "ray.serve.")):
            serves = True
            if name.startswith(_REPLICA):
                application = name.removeprefix(_REPLICA).partition("#")[0]
                applications[application] = applications.get(application, 0) + 1
        elif not module.startswith("ray.") or module.startswith(_USERS_OWN):
            yield Unrestorable(
                kind=LostKind.ACTOR,
                name=name or str(row["class"]),
                detail=f"{row['class']} in namespace {row['namespace']}",
            )
    if serves and not applications:
        yield Unrestorable(kind=LostKind.SERVE, name=_SERVE, detail="no replica runs")
    for application, replicas in sorted(applications.items()):
        plural = "" if replicas == 1 else "s"
        yield Unrestorable(
            kind=LostKind.SERVE, name=application, detail=f"{replicas} replica{plural}"
        )

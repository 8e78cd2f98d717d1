"""Backups as JSON for an operator: no value of a variable, and nothing that looks secret.

Not to be taken for document.py, whose documents hold every secret and never leave the vault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from rayfleet.job.redaction import MASK, looks_secret, redacted
from rayfleet.job.vault.model import Backup, SavedJob, SavedPackage
from rayfleet.job.vault.pruning import Pruned
from rayfleet.job.vault.records import Damaged

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def saved_document(backup: Backup) -> dict[str, object]:
    """What ``jobs.backup --json`` prints."""
    return {
        "backup": backup.id,
        "cluster": backup.cluster,
        "taken": backup.taken.isoformat(),
        "complete": backup.complete,
        "missing": list(backup.missing),
        "jobs": [job.submission_id for job in backup.restorable],
        "infrastructure": infrastructure_of(backup),
        "unrestorable": lost_documents(backup),
        "packages": len(distinct(backup.packages)),
        "bytes": stored_size(backup.packages),
    }


def row_document(found: Backup | Damaged) -> dict[str, object]:
    """One backup of the list that ``jobs.vault --json`` prints."""
    if isinstance(found, Damaged):
        return {
            "id": found.id,
            "cluster": found.cluster or None,
            "taken": _iso(found.taken),
            "state": "damaged",
            "why": found.why,
        }
    return {
        "id": found.id,
        "cluster": found.cluster,
        "taken": found.taken.isoformat(),
        "state": state_of(found),
        "missing": list(found.missing),
        "jobs": len(found.jobs),
        "packages": len(distinct(found.packages)),
        "bytes": stored_size(found.packages),
    }


def backup_document(backup: Backup, problems: Sequence[str]) -> dict[str, object]:
    """What ``jobs.vault --backup ID --json`` prints; ``problems`` are those of its packages."""
    return {
        "id": backup.id,
        "cluster": backup.cluster,
        "identity": backup.identity,
        "taken": backup.taken.isoformat(),
        "session": backup.session,
        "ray_version": backup.ray_version,
        "state": state_of(backup, problems),
        "missing": list(backup.missing),
        "damaged": list(problems),
        "jobs": [_job_document(job) for job in backup.jobs],
        "packages": [
            {"uri": package.uri, "sha256": package.sha256, "size": package.size}
            for package in backup.packages
        ],
        "unrestorable": lost_documents(backup),
        "ended": {job: status.value for job, status in backup.ended.items()},
    }


def _job_document(job: SavedJob) -> dict[str, object]:
    return {
        "submission_id": job.submission_id,
        "status": job.status.value,
        "started": _iso(started_at(job)),
        "owner": masked(job.owner, job) or None,
        "entrypoint": masked(job.entrypoint, job),
        "metadata": masked(job.metadata, job),
        "runtime_env": _masked_env(job),
        "num_cpus": job.num_cpus,
        "num_gpus": job.num_gpus,
        "memory": job.memory,
        "resources": job.resources,
        "label_selector": job.label_selector,
        "infrastructure": job.infrastructure,
        "missing": list(job.missing),
    }


def _masked_env(job: SavedJob) -> dict[str, object] | None:
    """The runtime_env with the names of its variables only."""
    if job.runtime_env is None:
        return None
    return {
        key: dict.fromkeys(value, MASK)
        if key == "env_vars" and isinstance(value, Mapping)
        else masked(value, job)
        for key, value in job.runtime_env.items()
    }


def masked(value: object, job: SavedJob) -> object:
    """``value`` with every text in it masked; a pair of a mapping is masked as one."""
    if isinstance(value, str):
        return redacted(value, job.secrets)
    if isinstance(value, Mapping):
        return {key: _masked_pair(str(key), item, job) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, job) for item in value]
    return value


def _masked_pair(key: str, value: object, job: SavedJob) -> object:
    if isinstance(value, str) and looks_secret(key):
        return MASK
    return masked(value, job)


def lost_documents(backup: Backup) -> list[dict[str, str]]:
    """What nobody can give back."""
    return [
        {"kind": lost.kind.value, "name": lost.name, "detail": redacted(lost.detail)}
        for lost in backup.unrestorable
    ]


def pruned_document(pruned: Pruned, *, dry_run: bool) -> dict[str, object]:
    """What ``jobs.vault --prune --json`` prints; sizes are in bytes."""
    return {
        "dry_run": dry_run,
        "backups": list(pruned.backups),
        "packages": pruned.packages,
        "bytes": pruned.size,
        "leftovers": pruned.leftovers,
        "kept": dict(pruned.kept),
    }


def distinct(packages: Iterable[SavedPackage]) -> tuple[SavedPackage, ...]:
    """One of each; several URIs may have the same bytes."""
    return tuple({package.sha256: package for package in packages}.values())


def stored_size(packages: Iterable[SavedPackage]) -> int:
    """The bytes that the packages take in the vault."""
    return sum(package.size for package in distinct(packages))


def started_at(job: SavedJob) -> datetime | None:
    """When the job was submitted; None if Ray does not say."""
    return _EPOCH + timedelta(milliseconds=job.started) if job.started else None


def state_of(backup: Backup, problems: Sequence[str] = ()) -> str:
    """``complete``, ``incomplete`` or ``damaged``."""
    return "damaged" if problems else "complete" if backup.complete else "incomplete"


def infrastructure_of(backup: Backup) -> list[str]:
    """The ids of the jobs that no restore gives back, by rule."""
    return [job.submission_id for job in backup.jobs if job.infrastructure]


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None

"""Backups to keep in a vault."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rayfleet.job.model import JobStatus
from rayfleet.job.vault.model import Backup, SavedJob, SavedPackage
from rayfleet.job.vault.store import Vault

TAKEN = datetime(2026, 11, 21, 13, 0, 0, 250_000, tzinfo=UTC)
URI = "gcs://_ray_pkg_1111.zip"
OTHER = "gcs://_ray_pkg_2222.zip"
SECRET = "correct-horse-battery"


def job(name: str = "train", **changes: Any) -> SavedJob:
    """A job that ran when it was saved."""
    given: dict[str, Any] = {
        "submission_id": name,
        "status": JobStatus.RUNNING,
        "started": 1_763_730_000_000,
        "entrypoint": "python train.py",
    }
    return SavedJob(**(given | changes))


def backup(*jobs: SavedJob, **changes: Any) -> Backup:
    """A backup of the cluster ``east`` that no vault has yet."""
    given: dict[str, Any] = {
        "cluster": "east",
        "identity": "marin-east",
        "taken": TAKEN,
        "session": "session_1",
        "ray_version": "2.60.0",
        "jobs": jobs,
    }
    return Backup(**(given | changes))


def keep(vault: Vault, contents: Mapping[str, bytes]) -> tuple[SavedPackage, ...]:
    """Put packages into the vault, by URI."""
    kept = []
    with vault.incoming() as folder:
        for uri, raw in contents.items():
            (folder / "package").write_bytes(raw)
            kept.append(vault.keep(uri, folder / "package"))
    return tuple(kept)


def save(
    vault: Vault, *jobs: SavedJob, contents: Mapping[str, bytes] = {}, **changes: Any
) -> Backup:
    """Save a backup of ``jobs`` with the packages of ``contents``, by URI."""
    with vault.incoming():
        return vault.save(backup(*jobs, packages=keep(vault, contents), **changes))

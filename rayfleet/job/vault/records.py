"""The files of backups: their names, and what is wrong with one.

A file is called after its backup, whose id is CLUSTER-TIME-SUM: SUM is the start of the SHA-256
of the whole file, so that each checks itself.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rayfleet.job.vault.document import NotABackup, decode_backup, encode_backup
from rayfleet.job.vault.model import Backup

SUFFIX = ".json"
ID = re.compile(
    r"(?P<cluster>[A-Za-z0-9][A-Za-z0-9_.-]*)-(?P<taken>\d{8}T\d{6}Z)-(?P<sum>[0-9a-f]{10})"
)
SHA256 = re.compile(r"[0-9a-f]{64}")

_MOMENT = "%Y%m%dT%H%M%SZ"
_NAMED = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A backup that cannot be used, or a file among them that is none; ``why`` is a clause.

    ``cluster`` is empty and ``taken`` None where the name of the file does not tell.
    """

    id: str
    why: str
    cluster: str = ""
    taken: datetime | None = None


def new_record(backup: Backup) -> tuple[str, bytes]:
    """The id of ``backup`` and the bytes of its file.

    Raises:
        ValueError: the name of its cluster cannot be that of a file.
    """
    raw = encode_backup(backup)
    backup_id = f"{backup.cluster}-{backup.taken.astimezone(UTC).strftime(_MOMENT)}-{_sum(raw)}"
    if not ID.fullmatch(backup_id):
        raise ValueError(f"{backup.cluster!r} is no name of a cluster")
    return backup_id, raw


def may_be(path: Path, cluster: str) -> bool:
    """False when the file ``path`` is by its name a backup of another cluster."""
    named = ID.fullmatch(path.stem) if path.suffix == SUFFIX else None
    return named is None or named["cluster"] == cluster


def read_record(path: Path) -> Backup | Damaged | None:
    """The backup in the file ``path``; None if there is no such file."""
    named = ID.fullmatch(path.stem) if path.suffix == SUFFIX else None
    if named is None:
        return Damaged(id=path.name, why="it is no backup, by its name")
    cluster, taken = named["cluster"], _moment(named["taken"])
    try:
        raw = path.read_bytes()
        if _sum(raw) != named["sum"]:
            raise NotABackup("it is not what was written")
        backup = decode_backup(raw)
        if (backup.cluster, backup.taken.replace(microsecond=0)) != (cluster, taken):
            raise NotABackup("its name is that of another")
    except FileNotFoundError:
        return None
    except (OSError, NotABackup) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Damaged(id=path.stem, why=why, cluster=cluster, taken=taken)
    return replace(backup, id=path.stem)


def named_packages(path: Path) -> set[str]:
    """All that could be the SHA-256 of a package in the file ``path``, a damaged one too.

    Raises:
        OSError: it cannot be read.
    """
    return {name.decode() for name in _NAMED.findall(path.read_bytes())}


def _sum(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:10]


def _moment(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return None

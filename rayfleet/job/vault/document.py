"""A backup as a JSON document, and back: exactly, or not at all.

JSON keeps apart what Ray keeps apart: null, ``{}``, 0 and 0.0. Nothing is coerced on the way
back; a document that is not what encode_backup writes is refused as a whole. No message here
quotes a value, which may be a secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from rayfleet.job.model import JobStatus
from rayfleet.job.vault.model import Backup, LostKind, SavedJob, SavedPackage, Unrestorable

KIND = "rayfleet backup of jobs"
FORMAT = 1
"""Goes up with every change of what a document holds; older ones stay readable."""

Reader = Callable[[object], Any]
E = TypeVar("E", bound=StrEnum)


class NotABackup(ValueError):
    """The document is no backup that this rayfleet can read; the text says why."""


def encode_backup(backup: Backup) -> bytes:
    """The document of ``backup``, without its id.

    Raises:
        ValueError: ``taken`` has no time zone.
    """
    if backup.taken.tzinfo is None:
        raise ValueError("the time of a backup needs a time zone")
    fields = {name: getattr(backup, name) for name in BACKUP}
    document = {"kind": KIND, "format": FORMAT, **fields}
    # ASCII, because half a surrogate pair is valid in JSON and in no encoding.
    return (json.dumps(document, indent=1, default=_plain) + "\n").encode("ascii")


def decode_backup(raw: bytes) -> Backup:
    """The backup that ``raw`` documents; its id is empty.

    Raises:
        NotABackup: it documents none, or in a format that is unknown here.
    """
    try:
        document = json.loads(raw.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise NotABackup("it is no JSON document") from error
    if not isinstance(document, dict) or document.pop("kind", None) != KIND:
        raise NotABackup("it is something else than a backup of jobs")
    version = document.pop("format", None)
    if type(version) is not int or version != FORMAT:
        raise NotABackup(
            f"its format is {version if type(version) is int else 'unknown'}, and this rayfleet"
            f" reads format {FORMAT} only; a newer rayfleet reads it"
        )
    return Backup(**_read(document, BACKUP, "the backup"))


def _plain(value: object) -> object:
    """What json has no word for: the values of vault/model.py, moments, read-only mappings."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    for kind, readers in ((SavedJob, JOB), (SavedPackage, PACKAGE), (Unrestorable, LOST)):
        if isinstance(value, kind):
            return {name: getattr(value, name) for name in readers}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def _read(row: object, readers: Mapping[str, Reader], what: str) -> dict[str, Any]:
    """The fields of ``row``: those of ``readers``, no fewer and no more."""
    if not isinstance(row, dict):
        raise NotABackup(f"{what} is no mapping")
    if lacking := [name for name in readers if name not in row]:
        raise NotABackup(f"{what} lacks {', '.join(lacking)}")
    if len(row) > len(readers):
        raise NotABackup(f"{what} has more fields than format {FORMAT}")
    found = {}
    for name, reader in readers.items():
        try:
            found[name] = reader(row[name])
        except NotABackup:
            raise
        except ValueError as error:
            raise NotABackup(f"{name} of {what} cannot be read") from error
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError("no whole number")
    return value


def _number(value: object) -> float:
    # An int stays one: Ray tells 1 from 1.0 in what it shows.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("no number")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _anything(value: object) -> object:
    return value


def _moment(value: object) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return moment.astimezone(UTC)


def _one_of(kind: type[E]) -> Callable[[object], E]:
    return lambda value: kind(_text(value))


def _optional(reader: Reader) -> Reader:
    return lambda value: None if value is None else reader(value)


def _mapping(reader: Reader) -> Reader:
    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("no mapping")
        return {key: reader(item) for key, item in value.items()}

    return read


def _several(reader: Reader) -> Reader:
    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError("no list")
        return tuple(reader(item) for item in value)

    return read


# The fields of each document, by the names that vault/model.py gives them.
JOB: Mapping[str, Reader] = {
    "submission_id": _text,
    "status": _one_of(JobStatus),
    "started": _whole,
    "entrypoint": _text,
    "metadata": _optional(_mapping(_text)),
    "runtime_env": _optional(_mapping(_anything)),
    "num_cpus": _optional(_number),
    "num_gpus": _optional(_number),
    "memory": _optional(_number),
    "resources": _optional(_mapping(_number)),
    "label_selector": _optional(_mapping(_text)),
    "infrastructure": _flag,
    "missing": _several(_text),
}
PACKAGE: Mapping[str, Reader] = {"uri": _text, "sha256": _text, "size": _whole}
LOST: Mapping[str, Reader] = {"kind": _one_of(LostKind), "name": _text, "detail": _text}
BACKUP: Mapping[str, Reader] = {
    "cluster": _text,
    "identity": _text,
    "taken": _moment,
    "session": _text,
    "ray_version": _text,
    "jobs": _several(lambda row: SavedJob(**_read(row, JOB, "a job"))),
    "packages": _several(lambda row: SavedPackage(**_read(row, PACKAGE, "a package"))),
    "unrestorable": _several(lambda row: Unrestorable(**_read(row, LOST, "what is lost"))),
    "ended": _mapping(_one_of(JobStatus)),
}

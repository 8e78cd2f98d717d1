"""The vault: backups of jobs on this machine's disk, content-addressed, for their owner alone.

::

    vault/                       0700, as all folders here; files are 0600
    ├── vault.lock               see hold.py
    ├── backups/ID.json          a document each; the end of ID is the start of its SHA-256
    ├── packages/SHA256          the bytes of a gcs:// package; equal bytes are one file
    └── incoming/                what runs are fetching; removed when they end

Documents hold the env_vars of jobs, which are secrets: the vault is the only place for them.
A document is written last and renamed into place, so that a killed run leaves no half backup.
Ids and packages check themselves; nothing is believed that was not read and hashed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rayfleet.errors import RayfleetError, UsageError
from rayfleet.files import ensure_private_folder, refusing, sync_folder, write_atomically
from rayfleet.job.model import JobStatus
from rayfleet.job.vault.document import NotABackup, decode_backup, encode_backup
from rayfleet.job.vault.hold import alone, shared
from rayfleet.job.vault.model import Backup, SavedPackage

_ID = re.compile(
    r"(?P<cluster>[A-Za-z0-9][A-Za-z0-9_.-]*)-(?P<taken>\d{8}T\d{6}Z)-(?P<sum>[0-9a-f]{10})"
)
_MOMENT = "%Y%m%dT%H%M%SZ"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAMED = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_NEVER = datetime(1, 1, 1, tzinfo=UTC)


class DamagedVault(RayfleetError):
    """Something in the vault is not what was put there."""


class NoBackup(UsageError):
    """The vault has no such backup, or none that a restore may take by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A backup that cannot be used, or a file among them that is none; ``why`` is a clause.

    ``cluster`` is empty and ``taken`` None where the name of the file does not tell.
    """

    id: str
    why: str
    cluster: str = ""
    taken: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What pruning deletes, or has deleted: ids of backups, how many packages, their bytes, and
    how many files that killed runs have left."""

    backups: tuple[str, ...] = ()
    packages: int = 0
    size: int = 0
    leftovers: int = 0


class Vault:
    """The vault in the folder ``root``, which is made when something is put there.

    Every method that writes raises PrerequisiteMissing when the disk is full or the folder may
    not be written, and every other when it may not be read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = root / "vault.lock"
        self._backups = root / "backups"
        self._packages = root / "packages"
        self._incoming = root / "incoming"

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A folder to fetch packages into while the block runs; nothing is pruned meanwhile.

        Call keep and save inside the block: a package that no backup names yet is safe only
        there.

        Raises:
            Locked: somebody prunes, and goes on doing it.
        """
        with self._writing():
            with refusing(self._incoming):
                folder = Path(tempfile.mkdtemp(dir=self._incoming))
                folder.chmod(0o700)
            try:
                yield folder
            finally:
                # What cannot be removed is a leftover, which the next writer removes.
                shutil.rmtree(folder, ignore_errors=True)

    def keep(self, uri: str, path: Path) -> SavedPackage:
        """Take the file ``path``, which must be in an incoming folder, as the bytes of ``uri``."""
        with self._writing(), refusing(self._packages):
            with path.open("rb") as file:
                os.fchmod(file.fileno(), 0o600)
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
                os.fsync(file.fileno())
            # Over the same bytes too: should those have been damaged, they are mended.
            path.replace(self._packages / sha256)
            sync_folder(self._packages)
        return SavedPackage(uri=uri, sha256=sha256, size=size)

    def package(self, sha256: str) -> Path:
        """The file with the bytes of a package, verified now.

        Raises:
            DamagedVault: it is not there any more, or holds other bytes.
        """
        path = self._packages / sha256
        if problem := self._problem(sha256):
            raise DamagedVault(
                f"the package {sha256[:12]} of the vault is {problem}",
                why=str(path),
                next_step="invoke jobs.vault shows what else there is",
            )
        return path

    def save(self, backup: Backup) -> Backup:
        """Keep ``backup``, and return it with its id once it was read back and verified.

        Raises:
            DamagedVault: a package of it is not there, or the disk gives back other bytes.
        """
        raw = encode_backup(backup)
        taken = backup.taken.astimezone(UTC).strftime(_MOMENT)
        backup_id = f"{backup.cluster}-{taken}-{_sum(raw)}"
        if not _ID.fullmatch(backup_id):
            raise ValueError(f"{backup.cluster!r} is no name of a cluster")
        with self._writing():
            for sha256 in dict.fromkeys(package.sha256 for package in backup.packages):
                self.package(sha256)
            path = self._path(backup_id)
            write_atomically(path, raw, mode=0o600)
            with refusing(path, action="read"):
                _forget(path)
                written = path.read_bytes()
            if written != raw or encode_backup(decode_backup(written)) != raw:
                path.unlink(missing_ok=True)
                raise DamagedVault(
                    f"{path} does not hold what was written",
                    next_step="check the disk, then run the same command again",
                )
        return replace(backup, id=backup_id)

    def load(self, backup_id: str) -> Backup:
        """The backup ``backup_id``; its packages are verified by package() when they are used.

        Raises:
            NoBackup: there is none of that id.
            DamagedVault: its document is not what was written.
        """
        found = self._read(self._path(backup_id)) if _ID.fullmatch(backup_id) else None
        if found is None:
            raise NoBackup(f"there is no backup {backup_id!r}", next_step="invoke jobs.vault")
        if isinstance(found, Damaged):
            raise DamagedVault(
                f"the backup {backup_id} cannot be used",
                why=found.why,
                next_step="invoke jobs.vault shows what else there is",
            )
        return found

    def backups(self, cluster: str = "") -> tuple[Backup | Damaged, ...]:
        """All backups, or those of one cluster, newest first.

        What is damaged, or no backup at all, is among them. A backup whose packages are not all
        there counts as damaged; their bytes are not read here.
        """
        read = (self._read(path) for path in self._documents())
        found = [self._checked(one) for one in read if one is not None]
        mine = [one for one in found if not cluster or one.cluster in {cluster, ""}]
        return tuple(sorted(mine, key=lambda one: (one.taken or _NEVER, one.id), reverse=True))

    def latest(self, cluster: str) -> Backup:
        """The newest complete backup of ``cluster``.

        Raises:
            NoBackup: there is none; the message says what there is.
        """
        found = self.backups(cluster)
        for one in found:
            if isinstance(one, Backup) and one.complete:
                return one
        mine = [one for one in found if one.cluster == cluster]
        kinds = [f"{one.id} ({_kind(one)})" for one in mine]
        raise NoBackup(
            f"there is no complete backup of {cluster}",
            why=f"there is only {', '.join(kinds)}" if kinds else "it was never backed up here",
            next_step=f"invoke jobs.vault --cluster {cluster}"
            if kinds
            else f"invoke jobs.backup --cluster {cluster}",
        )

    def endings_after(self, backup: Backup) -> Mapping[str, JobStatus]:
        """The jobs that had ended by a newer backup of the same cluster, and as what.

        A job that a still newer one found alive again is not among them.
        """
        ended: dict[str, JobStatus] = {}
        for one in reversed(self.backups(backup.cluster)):
            if isinstance(one, Backup) and one.taken > backup.taken:
                ended.update(one.ended)
                for job in one.jobs:
                    ended.pop(job.submission_id, None)
        return ended

    def plan_prune(self, older_than: timedelta, *, now: datetime) -> Pruned:
        """What prune would delete now."""
        return self._prune(older_than, now, delete=False)

    def prune(self, older_than: timedelta, *, now: datetime) -> Pruned:
        """Delete the backups that are older, then the packages that no backup names, and what
        killed runs have left. Files that are no backups stay, and so do their packages.

        Raises:
            Locked: a backup is being written.
        """
        if not self.root.exists():
            return Pruned()
        with alone(self._lock):
            return self._prune(older_than, now, delete=True)

    def _prune(self, older_than: timedelta, now: datetime, *, delete: bool) -> Pruned:
        old = [one.id for one in self.backups() if one.taken and now - one.taken > older_than]
        going = {self._path(backup_id) for backup_id in old}
        with refusing(self.root, action="prune"):
            staying = [path for path in self._documents() if path not in going]
            # From the raw bytes: what a damaged or newer document names must stay as well.
            needed = {name for path in staying if path.is_file() for name in _named(path)}
            spare = [path for path in self._stored() if path.name not in needed]
            pruned = Pruned(
                backups=tuple(old),
                packages=len(spare),
                size=sum(path.stat().st_size for path in (*going, *spare)),
                leftovers=len(self._leftovers()),
            )
            if delete:
                # Backups first: no kill in between leaves one without its packages.
                for paths in (going, spare):
                    for path in paths:
                        path.unlink(missing_ok=True)
                    for folder in {path.parent for path in paths}:
                        sync_folder(folder)
                self._sweep()
        return pruned

    @contextmanager
    def _writing(self) -> Iterator[None]:
        for folder in (self.root, self._backups, self._packages, self._incoming):
            ensure_private_folder(folder)
        with shared(self._lock, when_alone=self._sweep):
            yield

    def _sweep(self) -> None:
        """Remove what killed runs have left; nobody else writes now."""
        with refusing(self.root):
            for path in self._leftovers():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def _leftovers(self) -> list[Path]:
        return [
            *_listed(self._incoming),
            *(path for path in _listed(self._backups) if path.name.startswith(".")),
        ]

    def _documents(self) -> list[Path]:
        return [path for path in _listed(self._backups) if not path.name.startswith(".")]

    def _stored(self) -> list[Path]:
        return [path for path in _listed(self._packages) if _SHA256.fullmatch(path.name)]

    def _path(self, backup_id: str) -> Path:
        return self._backups / f"{backup_id}.json"

    def _read(self, path: Path) -> Backup | Damaged | None:
        """The backup in the file ``path``; None if there is no such file."""
        named = _ID.fullmatch(path.stem) if path.suffix == ".json" else None
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

    def _checked(self, found: Backup | Damaged) -> Backup | Damaged:
        """``found``, or what its lack of packages makes of it."""
        if isinstance(found, Damaged):
            return found
        for package in found.packages:
            path = self._packages / package.sha256
            try:
                whole = path.stat().st_size == package.size
            except OSError:
                whole = False
            if not whole:
                why = f"its package {package.sha256[:12]} is not there any more, or not whole"
                return Damaged(id=found.id, why=why, cluster=found.cluster, taken=found.taken)
        return found

    def _problem(self, sha256: str) -> str:
        """What is wrong with the file of a package, or nothing."""
        path = self._packages / sha256
        if not _SHA256.fullmatch(sha256) or not path.is_file():
            return "not there"
        with refusing(path, action="read"):
            _forget(path)
            with path.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == sha256
        return "" if same else "damaged"


def _sum(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:10]


def _moment(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _named(path: Path) -> list[str]:
    return [name.decode() for name in _NAMED.findall(path.read_bytes())]


def _kind(found: Backup | Damaged) -> str:
    return (
        "damaged" if isinstance(found, Damaged) else "complete" if found.complete else "incomplete"
    )


def _listed(folder: Path) -> list[Path]:
    """What is in ``folder``, which may not be there yet, in the order of its names."""
    with refusing(folder, action="read"):
        return sorted(folder.iterdir()) if folder.exists() else []


def _forget(path: Path) -> None:
    """Have the kernel read ``path`` from the disk again, not from memory."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

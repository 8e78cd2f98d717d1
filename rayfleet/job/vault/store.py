"""The vault: backups of jobs on this machine's disk, content-addressed, for their owner alone.

::

    vault/                       0700, as all folders here; files are 0600
    ├── vault.lock               see hold.py
    ├── backups/ID.json          a document each, see records.py
    ├── packages/SHA256          the bytes of a gcs:// package; equal bytes are one file
    └── incoming/                what is being fetched or written; emptied by its writer or the next

Documents hold the env_vars of jobs, which are secrets: the vault is the only place for them.
A document comes last, synced and read back before it gets its name, so that a killed run
leaves no half backup. What is read is hashed before it is believed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from rayfleet.errors import RayfleetError, UsageError
from rayfleet.files import ensure_private_folder, refusing, sync_folder, write_atomically
from rayfleet.job.model import JobStatus
from rayfleet.job.vault.document import decode_backup, encode_backup
from rayfleet.job.vault.hold import alone, shared
from rayfleet.job.vault.model import Backup, SavedPackage, without_stopped
from rayfleet.job.vault.pruning import NEVER, Protect, Pruned, needed_ids, nothing_protected
from rayfleet.job.vault.records import (
    ID,
    SHA256,
    SUFFIX,
    Damaged,
    may_be,
    named_packages,
    new_record,
    read_record,
)


class DamagedVault(RayfleetError):
    """Something in the vault is not what was put there."""


class NoBackup(UsageError):
    """The vault has no such backup, or none that a restore may take by itself."""


class Vault:
    """The vault in the folder ``root``, which is made when something is put there.

    Every method raises PrerequisiteMissing when the disk is full, or the folder may not be read
    or written. Several processes may use it at once.
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
        """Take the file ``path`` of an incoming folder as the bytes of ``uri``; it is moved.

        Raises:
            Locked: somebody prunes, and goes on doing it.
        """
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
        if problem := self._problem(sha256):
            raise DamagedVault(
                f"the package {sha256[:12]} of the vault is {problem}",
                why=str(self._packages),
                next_step="invoke jobs.vault",
            )
        return self._packages / sha256

    def save(self, backup: Backup) -> Backup:
        """Keep ``backup``, and return it with its id once it was read back and verified.

        Raises:
            DamagedVault: a package of it is not there, or the disk gives back other bytes.
            Locked: somebody prunes, and goes on doing it.
        """
        backup_id, raw = new_record(backup)
        path = self._path(backup_id)
        with self.incoming() as folder:
            for sha256 in dict.fromkeys(package.sha256 for package in backup.packages):
                self.package(sha256)
            draft = folder / path.name
            write_atomically(draft, raw, mode=0o600)
            with refusing(path):
                _forget(draft)
                written = draft.read_bytes()
                if written != raw or encode_backup(decode_backup(written)) != raw:
                    raise DamagedVault(
                        f"{draft} does not hold what was written there",
                        next_step="check the disk, then run the same command again",
                    )
                draft.replace(path)
                sync_folder(self._backups)
        return replace(backup, id=backup_id)

    def load(self, backup_id: str) -> Backup:
        """The backup ``backup_id``; its packages are verified by package() when they are used.

        Raises:
            NoBackup: there is none of that id.
            DamagedVault: its document is not what was written.
        """
        found = read_record(self._path(backup_id)) if ID.fullmatch(backup_id) else None
        if found is None:
            raise NoBackup(f"there is no backup {backup_id!r}", next_step="invoke jobs.vault")
        if isinstance(found, Damaged):
            raise DamagedVault(
                f"the backup {backup_id} cannot be used",
                why=found.why,
                next_step="invoke jobs.vault",
            )
        return found

    def backups(self, cluster: str = "") -> tuple[Backup | Damaged, ...]:
        """All backups, or those of one cluster, newest first.

        What is damaged, or no backup at all, is among them. A backup whose packages are not all
        there counts as damaged; whether their bytes are right, problems() tells.
        """
        return tuple(self._checked(one) for one in self._records(cluster))

    def problems(self, backup: Backup) -> tuple[str, ...]:
        """What is wrong with the packages of ``backup``, a line each; all their bytes are read."""
        found = ((package.uri, self._problem(package.sha256)) for package in backup.packages)
        return tuple(f"{uri} is {problem}" for uri, problem in found if problem)

    def latest(self, cluster: str) -> Backup:
        """The newest complete backup of ``cluster``.

        Raises:
            NoBackup: there is none; the message says what there is.
        """
        found = self.backups(cluster)
        for one in found:
            if isinstance(one, Backup) and one.complete:
                return one
        kinds = [f"{one.id} ({_kind(one)})" for one in found if one.cluster == cluster]
        raise NoBackup(
            f"there is no complete backup of {cluster}",
            why=f"there is only {', '.join(kinds)}" if kinds else "none was ever kept here",
            next_step=f"invoke jobs.{'vault' if kinds else 'backup'} --cluster {cluster}",
        )

    def endings_after(
        self, backup: Backup, *, stopped: Collection[str] = ()
    ) -> Mapping[str, JobStatus]:
        """The jobs that had ended by a newer backup of the same cluster, and as what.

        A job that a still newer one found alive again is not among them, nor one of ``stopped``
        that the same head calls STOPPED: it was stopped in order to be given back.
        """
        ended: dict[str, JobStatus] = {}
        for one in reversed(self._records(backup.cluster)):
            if isinstance(one, Backup) and one.taken > backup.taken:
                ours = stopped if one.session == backup.session else ()
                ended.update(without_stopped(one.ended, ours))
                for job in one.jobs:
                    ended.pop(job.submission_id, None)
        return ended

    def plan_prune(
        self, older_than: timedelta, *, now: datetime, protect: Protect = nothing_protected
    ) -> Pruned:
        """What prune would delete now."""
        return self._prune(older_than, now, protect, delete=False)

    def prune(
        self, older_than: timedelta, *, now: datetime, protect: Protect = nothing_protected
    ) -> Pruned:
        """Delete the backups that are older, then the packages that no backup names, and what
        killed runs have left. Files that are no backups stay, and so do packages they name.

        ``protect`` is asked which of them somebody needs: they stay, and so do newer ones of the
        same cluster, which tell which of their jobs have ended since.

        Raises:
            Locked: a backup is being written.
        """
        with refusing(self.root, action="prune"):
            if not self.root.exists():
                return Pruned()
        with alone(self._lock):
            return self._prune(older_than, now, protect, delete=True)

    def _prune(
        self, older_than: timedelta, now: datetime, protect: Protect, *, delete: bool
    ) -> Pruned:
        known = self._records()
        kept = needed_ids(known, protect)
        aged = [one.id for one in known if one.taken and now - one.taken > older_than]
        leftovers = _listed(self._incoming)
        with refusing(self.root, action="prune"):
            there = [backup_id for backup_id in aged if self._path(backup_id).is_file()]
            old = [backup_id for backup_id in there if backup_id not in kept]
            going = {self._path(backup_id) for backup_id in old}
            staying = [path for path in _listed(self._backups) if path not in going]
            # From the raw bytes: what a damaged or newer document names must stay as well.
            needed = {name for path in staying if path.is_file() for name in named_packages(path)}
            packages = [path for path in _listed(self._packages) if SHA256.fullmatch(path.name)]
            spare = [path for path in packages if path.name not in needed]
            size = sum(path.stat().st_size for path in (*going, *spare))
            if delete:
                # Backups first: no kill in between leaves one without its packages.
                _delete(self._backups, going)
                _delete(self._packages, spare)
                self._sweep()
        return Pruned(
            backups=tuple(old),
            packages=len(spare),
            size=size,
            leftovers=len(leftovers),
            kept={backup_id: kept[backup_id] for backup_id in there if backup_id in kept},
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        for folder in (self.root, self._backups, self._packages, self._incoming):
            ensure_private_folder(folder)
        with shared(self._lock, when_alone=self._sweep):
            yield

    def _sweep(self) -> None:
        """Remove what killed runs have left; nobody else writes now."""
        with refusing(self._incoming):
            for path in _listed(self._incoming):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def _path(self, backup_id: str) -> Path:
        return self._backups / f"{backup_id}{SUFFIX}"

    def _records(self, cluster: str = "") -> list[Backup | Damaged]:
        """What the documents hold, newest first; of no cluster is what does not say of which."""
        paths = [path for path in _listed(self._backups) if not cluster or may_be(path, cluster)]
        found = [one for one in map(read_record, paths) if one is not None]
        return sorted(found, key=lambda one: (one.taken or NEVER, one.id), reverse=True)

    def _checked(self, found: Backup | Damaged) -> Backup | Damaged:
        """``found``, or what its lack of packages makes of it."""
        if isinstance(found, Damaged):
            return found
        for package in found.packages:
            path = self._packages / package.sha256
            with refusing(path, action="read"):
                whole = path.is_file() and path.stat().st_size == package.size
            if not whole:
                why = f"its package {package.sha256[:12]} is not there any more, or not whole"
                return Damaged(id=found.id, why=why, cluster=found.cluster, taken=found.taken)
        return found

    def _problem(self, sha256: str) -> str:
        """What is wrong with the file of a package, or nothing."""
        path = self._packages / sha256
        with refusing(path, action="read"):
            if not SHA256.fullmatch(sha256) or not path.is_file():
                return "not there"
            _forget(path)
            with path.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == sha256
        return "" if same else "damaged"


def _kind(found: Backup | Damaged) -> str:
    if isinstance(found, Damaged):
        return "damaged"
    return "complete" if found.complete else "incomplete"


def _listed(folder: Path) -> list[Path]:
    """What is in ``folder``, which may not be there yet, in the order of its names."""
    with refusing(folder, action="read"):
        return sorted(folder.iterdir()) if folder.exists() else []


def _delete(folder: Path, files: Iterable[Path]) -> None:
    for path in files:
        path.unlink()
    if folder.exists():
        sync_folder(folder)


def _forget(path: Path) -> None:
    """Have the kernel read ``path`` from the disk again, not from memory."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

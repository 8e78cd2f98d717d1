"""Files of the blob cache: locked while in use, checked while read, named once complete."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import ToolFailed
from rayfleet.files import refusing

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

AGAIN = "run the same command again: the layer is compressed anew"


def hold(path: Path) -> int | None:
    """Open ``path`` under a shared lock, which closing releases; None if there is no such file."""
    try:
        held = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    _share(held)
    if is_gone(held):
        os.close(held)
        return None
    return held


def _share(held: int) -> None:
    # Where nothing can be locked, nothing can be cleared away either; see clear().
    with suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_SH)


def is_gone(held: int) -> bool:
    """True when the open file has lost its name: it was cleared away."""
    return os.fstat(held).st_nlink == 0


def clear(path: Path) -> bool:
    """Delete ``path`` unless somebody uses it; True when it is not there any more."""
    try:
        held = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(held)
    return True


class Draft:
    """A file that is being written: unnamed for readers until it is complete.

    It is locked from the start. ``discard`` in the end, whatever came of it; if this run is
    killed, the next one does it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with refusing(folder):
            self._file, self._path = _new_file(folder)

    def write(self, piece: bytes) -> None:
        """Append ``piece``.

        Raises:
            PrerequisiteMissing: the disk is full.
        """
        rest = memoryview(piece)
        with refusing(self._folder):
            while rest:
                rest = rest[os.write(self._file, rest) :]

    def place(self, target: Path) -> int:
        """Name the file ``target`` and return it held; a like file that is there is kept.

        ``target`` says what the content is, so a file of this name and size is the same.

        Raises:
            PrerequisiteMissing: the name cannot be given.
        """
        with refusing(target):
            while not self._linked(target):
                there = hold(target)
                if there is None:
                    continue  # it was cleared away this moment
                if os.fstat(there).st_size == os.fstat(self._file).st_size:
                    return there
                os.close(there)
                self._path.replace(target)
                break
            self._path.unlink(missing_ok=True)
            return os.dup(self._file)

    def replace(self, target: Path) -> None:
        """Put the file in the place of ``target``.

        Raises:
            PrerequisiteMissing: the name cannot be given.
        """
        with refusing(target):
            self._path.replace(target)

    def discard(self) -> None:
        """Let go of the file. Unless it got a name, it is gone."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _linked(self, target: Path) -> bool:
        """Name the file ``target`` unless that name is taken."""
        try:
            # Unlike a rename, a link never takes a file away from a run that holds it.
            target.hardlink_to(self._path)
        except FileExistsError:
            return False
        except OSError:
            self._path.replace(target)  # a file system without hard links
        return True


def _new_file(folder: Path) -> tuple[int, Path]:
    while True:
        file, name = tempfile.mkstemp(dir=folder)
        _share(file)
        if not is_gone(file):  # else another run took it for a leftover
            os.fchmod(file, 0o644)
            return file, Path(name)
        os.close(file)


class Seal:
    """Whether the bytes of a blob were checked in this run; shared by all who read it."""

    def __init__(self, *, checked: bool = False) -> None:
        self._lock = threading.Lock()
        self._taken = checked

    def take(self) -> bool:
        """True for the one reader who has to check the bytes."""
        with self._lock:
            mine, self._taken = not self._taken, True
        return mine

    def give_back(self) -> None:
        """The reader did not get to the end: the next one has to check."""
        with self._lock:
            self._taken = False


class CheckedFile(io.FileIO):
    """A blob being read. Damaged bytes are never given out to the last one.

    Only one reader of a run computes the digest: registries check what they get, and four of
    them would cost four times the hashing.
    """

    def __init__(self, path: Path, *, digest: str, size: int, seal: Seal) -> None:
        self._path, self._digest, self._size, self._seal = path, digest, size, seal
        self._seen = 0
        self._hash = hashlib.sha256()
        self._checks = False
        try:
            super().__init__(path)
        except OSError as error:
            raise ToolFailed(
                f"cannot read {path}", why=error.strerror or str(error), next_step=AGAIN
            ) from error
        if os.fstat(self.fileno()).st_size != size:
            self._refuse("its size is wrong")
        self._checks = seal.take()

    def read(self, size: int | None = -1, /) -> bytes:
        """As of any file; see :meth:`_look`."""
        piece = super().read(-1 if size is None else size)
        self._look(piece)
        return piece

    def readall(self) -> bytes:
        """All that is left."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """As of any file; see :meth:`_look`."""
        count = super().readinto(buffer)
        self._look(memoryview(buffer)[:count])
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As of any file; going back to the start starts the check anew, all else gives it up."""
        self._abandon()
        position = super().seek(offset, whence)
        if position == 0:
            self._seen, self._hash = 0, hashlib.sha256()
            self._checks = self._seal.take()
        return position

    def close(self) -> None:
        """Close the file."""
        self._abandon()
        super().close()

    def _look(self, piece: bytes | memoryview) -> None:
        """Take ``piece`` into the digest; at the end, refuse the blob if that is wrong."""
        if not self._checks:
            return
        self._hash.update(piece)
        self._seen += len(piece)
        if self._seen >= self._size or not piece:
            if f"sha256:{self._hash.hexdigest()}" != self._digest:
                self._refuse("its content is not what was written")
            self._checks = False

    def _abandon(self) -> None:
        if self._checks:
            self._checks = False
            self._seal.give_back()

    def _refuse(self, why: str) -> None:
        """Clear the damaged file away, so that the next run makes it again."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self.close()
        raise ToolFailed(f"the cached layer {self._path} is damaged", why=why, next_step=AGAIN)

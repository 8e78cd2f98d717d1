"""Write files so that a reader never sees half of one."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rayfleet.errors import PrerequisiteMissing


def write_atomically(path: Path, data: str | bytes, *, mode: int = 0o644) -> None:
    """Replace ``path`` with ``data`` (text is UTF-8): whole and synced, or not at all.

    It survives a loss of power once this has returned. Missing parents are made. Secrets take
    ``mode=0o600``; the file never exists with more.

    Raises:
        PrerequisiteMissing: the disk is full or the folder cannot be written.
    """
    raw = data.encode() if isinstance(data, str) else data
    with refusing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as handle:
                handle.write(raw)
                os.fchmod(handle.fileno(), mode)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(temporary, path)  # noqa: PTH105 (atomic rename is the point)
            sync_folder(path.parent)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def ensure_folder(path: Path, *, mode: int = 0o755) -> None:
    """Make the folder ``path`` and its parents unless it is there.

    Raises:
        PrerequisiteMissing: it cannot be made.
    """
    with refusing(path):
        path.mkdir(parents=True, exist_ok=True, mode=mode)


def ensure_private_folder(path: Path) -> None:
    """Make ``path`` a folder that only its owner may enter, whatever the umask; synced.

    Parents that are missing are made as usual. A folder that is open to others is closed.

    Raises:
        PrerequisiteMissing: it cannot be made, or belongs to somebody else.
    """
    with refusing(path):
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.stat().st_mode & 0o777 != 0o700:
            path.chmod(0o700)
        for folder in made:
            sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Make what was created, renamed or removed in the folder ``path`` survive a power cut.

    Raises:
        OSError: the disk refuses.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        # Some network file systems cannot sync a folder: they keep its order themselves.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(folder)


@contextmanager
def refusing(path: Path, *, action: str = "write") -> Iterator[None]:
    """Turn what the file system refuses in the block into an error that names ``path``.

    ``action`` completes "cannot …".

    Raises:
        PrerequisiteMissing: the disk is full, or the place may not be written or read.
    """
    try:
        yield
    except TimeoutError:
        raise  # filelock's own, which is an OSError too
    except OSError as error:
        raise PrerequisiteMissing(
            f"cannot {action} {path}",
            why=error.strerror or str(error),
            next_step="free space or mend the permissions, then run the same command again",
        ) from error

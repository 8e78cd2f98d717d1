"""Write files so that a reader never sees half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rayfleet.errors import PrerequisiteMissing


def write_atomically(path: Path, data: str | bytes, *, mode: int = 0o644) -> None:
    """Replace ``path`` with ``data`` (text is UTF-8): whole and synced, or not at all.

    Missing parents are made. Secrets take ``mode=0o600``; the file never exists with more.

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


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn what the file system refuses in the block into an error that names ``path``.

    Raises:
        PrerequisiteMissing: the disk is full, or the place may not be written.
    """
    try:
        yield
    except TimeoutError:
        raise  # filelock's own, which is an OSError too
    except OSError as error:
        raise PrerequisiteMissing(
            f"cannot write {path}",
            why=error.strerror or str(error),
            next_step="free space or mend the permissions, then run the same command again",
        ) from error

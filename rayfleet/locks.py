"""One run at a time on one thing. A lock ends with its process, however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rayfleet.errors import Locked
from rayfleet.files import ensure_folder, refusing

WAIT = "wait for it to end, then run the same command again"
DYING_SECONDS = 3.0
"""How long the lock of a killed run may outlive it: a child that it was just starting keeps the
file open until it has become another program."""


@contextmanager
def exclusive(state: Path, name: str, *, next_step: str = WAIT) -> Iterator[None]:
    """Hold the lock ``name`` of a state folder while the block runs.

    Raises:
        Locked: another run holds it.
        PrerequisiteMissing: the state folder cannot be written.
    """
    with file_lock(state / "locks" / f"{name}.lock", what=name, next_step=next_step):
        yield


@contextmanager
def file_lock(
    path: Path, *, what: str, timeout: float = DYING_SECONDS, next_step: str = WAIT
) -> Iterator[None]:
    """Hold the lock file ``path``, waiting for it up to ``timeout`` seconds.

    Raises:
        Locked: another run still holds it; ``what`` is what it works on.
        PrerequisiteMissing: the file cannot be made.
    """
    from filelock import FileLock, Timeout

    ensure_folder(path.parent)
    lock = FileLock(path)
    try:
        with refusing(path):
            lock.acquire(timeout=timeout)
    except Timeout as error:
        raise Locked(
            f"{what} is being changed by another run", why=f"it holds {path}", next_step=next_step
        ) from error
    try:
        yield
    finally:
        lock.release()

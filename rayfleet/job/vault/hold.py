"""The lock of a vault: many may write at once, and one may delete while none writes.

flock instead of filelock, which cannot share a lock. It ends with its process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rayfleet.errors import Locked
from rayfleet.files import refusing
from rayfleet.locks import DYING_SECONDS, WAIT
from rayfleet.waiting import DeadlineExceeded, wait_until

PRUNE_SECONDS = 60.0
"""How long a writer waits for one that deletes, which takes seconds."""


@contextmanager
def shared(
    path: Path,
    *,
    when_alone: Callable[[], None] = lambda: None,
    timeout: float = PRUNE_SECONDS,
) -> Iterator[None]:
    """Hold the lock file ``path`` together with other writers while the block runs.

    ``when_alone`` is called first if nobody else holds the lock.

    Raises:
        Locked: somebody deletes, and goes on doing it.
        PrerequisiteMissing: the file cannot be made.
    """
    with _opened(path) as file:
        if _taken(file, fcntl.LOCK_EX):
            when_alone()
        _take(file, fcntl.LOCK_SH, path, timeout, "old backups are being deleted")
        yield


@contextmanager
def alone(path: Path, *, timeout: float = DYING_SECONDS) -> Iterator[None]:
    """Hold the lock file ``path`` while nobody else does.

    Raises:
        Locked: a backup is being written.
        PrerequisiteMissing: the file cannot be made.
    """
    with _opened(path) as file:
        _take(file, fcntl.LOCK_EX, path, timeout, "a backup is being written")
        yield


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    with refusing(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _taken(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take(file: int, how: int, path: Path, seconds: float, what: str) -> None:
    try:
        wait_until(
            lambda: _taken(file, how), what=f"the lock {path}", timeout=seconds, interval=0.05
        )
    except DeadlineExceeded as error:
        raise Locked(what, why=f"another run holds {path}", next_step=WAIT) from error

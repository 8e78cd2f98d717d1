"""A reader of our output that goes away, which for a follower is the normal end."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import BinaryIO


def reader_is_gone(stream: BinaryIO) -> bool:
    """True when ``stream`` is a pipe or socket whose other end was closed."""
    with suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(flags & select.POLLERR for _, flags in poll.poll(0))
    return False


def abandon(stream: BinaryIO) -> None:
    """Let what is still buffered for a reader that is gone vanish quietly at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)

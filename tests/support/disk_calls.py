"""Which calls a block of code makes to bring something onto the disk, in their order.

Nothing but a loss of power shows that an fsync is missing: so the calls themselves are looked at.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

NAMES: Mapping[object, str] = {
    os.fsync: "fsync",
    os.rename: "rename",
    os.replace: "rename",
}


@contextmanager
def recorded_calls(**more: object) -> Iterator[list[str]]:
    """The calls of fsync and rename, and of the functions ``more`` by these names, that this
    thread makes in the block, and the threads that begin in it, in order."""
    names = {**NAMES, **{function: name for name, function in more.items()}}
    calls: list[str] = []

    def record(frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and called in names:
            calls.append(names[called])

    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(record)
    sys.setprofile(record)
    try:
        yield calls
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])  # type: ignore[arg-type]  # None ends it

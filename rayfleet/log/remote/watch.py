"""To be woken when a file grows: inotify, where the kernel and the file system have it.

Sent to the nodes: Python 3.8, the standard library only.
"""

from __future__ import annotations

import os
import select
import struct

GROWN = 0x2
# Renamed from and to, made, removed.
_NAMES_CHANGED = 0x40 | 0x80 | 0x100 | 0x200
_OVERFLOW = 0x4000
_NONBLOCK_CLOEXEC = 0x800 | 0x80000
_EVENT = struct.Struct("iIII")


class Watch:
    """Waits until something happens to the watched files and folders; without inotify, only
    until the time is over."""

    def __init__(self, output: int) -> None:
        self._fd = -1
        self._poll = select.poll()
        # Without a wanted event, it tells only of errors: that nobody reads any more.
        self._poll.register(output, 0)
        self._output = output
        try:
            import ctypes

            library = ctypes.CDLL(None, use_errno=True)
            self._add = library.inotify_add_watch
            self._remove = library.inotify_rm_watch
            self._fd = library.inotify_init1(_NONBLOCK_CLOEXEC)
        except (ImportError, OSError, AttributeError):
            return
        if self._fd >= 0:
            self._poll.register(self._fd, select.POLLIN)

    def file(self, fd: int) -> int:
        """Watch the open file ``fd`` grow; the number of the watch, -1 when it cannot be."""
        return self._watch(f"/proc/self/fd/{fd}", GROWN)

    def folder(self, path: str) -> int:
        """Watch the names in a folder; the number of the watch, -1 when it cannot be."""
        return self._watch(path, _NAMES_CHANGED)

    def forget(self, number: int) -> None:
        """End a watch."""
        if self._fd >= 0 and number >= 0:
            self._remove(self._fd, number)

    def wait(self, seconds: float) -> set[int] | None:
        """The watches to which something happened within the time; None: nobody reads us.

        -1 is among them when the kernel could not tell everything.
        """
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        if any(fd == self._output for fd, _ in ready):
            return None
        return self._events() if ready else set()

    def _watch(self, path: str, events: int) -> int:
        if self._fd < 0:
            return -1
        return int(self._add(self._fd, os.fsencode(path), events))

    def _events(self) -> set[int]:
        happened = set()
        try:
            events = os.read(self._fd, 64 * 1024)
        except BlockingIOError:
            return set()
        at = 0
        while at < len(events):
            number, mask, _, length = _EVENT.unpack_from(events, at)
            happened.add(-1 if mask & _OVERFLOW else number)
            at += _EVENT.size + length
        return happened

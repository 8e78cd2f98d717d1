"""What a node writes: a mark after the greeting of its shell, then frames.

A frame is one line of JSON with the ``size`` of the bytes that follow it. Sent to the nodes:
Python 3.8, the standard library only.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rayfleet.log.remote.cursor import Track

MAGIC = b"\0rayfleet-logs-1\n"
"""What comes before it on stdout is a greeting of the login shell."""

BEAT_SECONDS = 4.0
"""How long nothing may be written before a beat says that the node is there."""


class Frames:
    """Writes frames to a file descriptor, and blocks while nobody reads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ids = 0
        self.written_at = time.monotonic()

    def begin(self) -> None:
        """Say that frames follow."""
        self._write(MAGIC)

    def send(self, kind: str, **fields: object) -> None:
        """Write a frame without bytes."""
        self._write(json.dumps({"kind": kind, **fields, "size": 0}).encode() + b"\n")

    def file(self, track: Track) -> None:
        """Tell of a file and of the place in it where we begin."""
        self._ids += 1
        track.id = self._ids
        self.send(
            "file",
            id=track.id,
            path=track.path,
            name=track.name,
            role=track.role,
            session=track.session,
            device=track.device,
            inode=track.inode,
            offset=track.offset,
            mark=track.marks(),
        )

    def data(self, track: Track, lines: bytes, *, cut: bool = False) -> None:
        """Write lines of a file that was told of, and the place after them."""
        mark = ",".join(map(str, track.marks()))
        header = (
            f'{{"kind":"data","id":{track.id},"end":{track.offset},"mark":[{mark}],'
            f'"cut":{"true" if cut else "false"},"size":{len(lines)}}}\n'
        )
        self._write(header.encode() + lines)

    def done(self, track: Track) -> None:
        """Say that a file was read to its end and that no more is expected."""
        self.send("done", id=track.id)

    def beat(self) -> float:
        """Say that we are there when it is time, and return the seconds to the next time."""
        left = self.written_at + BEAT_SECONDS - time.monotonic()
        if left > 0:
            return left
        self.send("beat")
        return BEAT_SECONDS

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self.written_at = time.monotonic()

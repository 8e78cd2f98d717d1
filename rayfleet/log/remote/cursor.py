"""Where we are in a file, and how the file is recognised again.

Device and inode name a file, but a file may be truncated, its inode given to another one, or its
bytes copied to a new one (logrotate's copytruncate). So a track also knows the checksum of the
bytes before its place, and of the first bytes of the file. Sent to the nodes: Python 3.8, the
standard library only.
"""

from __future__ import annotations

import os
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rayfleet.log.remote.records import Keep

MARK_BYTES = 256
HEADS = (8, 16, 32, 64, 128, 256)
"""How many of a file's first bytes are summed up: a copy may be shorter than what was read."""


class Track:
    """The place in one file up to which everything was read.

    ``name`` is what people call it: relative to the logs folder and without the number of a
    rotated file. ``checksum`` is of the ``mark`` bytes before ``offset``, ``heads`` are those of
    the first bytes of the file, as many of :data:`HEADS` as were read.
    ``done``: it has been rotated away or its session is over, and it was read to its end.
    """

    __slots__ = (
        "checksum", "device", "done", "fd", "final", "heads", "hold", "hold_at", "id", "inode",
        "keep", "mark", "name", "offset", "path", "pending", "quiet", "role", "seen", "session",
        "told", "watch",
    )  # fmt: skip

    def __init__(self, path: str, device: int, inode: int, session: str) -> None:
        self.path, self.device, self.inode, self.session = path, device, inode, session
        self.name = self.role = ""
        self.offset = self.mark = self.checksum = 0
        self.heads: list[int] = []
        self.done = False
        self.id = 0
        self.fd = -1
        self.watch = -1
        # Something may have been written since it was read; nothing more will be.
        self.pending = self.final = False
        self.quiet = 0.0
        self.keep: Keep | None = None
        self.hold, self.hold_at = 0.0, -1
        # Size and time of the file when its mark was last found to be right.
        self.seen: tuple[int, int] | None = None
        # When the other side was last told of the offset.
        self.told = 0.0

    @property
    def identity(self) -> tuple[int, int]:
        """What the file system calls the file."""
        return self.device, self.inode

    def place(self, fd: int, offset: int) -> None:
        """Say that everything before ``offset`` was read, or is not wanted."""
        self.offset = offset
        self.mark = min(MARK_BYTES, offset)
        self.checksum = crc32(os.pread(fd, self.mark, offset - self.mark))
        self._remember(os.pread(fd, self.mark, 0))

    def advance(self, block: bytes, end: int) -> None:
        """Move on to ``end`` in ``block``, which begins ``mark`` bytes before the offset."""
        old = self.mark
        self.offset += end - old
        self.mark = min(MARK_BYTES, end)
        self.checksum = crc32(block[end - self.mark : end])
        if self.offset == end and len(self.heads) < len(HEADS):
            self._remember(block[: min(MARK_BYTES, end)])

    def confirmed(self, fd: int) -> bool:
        """True when the bytes before the offset, and the first ones, are those that were read."""
        before = os.pread(fd, self.mark, self.offset - self.mark)
        if len(before) != self.mark or crc32(before) != self.checksum:
            return False
        return not self.heads or self._begins_like(fd, len(self.heads))

    def copied_to(self, fd: int, size: int, *, truncated: bool) -> int:
        """Where to go on in a file of ``size`` bytes if it is a copy of this one, else -1.

        ``truncated``: this one was found to be truncated just now, so there must be a copy of it
        where there is any, and less has to be the same to believe that this is it.
        """
        known = sum(length <= size for length in HEADS[: len(self.heads)])
        if known and not self._begins_like(fd, known):
            return -1
        if size < self.offset:
            # The copy was made before our last look: all of it was read.
            return size if known and truncated else -1
        if not self.mark or (self.mark < MARK_BYTES and not truncated):
            return -1
        before = os.pread(fd, self.mark, self.offset - self.mark)
        return self.offset if crc32(before) == self.checksum else -1

    def marks(self) -> list[int]:
        """The checksums as a cursor carries them."""
        return [self.mark, self.checksum, *self.heads]

    def close(self) -> None:
        """Give the file descriptor back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _remember(self, head: bytes) -> None:
        self.heads = [crc32(head[:length]) for length in HEADS if length <= len(head)]

    def _begins_like(self, fd: int, known: int) -> bool:
        return crc32(os.pread(fd, HEADS[known - 1], 0)) == self.heads[known - 1]


def from_cursor(cursor: dict[str, Any]) -> Track:
    """The track that a cursor describes; raises KeyError, ValueError, TypeError for nonsense."""
    track = Track(
        str(cursor["path"]), int(cursor["device"]), int(cursor["inode"]), str(cursor["session"])
    )
    track.offset = int(cursor["offset"])
    marks = [int(number) for number in cursor["mark"]] or [0, 0]
    track.mark, track.checksum = marks[:2]
    track.heads = marks[2 : 2 + len(HEADS)]
    track.done = bool(cursor.get("done"))
    if not 0 <= track.mark <= min(MARK_BYTES, track.offset):
        raise ValueError("a mark before the beginning of its file")
    return track

"""Where we are in the files of one node, kept on our side while connections come and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rayfleet.log.frames import Data, Opened

DONE_KEPT = 1000
"""Files that were read to their end and rotated away; more of them are forgotten, oldest first.
Ray keeps 5 backups of a log (RAY_ROTATION_BACKUP_COUNT)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a file was read. ``mark`` is the count and the CRC-32 of the bytes before
    ``offset``: device and inode alone do not tell a file from the next one on the same inode."""

    path: str
    session: str
    device: int
    inode: int
    offset: int
    mark: tuple[int, int]
    done: bool = False

    def request(self) -> Mapping[str, Any]:
        """The cursor as the program on the node takes it."""
        return {
            "path": self.path,
            "session": self.session,
            "device": self.device,
            "inode": self.inode,
            "offset": self.offset,
            "mark": list(self.mark),
            "done": self.done,
        }


class Cursors:
    """The cursors of one node. A file has one from the first position that is told of it on."""

    def __init__(self) -> None:
        self._by_inode: dict[tuple[int, int], Cursor] = {}
        self._opened: dict[int, Opened] = {}

    def connected(self) -> None:
        """A new program runs: it gives new numbers to the files."""
        self._opened.clear()

    def opened(self, file: Opened) -> None:
        """The program begins to read ``file``, or goes on with it."""
        self._opened[file.id] = file
        known = self._by_inode.get((file.device, file.inode))
        # What is done is not read again, so this is another file on the same inode.
        if known and known.done:
            del self._by_inode[file.device, file.inode]

    def file(self, number: int) -> Opened:
        """The file that the running program calls ``number``; KeyError without one."""
        return self._opened[number]

    def start(self, data: Data) -> int:
        """Where the lines of ``data`` begin, as far as is known."""
        file = self._opened[data.id]
        known = self._by_inode.get((file.device, file.inode))
        if known and known.offset <= data.end:
            return known.offset
        return max(data.end - len(data.lines), 0)

    def moved(self, data: Data) -> None:
        """What ``data`` holds is taken care of."""
        file = self._opened[data.id]
        # Taken out first, so that the order is that of the last moves.
        self._by_inode.pop((file.device, file.inode), None)
        self._by_inode[file.device, file.inode] = Cursor(
            path=file.path,
            session=file.session,
            device=file.device,
            inode=file.inode,
            offset=data.end,
            mark=data.mark,
        )

    def done(self, number: int) -> None:
        """The file that the running program calls ``number`` was read to its end, for good."""
        file = self._opened.pop(number)
        key = (file.device, file.inode)
        known = self._by_inode.pop(key, None)
        # Nothing tells an empty file from the next one on its inode, and it costs nothing.
        if known and known.offset:
            self._by_inode[key] = replace(known, done=True)

    def known(self) -> list[Cursor]:
        """All cursors, in the order in which they moved last."""
        done = [key for key, cursor in self._by_inode.items() if cursor.done]
        for key in done[:-DONE_KEPT]:
            del self._by_inode[key]
        return list(self._by_inode.values())

"""Where we are in the files of one node, kept on our side while connections come and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rayfleet.log.frames import Data, Opened

DONE_KEPT = 1000
"""Files that were read to their end and rotated away; more of them are forgotten, oldest first.
Ray keeps 5 backups of a log (RAY_ROTATION_BACKUP_COUNT)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a file was read. ``mark`` are the checksums by which the program on the node
    recognises it: device and inode alone do not tell it from the next file on its inode."""

    path: str
    session: str
    device: int
    inode: int
    offset: int
    mark: tuple[int, ...]
    done: bool = False

    def request(self) -> Mapping[str, Any]:
        """The cursor as the program on the node takes it."""
        return asdict(self)


class Cursors:
    """The cursors of one node, by device and inode.

    ``begun``: the node was read. ``session`` is the session of Ray that was read last.
    """

    def __init__(self) -> None:
        self.begun = False
        self.session = ""
        self._by_inode: dict[tuple[int, int], Cursor] = {}
        self._opened: dict[int, Opened] = {}
        self._host_keys: dict[str, str] = {}

    def entered(self, host_key: str) -> bool:
        """Whether the node with this ``host_key`` (kind and blob) is the machine that was read.

        Of another machine nothing was read, whatever its files begin with: the cursors go, the
        name of the session stays. One machine may show keys of several kinds.
        """
        kind, _, blob = host_key.partition(" ")
        same = self._host_keys.get(kind, blob) == blob
        if not same:
            self._by_inode.clear()
            self._host_keys.clear()
        self._host_keys[kind] = blob
        return same

    def connected(self) -> None:
        """A new program runs: it gives new numbers to the files."""
        self._opened.clear()

    def greeted(self, session: str) -> None:
        """``session`` is the latest on the node."""
        self.session = self.session or session

    def position(self) -> Mapping[str, Any]:
        """Where a program is to go on, as it takes it."""
        return {
            "first": not self.begun,
            "session": self.session,
            "cursors": [cursor.request() for cursor in self.known()],
        }

    def opened(self, file: Opened) -> None:
        """The program begins to read ``file``, or goes on with it."""
        self._opened[file.id] = file
        self.session = file.session or self.session
        self._place(file, file.offset, file.mark)

    def file(self, number: int) -> Opened:
        """The file that the running program calls ``number``; KeyError without one."""
        return self._opened[number]

    def start(self, data: Data) -> int:
        """Where the lines of ``data`` begin, those that were filtered out included."""
        file = self._opened[data.id]
        return min(self._by_inode[file.device, file.inode].offset, data.end)

    def moved(self, data: Data) -> None:
        """What ``data`` holds is taken care of."""
        self._place(self._opened[data.id], data.end, data.mark)

    def done(self, number: int) -> None:
        """The file that the running program calls ``number`` was read to its end, for good."""
        file = self._opened.pop(number)
        key = (file.device, file.inode)
        cursor = self._by_inode.pop(key)
        # Nothing tells an empty file from the next one on its inode, and it costs nothing.
        if cursor.offset:
            self._by_inode[key] = replace(cursor, done=True)

    def known(self) -> list[Cursor]:
        """All cursors, in the order in which they moved last."""
        done = [key for key, cursor in self._by_inode.items() if cursor.done]
        for key in done[:-DONE_KEPT]:
            del self._by_inode[key]
        return list(self._by_inode.values())

    def _place(self, file: Opened, offset: int, mark: tuple[int, ...]) -> None:
        key = (file.device, file.inode)
        # Taken out first, so that the order is that of the last moves.
        self._by_inode.pop(key, None)
        self._by_inode[key] = Cursor(
            path=file.path,
            session=file.session,
            device=file.device,
            inode=file.inode,
            offset=offset,
            mark=mark,
        )

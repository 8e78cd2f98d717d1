"""The program of a node, driven step by step, and the operator's side of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rayfleet.log import frames
from rayfleet.log.cursors import Cursors
from rayfleet.log.frames import FrameReader
from rayfleet.log.remote.frames import Frames
from rayfleet.log.remote.main import Node
from rayfleet.log.remote.request import Request


class NoWatch:
    """A kernel without inotify."""

    def file(self, fd: int) -> int:
        return -1

    def folder(self, path: str) -> int:
        return -1

    def forget(self, number: int) -> None:
        pass

    def wait(self, seconds: float) -> set[int] | None:
        return set()


def request(root: Path, *globs: str, **fields: Any) -> dict[str, Any]:
    """What is asked of a node: everything from the start, and to follow, if not said otherwise."""
    return {
        "root": str(root),
        "patterns": [{"glob": glob, "role": "some"} for glob in globs],
        "follow": True,
        "tail": -1,
        "since": None,
        "until": None,
        "include": [],
        "exclude": [],
        "level": None,
        "first": True,
        "session": "",
        "cursors": [],
        "poll_seconds": 0.5,
        "chunk_bytes": 256 * 1024,
        **fields,
    }


class Operator:
    """Keeps lines and cursors of a node while programs there come and go."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.received: dict[tuple[str, str], list[str]] = {}
        self.said: list[str] = []
        self.kinds: list[str] = []
        self.now = 1000.0
        self._cursors = Cursors()
        self._session = ""
        self._node: Node | None = None
        self._output = -1

    def connect(self) -> None:
        """Start the program where it was."""
        cursors = [cursor.request() for cursor in self._cursors.known()]
        self._cursors.connected()
        fields = {**self.fields, "cursors": cursors, "session": self._session}
        fields["first"] = "CaughtUp" not in self.kinds
        self._output = os.memfd_create("output")
        self._frames = Frames(self._output)
        self._node = Node(Request(fields), self._frames, NoWatch())
        self._node.begin(self.now)

    def turns(self, most: int) -> bool:
        """Let the program work; True when it has nothing to do any more."""
        assert self._node
        idle = any(not self._node.turn(self.now) for _ in range(most))
        if idle:
            self._frames.send("caught-up")
        return idle

    def wait(self, turns: int) -> None:
        """Let time pass until the program looks for files again, and let it work."""
        if turns:
            self.now += self.fields["poll_seconds"]
            self.turns(turns)

    def lose(self, part: float) -> None:
        """The connection is cut: only ``part`` of what the program wrote arrives."""
        assert self._node
        written = os.pread(self._output, 1 << 30, 0)
        os.close(self._output)
        self._node.close()
        self._node = None
        self._take(written[: int(len(written) * part)])

    def settle(self) -> None:
        """Let the program work until nothing more can come, a minute later."""
        for seconds in (0.3, 0.7, 1.0, 6.0, 1.0, 6.0, 1.0, 31.0, 1.0):
            self.now += seconds
            assert self.turns(20_000), "the program finds no end"

    def _take(self, written: bytes) -> None:
        reader = FrameReader("node")
        for frame in reader.feed(b"\0rayfleet-logs-1\n" + written):
            self.kinds.append(type(frame).__name__)
            match frame:
                case frames.Hello():
                    self._session = self._session or frame.session
                case frames.Opened():
                    self._session = frame.session or self._session
                    self._cursors.opened(frame)
                case frames.Data():
                    file = self._cursors.file(frame.id)
                    lines = self.received.setdefault((file.session, file.name), [])
                    lines += frame.lines.decode(errors="replace").split("\n")[:-1]
                    self._cursors.moved(frame)
                case frames.Done():
                    self._cursors.done(frame.id)
                case frames.Said():
                    self.said.append(frame.text)

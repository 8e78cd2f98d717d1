"""Take apart what the program on a node writes: a greeting, a mark, then frames.

A frame is a line of JSON, and as many bytes as its ``size`` says. What comes is checked and
bounded: a head that writes nonsense costs an error, not our memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rayfleet.errors import ToolFailed
from rayfleet.harmless import harmless
from rayfleet.log.remote.frames import MAGIC

GREETING_BYTES = 256 * 1024
HEADER_BYTES = 64 * 1024
BODY_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The program runs. ``utc_offset``: seconds that the node's clock is ahead of UTC."""

    utc_offset: int
    session: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A file is read from ``offset`` on, and is from now on called ``id``; ``name`` is what
    people read. ``mark`` are checksums by which the program recognises the file."""

    id: int
    path: str
    name: str
    role: str
    session: str
    device: int
    inode: int
    offset: int
    mark: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Whole lines of a file, up to ``end``, and the checksums there. Without lines only the
    position moves. ``cut``: see :class:`rayfleet.log.output.sink.Batch`."""

    id: int
    end: int
    mark: tuple[int, ...]
    cut: bool
    lines: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The file was rotated away, or its session is over, and it was read to its end."""

    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A notice for the operator."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Nothing new; the program lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """All files were read to their end for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """All that was asked for has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The program cannot do it: ``reason`` is no-files, no-ray or bad-request."""

    reason: str
    text: str


Frame = Hello | Opened | Data | Done | Said | Beat | CaughtUp | Finished | Refused


class FrameReader:
    """From chunks of bytes to frames; keeps the one that is not whole yet."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 0
        self._greeted = False
        self._files: set[int] = set()

    @property
    def greeted(self) -> bool:
        """Whether the program has begun to write."""
        return self._greeted

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that ``chunk`` completes. All of them must be taken before the next chunk.

        Raises:
            ToolFailed: these are no frames.
        """
        self._parts.append(chunk)
        self._have += len(chunk)
        if self._have < self._need:
            return
        buffer = b"".join(self._parts)
        at = 0 if self._greeted else self._skip_greeting(buffer)
        while self._greeted and (found := self._frame(buffer, at)):
            at, frame = found
            yield frame
        self._parts = [buffer[at:]]
        self._have = len(buffer) - at
        self._need -= at

    def _skip_greeting(self, buffer: bytes) -> int:
        before, mark, _ = buffer.partition(MAGIC)
        if len(before) > GREETING_BYTES:
            raise ToolFailed(f"{self._node}: its login shell says too much")
        self._greeted = bool(mark)
        return len(before) + len(mark) if mark else 0

    def _frame(self, buffer: bytes, at: int) -> tuple[int, Frame] | None:
        """The frame at ``at`` and where it ends; None when it is not whole."""
        line_end = buffer.find(b"\n", at, at + HEADER_BYTES)
        if line_end < 0:
            if len(buffer) - at >= HEADER_BYTES:
                raise self._nonsense()
            self._need = 0
            return None
        try:
            fields = json.loads(buffer[at:line_end])
            kind, size = fields["kind"], int(fields["size"])
            body = line_end + 1
            if not 0 <= size <= BODY_BYTES:
                raise ValueError(size)
            if len(buffer) < body + size:
                self._need = body + size
                return None
            frame = _PARSERS[kind](fields, buffer[body : body + size])
            self._check(frame)
        except (ValueError, KeyError, TypeError) as error:
            raise self._nonsense() from error
        return body + size, frame

    def _check(self, frame: Frame) -> None:
        """Raise ValueError for a frame about a file that is not being read."""
        match frame:
            case Opened():
                self._files.add(frame.id)
            case Data() | Done() if frame.id not in self._files:
                raise ValueError(frame.id)
            case Done():
                self._files.discard(frame.id)

    def _nonsense(self) -> ToolFailed:
        return ToolFailed(f"{self._node}: what came is not of the program that reads the logs")


Fields = Mapping[str, Any]


def _opened(fields: Fields, _: bytes) -> Opened:
    return Opened(
        id=int(fields["id"]),
        path=str(fields["path"]),
        name=_readable(fields["name"]),
        role=_readable(fields["role"]),
        session=str(fields["session"]),
        device=int(fields["device"]),
        inode=int(fields["inode"]),
        offset=int(fields["offset"]),
        mark=_mark(fields),
    )


def _data(fields: Fields, lines: bytes) -> Data:
    if lines and not lines.endswith(b"\n"):
        raise ValueError("no whole lines")
    return Data(
        id=int(fields["id"]),
        end=int(fields["end"]),
        mark=_mark(fields),
        cut=bool(fields["cut"]),
        lines=lines,
    )


def _mark(fields: Fields) -> tuple[int, ...]:
    return tuple(int(number) for number in fields["mark"])


def _hello(fields: Fields, _: bytes) -> Hello:
    return Hello(
        utc_offset=int(fields["utc_offset"]),
        session=str(fields["session"]),
        host=_readable(fields["host"]),
    )


_PARSERS: Mapping[str, Callable[[Fields, bytes], Frame]] = {
    "hello": _hello,
    "file": _opened,
    "data": _data,
    "done": lambda fields, _: Done(id=int(fields["id"])),
    "say": lambda fields, _: Said(text=_readable(fields["text"])),
    "beat": lambda _fields, _: Beat(),
    "caught-up": lambda _fields, _: CaughtUp(),
    "end": lambda _fields, _: Finished(),
    "error": lambda fields, _: Refused(
        reason=str(fields["reason"]), text=_readable(fields["text"])
    ),
}


def _readable(value: object) -> str:
    """``value`` for a terminal: a name on the node may hold anything."""
    return harmless(str(value).encode(errors="surrogateescape")).decode().replace("\n", " ")

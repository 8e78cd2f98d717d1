"""What a source tells the writer, in the order in which it happened."""

from __future__ import annotations

from dataclasses import dataclass

from rayfleet.errors import RayfleetError
from rayfleet.log.output.sink import Batch

OVERHEAD_BYTES = 512  # of an event, beside its text


class News:
    """Something that never waits for room and is never dropped."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """How many bytes of memory it counts for."""
        return 0

    @property
    def lines(self) -> int:
        """How many lines would be lost with it."""
        return 0


@dataclass(frozen=True, slots=True)
class Lines(News):
    """Lines to write."""

    batch: Batch

    @property
    def size(self) -> int:
        """How much memory they take, about."""
        return len(self.batch.lines) + OVERHEAD_BYTES

    @property
    def lines(self) -> int:
        """How many they are."""
        return self.batch.lines.count(b"\n")


@dataclass(frozen=True, slots=True)
class Notice(News):
    """Something to tell the operator."""

    text: str

    @property
    def size(self) -> int:
        """How much memory it takes, about: a node may say a lot."""
        return len(self.text) + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Reached(News):
    """The node is read."""


@dataclass(frozen=True, slots=True)
class Trouble(News):
    """The node could not be read at first; it is tried again."""

    error: RayfleetError


@dataclass(frozen=True, slots=True)
class CaughtUp(News):
    """What was in the files has come."""


@dataclass(frozen=True, slots=True)
class Ended(News):
    """Nothing more comes of the node: all was read, or ``error`` is why."""

    error: BaseException | None


Event = Lines | Notice | Reached | Trouble | CaughtUp | Ended

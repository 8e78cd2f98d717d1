"""Where lines of logs go: batches of whole lines, and the protocol of what takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from rayfleet.log.output.pipe import reader_is_gone

if TYPE_CHECKING:
    from rayfleet.cluster.heads import Target


class Enough(Exception):
    """A sink has all that was asked for; the run ends well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Whole lines of one file of one node, each ending with a newline.

    ``node`` is ``head`` or a worker's id. The bytes were at ``start`` to ``end`` of the file, with
    holes where lines were filtered out. ``utc_offset``: seconds that the node's clock is ahead
    of UTC. ``cut``: the last line is a piece of a longer one, and its newline is ours.
    """

    cluster: str
    file: str
    lines: bytes
    node: str = "head"
    region: str = ""
    role: str = ""
    start: int = 0
    end: int = 0
    utc_offset: int = 0
    cut: bool = False

    @property
    def source(self) -> tuple[str, str, str]:
        """What the lines of one file have in common: cluster, node and file."""
        return self.cluster, self.node, self.file

    @property
    def unbroken(self) -> bool:
        """True when nothing was filtered out, so that the offset of each line is known."""
        # The newline of a piece, or of a last line without one, is ours.
        return self.end - self.start in (len(self.lines), len(self.lines) - 1)


class Sink(Protocol):
    """Where batches go. All is called from one thread.

    Any of them may raise BrokenPipeError when nobody reads any more, Enough when all that was
    asked for was seen, and RayfleetError to end the run with it.
    """

    def write(self, batch: Batch) -> None:
        """Take a batch."""

    def idle(self) -> None:
        """Called at least every 100 ms while nothing comes."""

    def joined(self, target: Target) -> None:
        """``target`` joined while the others were read; its batches come from now on."""

    def caught_up(self, target: Target) -> None:
        """What was in the files of ``target`` when it was first read has come."""

    def ended(self, target: Target) -> None:
        """Nothing more comes from ``target``."""

    def close(self) -> None:
        """Write what is held back; nothing is called after it."""


class Direct:
    """A sink that writes to ``out`` at once; it holds nothing back."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def idle(self) -> None:
        """Raises BrokenPipeError when nobody reads any more."""
        if reader_is_gone(self._out):
            raise BrokenPipeError

    def joined(self, target: Target) -> None:
        """Nothing depends on it."""

    def caught_up(self, target: Target) -> None:
        """Nothing depends on it."""

    def ended(self, target: Target) -> None:
        """Nothing depends on it."""

    def close(self) -> None:
        """Nothing is held back."""

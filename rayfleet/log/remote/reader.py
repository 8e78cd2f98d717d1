"""Whole lines out of one file, and the place to begin at.

Sent to the nodes: Python 3.8, the standard library only.
"""

from __future__ import annotations

import os
from zlib import crc32

from rayfleet.log.remote.records import begins, open_traceback, stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rayfleet.log.remote.cursor import Track

LONGEST = 1024 * 1024
"""Bytes of a line; a longer one is given out in pieces."""

HOLD_SECONDS = 0.2
"""How long a traceback may stay unfinished at the end of a file."""

_LINES_LOOKED_AT = 100
_BLOCK = 64 * 1024


class Rewritten(Exception):
    """What is before our place in the file is not what was read."""


class Piece:
    """Whole lines that were read. ``end`` is the offset in ``block`` after them.

    ``cut``: the last one is a piece of a longer line. ``more``: the file goes on.
    """

    __slots__ = ("block", "cut", "end", "lines", "more")

    def __init__(self, block: bytes, lines: bytes, end: int, cut: bool, more: bool) -> None:
        self.block, self.lines, self.end, self.cut, self.more = block, lines, end, cut, more


def read(track: Track, fd: int, want: int, *, final: bool, now: float) -> Piece | None:
    """The next lines of a file, about ``want`` bytes; None when there is no whole line yet.

    ``final``: a last line without a newline is not waited for. ``now``: seconds of any clock,
    for unfinished tracebacks; ``track.hold`` says then when to look again.

    Raises:
        Rewritten: the file was truncated, or is another one.
    """
    start = track.mark
    block = os.pread(fd, start + want, track.offset - start)
    if len(block) < start or crc32(block[:start]) != track.checksum:
        raise Rewritten
    full = len(block) == start + want
    end = block.rfind(b"\n", start) + 1
    if full:
        if end:
            end = _record_end(block, start, end)
            return Piece(block, block[start:end], end, False, True)
        if want < LONGEST:
            return read(track, fd, LONGEST, final=final, now=now)
        end = _character_end(block)
        return Piece(block, block[start:end] + b"\n", end, True, True)
    if final:
        if len(block) == start:
            return None
        ending = b"" if end == len(block) else b"\n"
        return Piece(block, block[start:] + ending, len(block), False, False)
    if end:
        end = _held(track, block, start, end, now)
    return Piece(block, block[start:end], end, False, False) if end > start else None


def _record_end(block: bytes, start: int, end: int) -> int:
    """The end of the last record that is whole for sure, where more follows."""
    line = end
    for _ in range(_LINES_LOOKED_AT):
        below = line
        line = block.rfind(b"\n", start, below - 1) + 1
        if line <= start:
            break
        if begins(block[line:below]):
            return line
    return end


def _held(track: Track, block: bytes, start: int, end: int, now: float) -> int:
    unfinished = open_traceback(block[start:end])
    if unfinished < 0:
        track.hold, track.hold_at = 0.0, -1
        return end
    at = track.offset + unfinished
    if track.hold_at != at:
        track.hold, track.hold_at = now + HOLD_SECONDS, at
    if now < track.hold:
        return start + unfinished
    track.hold, track.hold_at = 0.0, -1
    return end


def _character_end(block: bytes) -> int:
    """The end of the last whole character of UTF-8 (or of ``block``, where it is none)."""
    for back in range(1, 4):
        byte = block[-back]
        if byte >= 0xC0:
            return len(block) - back
        if byte < 0x80:
            break
    return len(block)


def tail_start(fd: int, size: int, count: int) -> tuple[int, int]:
    """Where the last ``count`` lines begin, and how many there are; a begun line is one."""
    if not size:
        return 0, 0
    begun = os.pread(fd, 1, size - 1) != b"\n"
    # A line begins after a newline, so one newline more than lines; a begun line has none.
    wanted = max(1, count if begun else count + 1)
    position, found = size, 0
    while position > 0:
        start = max(0, position - _BLOCK)
        block = os.pread(fd, position - start, start)
        at = block.rfind(b"\n")
        while at >= 0:
            found += 1
            if found == wanted:
                return start + at + 1, count
            at = block.rfind(b"\n", 0, at)
        position = start
    return 0, min(count, found + begun)


def since_start(fd: int, size: int, since: float, utc_offset: int) -> int:
    """Where lines from ``since`` on can begin, at a line's beginning; its time goes upwards."""
    low, high = 0, size
    while high - low > _BLOCK:
        middle = (low + high) // 2
        when = _first_time(os.pread(fd, _BLOCK, middle), utc_offset)
        if when is not None and when < since:
            low = middle
        else:
            high = middle
    if low == 0:
        return 0
    return low + os.pread(fd, LONGEST, low).find(b"\n") + 1


def _first_time(block: bytes, utc_offset: int) -> float | None:
    for line in block.split(b"\n")[1:]:
        when = stamp(line, utc_offset)
        if when is not None:
            return when
    return None

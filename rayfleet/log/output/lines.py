"""What is known of each single line, for outputs that tell it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from rayfleet.log.output.sink import Batch
from rayfleet.log.remote.records import level, printed, records, stamp

LEVEL_NAMES = {5: "TRACE", 10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR", 50: "CRITICAL"}
_SECONDS_KEPT = 4096


class Line(NamedTuple):
    """``text`` has no newline. ``time`` is in ISO 8601, ``level`` a name of Python's logging.

    ``offset`` is None where lines before it were filtered out. ``cut``: a piece of a longer line.
    """

    text: bytes
    time: str | None
    level: str | None
    offset: int | None
    cut: bool


class Lines:
    """Takes batches apart; a line without a time or level has those of its record."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], tuple[str | None, str | None]] = {}
        self._seconds: dict[tuple[int, int], tuple[str, str]] = {}

    def __call__(self, batch: Batch) -> Iterator[Line]:
        """The lines of ``batch``, in order."""
        alone = printed(batch.file)
        known = not alone and batch.source in self._last
        time, name = self._last[batch.source] if known else (None, None)
        offset = batch.start if batch.unbroken else None
        left = len(batch.lines)
        for record in records(batch.lines, alone):
            when, number = stamp(record, batch.utc_offset), level(record)
            if when is not None or alone or not known:
                time = None if when is None else self._iso(when, batch.utc_offset)
                name = LEVEL_NAMES.get(number) if number else None
            left -= len(record)
            pieces = record.split(b"\n")
            pieces.pop()
            for position, text in enumerate(pieces, 1):
                cut = batch.cut and not left and position == len(pieces)
                yield Line(text, time, name, offset, cut)
                if offset is not None:
                    offset += len(text) + 1
            known = known or (when is not None and not alone)
        if known:
            self._last[batch.source] = time, name

    def _iso(self, when: float, utc_offset: int) -> str:
        second, milli = divmod(round(when * 1000), 1000)
        known = self._seconds.get((second, utc_offset))
        if known is None:
            known = _parts(second, utc_offset)
            if len(self._seconds) >= _SECONDS_KEPT:
                self._seconds.clear()
            self._seconds[second, utc_offset] = known
        return f"{known[0]}.{milli:03d}{known[1]}"


def _parts(second: int, utc_offset: int) -> tuple[str, str]:
    there = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    there = there.astimezone(timezone(timedelta(seconds=utc_offset)))
    text = there.isoformat()
    return text[:19], text[19:]

"""Moments from the command line: so long ago, or a date and time."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from rayfleet.errors import UsageError

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_AGO = re.compile(r"(?:\d{1,6}d)?(?:\d{1,6}h)?(?:\d{1,6}m)?(?:\d{1,6}s)?")
_PART = re.compile(r"(\d+)([dhms])")


def parse_moment(text: str, flag: str, *, now: float) -> float:
    """The moment, in seconds since the epoch, that was given to ``flag``.

    It is a duration before ``now`` such as ``5m``, ``1h30m`` or ``2d``, or a time: RFC 3339,
    ``2026-11-21 20:00``, ``2026-11-21`` or ``20:00`` (today). A time without a zone is one of this
    machine's zone.

    Raises:
        UsageError: it is neither.
    """
    text = text.strip()
    if text and text.isascii() and _AGO.fullmatch(text):
        return now - sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text))
    try:
        return _time(text, now).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{flag} {text!r} is no time",
            why="write how long ago, such as 5m, 1h30m or 2d, or a time such as 20:00,"
            " '2026-11-21 20:00' or 2026-11-21T20:00:00Z",
        ) from error


def parse_seconds(text: str, flag: str, *, longest: float) -> float:
    """A duration such as ``2s`` or ``500ms`` that was given to ``flag``, in seconds.

    Raises:
        UsageError: it is none, or more than ``longest`` seconds.
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s|m)", text) if text.isascii() else None
    seconds = float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0}[found[2]] if found else 0.0
    if not 0 < seconds <= longest:
        raise UsageError(f"{flag} {text!r} is no duration such as 2s or 500ms, up to {longest:g} s")
    return seconds


def _time(text: str, now: float) -> datetime:
    today = datetime.fromtimestamp(now).astimezone()
    if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", text):
        at = time.fromisoformat(text.zfill(len(text) + (text[1] == ":")))
        # From the parts, so that a change of the clock on that day is heeded.
        return datetime.combine(today.date(), at).astimezone()
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        raise ValueError(text)
    moment = datetime.fromisoformat(text)
    if not timedelta(0) <= moment.replace(tzinfo=None) - datetime(1970, 1, 2):
        raise ValueError(text)
    return moment if moment.tzinfo else moment.astimezone()

"""Numbers and times from the command line. Invoke would turn a bad one into a traceback, so
tasks take text and read it here."""

from __future__ import annotations

import re
from datetime import timedelta

from rayfleet.errors import UsageError

AGE = re.compile(r"([1-9][0-9]{0,4})([dhm])")
"""``30d``, ``12h``, ``90m``: how ages are written, in the fleet file too."""

DURATION = re.compile(r"([0-9]{1,5})([smh])")
"""``30s``, ``10m``, ``2h``: how durations are written, in the fleet file too."""

_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_number(text: str, flag: str, *, smallest: float) -> float:
    """Read a number that was given to ``flag``.

    Raises:
        UsageError: it is no finite number of at least ``smallest``.
    """
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not smallest <= number < float("inf"):
        raise UsageError(f"{flag} {text}: not a number of at least {smallest:g}")
    return number


def parse_count(text: str, flag: str, *, smallest: int = 1) -> int:
    """Read a whole number that was given to ``flag``.

    Raises:
        UsageError: it is no whole number of at least ``smallest``.
    """
    if not (text.isascii() and text.isdigit() and int(text) >= smallest):
        raise UsageError(f"{flag} {text}: not a whole number of at least {smallest}")
    return int(text)


def age_of(text: str) -> timedelta | None:
    """Read an age such as ``30d``; None if it is none."""
    found = AGE.fullmatch(text)
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else None


def parse_age(text: str, flag: str) -> timedelta:
    """Read an age that was given to ``flag``.

    Raises:
        UsageError: it is none.
    """
    age = age_of(text)
    if age is None:
        raise UsageError(f"{flag} {text}: not an age such as 30d, 12h or 90m")
    return age


def duration_of(text: str) -> float | None:
    """Read a duration such as ``10m`` in seconds; None if it is none. Zero is ``0s``."""
    found = DURATION.fullmatch(text)
    return int(found[1]) * _SECONDS[found[2]] if found else None


def parse_duration(text: str, flag: str) -> float:
    """Read a duration in seconds that was given to ``flag``.

    Raises:
        UsageError: it is none.
    """
    seconds = duration_of(text)
    if seconds is None:
        raise UsageError(f"{flag} {text}: not a duration such as 30s, 10m or 2h")
    return seconds

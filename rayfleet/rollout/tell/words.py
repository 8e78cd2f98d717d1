"""Times and texts for people: short, on one line, harmless on any screen. Pure."""

from __future__ import annotations

from rayfleet.harmless import printable
from rayfleet.job.redaction import redacted

MINUTE = 60
HOUR = 3600
DAY = 86400


def clock(seconds: float) -> str:
    """Seconds as on a stop watch: ``0:07``, ``3:04``, ``1:02:03``. For columns."""
    minutes, rest = divmod(max(int(seconds), 0), MINUTE)
    hours, minutes = divmod(minutes, MINUTE)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def spell(seconds: float) -> str:
    """Seconds in words: ``4.2 s``, ``42 s``, ``3 min``, ``3 min 04 s``, ``1 h 02 min``."""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    sizes = ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s"))
    size, unit, part, smaller = next(each for each in sizes if whole >= each[0])
    rest = whole % size // part
    return f"{whole // size} {unit}" + (f" {rest:02} {smaller}" if rest else "")


def count(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``, ``no jobs``."""
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def one_line(text: object) -> str:
    """``text`` on one line, printable."""
    return " ".join(printable(str(text)).split())


def safe(text: object) -> str:
    """``text`` printable and without what looks like a secret; lines are kept."""
    return printable(redacted(str(text)))


def cut(text: str, length: int) -> str:
    """``text`` in at most ``length`` characters, with an ellipsis where some are left out."""
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"

"""Numbers from the command line. Invoke would turn a bad one into a traceback, so tasks take
text and read it here."""

from __future__ import annotations

from rayfleet.errors import UsageError


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

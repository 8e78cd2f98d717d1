"""How a benchmark talks, and how a signal ends it so that what it made is taken down."""

from __future__ import annotations

import signal
import sys
from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def end_cleanly() -> None:
    """From now on a signal that ends a program raises SystemExit, once."""
    for number in _ENDS:
        signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    for each in _ENDS:
        signal.signal(each, signal.SIG_IGN)
    say("cleaning up")
    raise SystemExit(128 + number)

"""Time of the emulated cloud: it moves when a test says so, or when the machine's does."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@dataclass(slots=True)
class EmulatedClock:
    """Seconds since the epoch in the cloud.

    Each request moves the clock on by ``step`` seconds, so that whoever polls an operation gets
    somewhere without waiting. ``speed`` seconds pass in the cloud for each of the machine's, for
    rehearsals.
    """

    seconds: float = START
    step: float = 0.0
    speed: float = 0.0
    _seen: float = field(default_factory=time.monotonic, repr=False)

    def now(self) -> float:
        """The time."""
        before, self._seen = self._seen, time.monotonic()
        self.seconds += (self._seen - before) * self.speed
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Move on."""
        self.seconds += seconds

    def tick(self) -> None:
        """A request came."""
        self.seconds += self.step


def timestamp(seconds: float) -> str:
    """As Google's APIs write it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

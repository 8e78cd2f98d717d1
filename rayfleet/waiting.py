"""Wait for a condition, with a deadline and a name for what is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from rayfleet.errors import Unreachable

T = TypeVar("T")


class Clock(Protocol):
    """Time as a collaborator, so that tests need not wait for it."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""


class SystemClock:
    """The real clock."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        time.sleep(seconds)


class DeadlineExceeded(Unreachable):
    """What was waited for did not come in time."""


def wait_until(
    probe: Callable[[], T | None],
    *,
    what: str,
    timeout: float,
    interval: float = 0.5,
    next_step: str = "",
    reason: Callable[[], str] = lambda: "",
    clock: Clock | None = None,
) -> T:
    """Call ``probe`` until it returns something truthy, and return that.

    ``timeout`` and ``interval`` are seconds. ``what`` completes "waited 30 s for …";
    ``reason`` is asked for the last known cause when time is up.

    Raises:
        DeadlineExceeded: ``timeout`` passed; the message names ``what``.
    """
    clock = clock or SystemClock()
    deadline = clock.monotonic() + timeout
    while True:
        found = probe()
        if found:
            return found
        if clock.monotonic() >= deadline:
            raise DeadlineExceeded(
                f"waited {timeout:.0f} s for {what}", why=reason(), next_step=next_step
            )
        clock.sleep(interval)

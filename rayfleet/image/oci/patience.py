"""How long to be patient with a registry, and with what.

Not with stamina, as elsewhere: an operator's interrupt has to end a wait of up to a minute.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

T = TypeVar("T")

TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_CHANCE = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How long to be patient with a registry. All but ``attempts`` are seconds.

    Waits double from ``first_wait`` on; ``longest_retry_after`` is the most that a registry
    may ask for. ``read_timeout`` is how long nothing may move, in either direction.
    """

    attempts: int = 6
    first_wait: float = 0.2
    longest_wait: float = 10.0
    longest_retry_after: float = 60.0
    connect_timeout: float = 10.0
    read_timeout: float = 60.0

    def wait(self, attempt: int, asked: float | None = None) -> float:
        """Seconds to wait after a failed ``attempt`` (1 is the first).

        ``asked`` is what the server asked for. Chance keeps threads from coming back together.
        """
        if asked is not None:
            return min(asked, self.longest_retry_after) + _CHANCE.uniform(0, self.first_wait)
        doubled: float = self.first_wait * 2.0 ** min(attempt - 1, 64)
        return min(doubled, self.longest_wait) * _CHANCE.uniform(0.5, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a server answered. ``headers`` are found whatever their case.

    ``host`` is the one that answered, which may be where a redirect led.
    """

    status: int
    reason: str
    headers: Mapping[str, str] = field(repr=False)
    data: bytes = field(repr=False)
    host: str


class Transient(Exception):
    """An attempt failed, and the next one may not.

    ``reply`` is what the server said, None if it said nothing. ``asked`` is the wait that it
    asked for, in seconds.
    """

    def __init__(self, why: str, reply: Reply | None = None) -> None:
        self.why = why
        self.reply = reply
        after = reply.headers.get("Retry-After", "") if reply is not None else ""
        self.asked = retry_after(after, now=datetime.now(UTC))
        super().__init__(why)


def persist(
    work: Callable[[int], T], *, retries: Retries, stop: threading.Event | None = None
) -> T:
    """Call ``work`` with the number of the attempt, from 1, until it raises no Transient.

    Raises:
        Transient: that of the last attempt.
        Interrupted: ``stop`` was set.
    """
    for attempt in range(1, retries.attempts):
        try:
            return work(attempt)
        except Transient as failed:
            wait = retries.wait(attempt, failed.asked)
        _pause(wait, stop)
    return work(retries.attempts)


def retry_after(header: str, *, now: datetime) -> float | None:
    """The seconds that a Retry-After header means (RFC 9110, section 10.2.3); None if unclear."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())


def _pause(seconds: float, stop: threading.Event | None) -> None:
    from rayfleet.image.interruption import Interrupted

    if (stop or threading.Event()).wait(seconds):
        raise Interrupted

"""What a gate is: one question to a started cluster, asked until it says yes or time is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rayfleet.rollout.gates.subject import Subject


class Verdict(StrEnum):
    """What one look says.

    NOT_YET may become better by waiting, and failed when it has not in time. FAIL cannot be
    mended by waiting. UNKNOWN is neither yes nor no: when time is up a person has to look.
    """

    PASS = "pass"  # noqa: S105 (a verdict, not a secret)
    NOT_YET = "not yet"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reading:
    """One look: the verdict, and the reason or the figure in a few words without secrets.

    ``next_step`` is the command that mends it, where one is known.
    """

    verdict: Verdict
    detail: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTimes:
    """How a gate is asked: every ``interval`` seconds for at most ``timeout``, counted from
    when the gates that it needs are open, until it says yes ``successes`` times in a row."""

    interval: float = 1.0
    timeout: float = 120.0
    successes: int = 1


class Gate(Protocol):
    """One gate of one cluster; it may remember what it did in earlier looks."""

    @property
    def name(self) -> str:
        """What the fleet file and people call it."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Gates that must be open before this one is asked."""

    def check(self, subject: Subject) -> Reading:
        """Look once, quickly; whatever takes longer is begun here and looked at next time.

        Raises:
            Unauthorized, UsageError, PrerequisiteMissing: count as FAIL.
            RayfleetError: any other counts as NOT_YET.
        """

    def close(self, subject: Subject) -> None:
        """Leave nothing behind. Called once at the end, however that came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A gate that remembers nothing: ``ask`` is its whole check."""

    name: str
    needs: tuple[str, ...] = ()
    ask: Callable[[Subject], Reading]

    def check(self, subject: Subject) -> Reading:
        """Look once."""
        return self.ask(subject)

    def close(self, subject: Subject) -> None:
        """There is nothing to clean up."""

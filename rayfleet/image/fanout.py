"""Do one thing for every region at once, with a limit; a failure stops only its own region."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rayfleet.errors import RayfleetError
from rayfleet.image.workers import Workers

T = TypeVar("T")

# What is under way gets this long to notice that the operator has interrupted.
GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """What came of a region: a value, or the error that stopped it."""

    region: str
    value: T | None = None
    error: RayfleetError | None = None


def each_region(
    regions: Iterable[str],
    work: Callable[[str, threading.Event], T],
    *,
    limit: int,
    give_up: Callable[[], None] = lambda: None,
) -> tuple[Outcome[T], ...]:
    """Call ``work`` once for each distinct region, at most ``limit`` at a time; outcomes in order.

    Long work looks at the event that it gets: it is set when the operator interrupts.
    ``give_up`` is called then.
    """
    names = tuple(dict.fromkeys(regions))
    run: _Run[T] = _Run()
    workers = Workers("region", limit=limit)
    try:
        for region in names:
            workers.do(lambda region=region: run.attempt(region, work))  # type: ignore[misc]
        run.wait(len(names))
    except BaseException:
        run.stop.set()
        give_up()
        raise
    finally:
        workers.close()
        workers.wait(time.monotonic() + GRACE_SECONDS)
    return tuple(run.outcomes[region] for region in names)


class _Run(Generic[T]):
    """The outcomes so far, and whether to go on."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.outcomes: dict[str, Outcome[T]] = {}
        self._broken: BaseException | None = None
        self._changed = threading.Condition()

    def attempt(self, region: str, work: Callable[[str, threading.Event], T]) -> None:
        """Do the work of one region."""
        broken: BaseException | None = None
        outcome: Outcome[T] = Outcome(region=region)
        try:
            outcome = Outcome(region=region, value=work(region, self.stop))
        except RayfleetError as error:
            outcome = Outcome(region=region, error=error)
        except BaseException as error:  # handed to the caller's thread
            broken = error
        with self._changed:
            self.outcomes[region] = outcome
            self._broken = self._broken or broken
            self._changed.notify()

    def wait(self, count: int) -> None:
        """Return when ``count`` regions are through; raise what none of them may raise."""
        with self._changed:
            while len(self.outcomes) < count and self._broken is None:
                self._changed.wait()
            if self._broken is not None:
                raise self._broken


def failure_lines(outcomes: Iterable[Outcome[T]], *, done: Callable[[T], str]) -> list[str]:
    """One line per region: what ``done`` makes of its value, or why it failed."""
    return region_lines(
        (each.region, done(each.value) if each.value is not None else failure(each.error))
        for each in outcomes
    )


def region_lines(rows: Iterable[tuple[str, str]]) -> list[str]:
    """One line per region, its name and what is said of it, in columns."""
    known = list(rows)
    width = max((len(region) for region, _ in known), default=0)
    return [f"{region:<{width}}  {text}" for region, text in known]


def failure(error: RayfleetError | None) -> str:
    """The cause of a failure in one line."""
    if error is None:
        return "failed"
    text = f"failed: {error.what}" + (f": {error.why}" if error.why else "")
    return " ".join(text.split())

"""Do one thing for many clusters at once: bounded, and no slow one holds up the others."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from rayfleet.errors import PartialFailure, RayfleetError, ToolFailed, Unreachable

T = TypeVar("T")


def fan_out(
    jobs: Mapping[str, Callable[[], T]], *, limit: int, timeout: float, what: str
) -> dict[str, T | RayfleetError]:
    """Run every job in a thread, at most ``limit`` at once; keep each result or error by name.

    ``timeout`` is seconds per job from its start. A job that takes longer becomes Unreachable
    ("NAME: ``what`` did not answer ...") and gives its place to the next; its daemon thread is
    left to run into its own timeouts. The results come in the order of ``jobs``.

    Raises:
        BaseException: what a job raised, if that is no RayfleetError.
    """
    results: dict[str, T | RayfleetError] = {}
    finished: queue.SimpleQueue[tuple[str, T | BaseException]] = queue.SimpleQueue()
    waiting = list(jobs)[::-1]
    running: dict[str, float] = {}
    while waiting or running:
        while waiting and len(running) < limit:
            name = waiting.pop()
            running[name] = time.monotonic() + timeout
            threading.Thread(target=_run, args=(name, jobs[name], finished), daemon=True).start()
        try:
            name, result = finished.get(timeout=max(min(running.values()) - time.monotonic(), 0))
        except queue.Empty:
            results |= {name: _late(name, what, timeout) for name in _overdue(running)}
            continue
        if name not in running:
            continue
        del running[name]
        if isinstance(result, BaseException) and not isinstance(result, RayfleetError):
            raise result
        results[name] = result
    return {name: results[name] for name in jobs}


def require_all(
    failures: Mapping[str, RayfleetError], *, total: int, what: str, next_step: str
) -> None:
    """See that ``what`` failed nowhere. ``failures`` are by name, of ``total``; where there is
    more than one, the caller has told the cause of each.

    Raises:
        RayfleetError: the failure itself, of the only one.
        Unreachable: none could be reached.
        PartialFailure: some failed; or the only one, where it is a tool that did.
    """
    if not failures:
        return
    if total == 1:
        (error,) = failures.values()
        if isinstance(error, ToolFailed):
            # A script need not know how many nodes its globs meant.
            raise PartialFailure(error.what, why=error.why, next_step=error.next_step) from error
        raise error
    names = ", ".join(failures)
    everywhere = len(failures) == total
    if everywhere and all(isinstance(error, Unreachable) for error in failures.values()):
        raise Unreachable(
            f"{what} failed: no node could be reached", why=names, next_step=next_step
        )
    raise PartialFailure(
        f"{what} failed on {len(failures)} of {total} nodes", why=names, next_step=next_step
    )


def reason(error: RayfleetError) -> str:
    """What went wrong and why, without what to do."""
    return f"{error.what}: {error.why}" if error.why else error.what


def _run(
    name: str, job: Callable[[], T], finished: queue.SimpleQueue[tuple[str, T | BaseException]]
) -> None:
    try:
        finished.put((name, job()))
    except BaseException as error:
        finished.put((name, error))


def _overdue(running: dict[str, float]) -> list[str]:
    now = time.monotonic()
    late = [name for name, deadline in running.items() if deadline <= now]
    for name in late:
        del running[name]
    return late


def _late(name: str, what: str, timeout: float) -> Unreachable:
    return Unreachable(
        f"{name}: {what} did not answer within {timeout:.0f} s",
        next_step=f"invoke status --cluster {name}",
    )

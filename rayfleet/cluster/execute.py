"""One command on many nodes at once, with what each said and how each ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rayfleet.cluster.channel import MAX_OUTPUT_BYTES
from rayfleet.errors import PartialFailure, RayfleetError, ToolFailed, Unreachable

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head, HeadAddress
    from rayfleet.cluster.heads import Heads, Target

CONNECT_SECONDS = 120.0
"""For everything before the command: the address from the cloud, the connection, the login."""

Live = Callable[[bool, bytes], None]
"""Takes what a command prints as it comes: whether it is stderr, and the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended on ``target``: its exit ``code`` (128+N for signal N), or ``error``:
    the node could not be entered, or the command not be waited for. ``seconds`` are from the
    connection to the end. ``container`` is the one that Ray runs in there, if any."""

    target: Target
    code: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    container: str = ""
    error: RayfleetError | None = None

    @property
    def ok(self) -> bool:
        """True when the command exited with 0."""
        return self.code == 0

    @property
    def ending(self) -> str:
        """How it ended, in words; empty when it exited with 0."""
        if self.error is not None:
            return "not reachable" if isinstance(self.error, Unreachable) else "cut off"
        return "" if self.ok else f"exit code {self.code}"


def execute(
    heads: Heads,
    targets: Sequence[Target],
    command: Callable[[HeadAddress], str],
    *,
    timeout: float,
    limit: int,
    live: Live | None = None,
    done: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run on every target the line for ``sh`` that ``command`` makes for its address.

    At most ``limit`` nodes work at once, each for at most ``timeout`` seconds after it was
    entered; then, and when we end, the command there and what it has started get SIGTERM, and
    SIGKILL ten seconds later. ``live`` takes the output
    instead of the outcomes. ``done`` hears of every node that was entered, from its thread.
    """
    by_name = {target.name: target for target in targets}

    def work(head: Head) -> Outcome:
        target = by_name[head.address.name]
        outcome = _run(head, target, command(head.address), timeout=timeout, live=live)
        outcome = replace(outcome, container=head.address.container)
        done(outcome)
        return outcome

    results = heads.each(targets, work, limit=limit, timeout=timeout + CONNECT_SECONDS)
    return [
        result if isinstance(result, Outcome) else Outcome(target=by_name[name], error=result)
        for name, result in results.items()
    ]


def failures(outcomes: Sequence[Outcome], next_step: str = "") -> dict[str, RayfleetError]:
    """The commands that did not exit with 0, by the names of their targets; ``next_step`` is for
    those that ended by themselves."""
    return {
        outcome.target.name: outcome.error
        or PartialFailure(
            f"{outcome.target.name}: the command ended with {outcome.ending}", next_step=next_step
        )
        for outcome in outcomes
        if not outcome.ok
    }


def _run(head: Head, target: Target, command: str, *, timeout: float, live: Live | None) -> Outcome:
    begun = time.monotonic()
    outputs = (bytearray(), bytearray())
    expired = threading.Event()
    error: RayfleetError | None = None
    code: int | None = None
    try:
        stream = head.stream(command)

        def expire() -> None:
            expired.set()
            stream.close()

        alarm = threading.Timer(timeout, expire)
        alarm.daemon = True
        alarm.start()
        try:
            for is_error, chunk in stream.both():
                if live is not None:
                    live(is_error, chunk)
                    continue
                outputs[is_error].extend(chunk)
                if len(outputs[is_error]) > MAX_OUTPUT_BYTES:
                    raise ToolFailed(f"{target.name}: the command printed more than 16 MiB")
            code = stream.code
        finally:
            alarm.cancel()
            stream.close()
        if expired.is_set():
            raise ToolFailed(f"{target.name}: the command did not end within {timeout:.0f} s")
        if code is None:
            raise Unreachable(f"{target.name}: the connection was lost")
    except RayfleetError as caught:
        error, code = caught, None
    stdout, stderr = map(bytes, outputs)
    seconds = time.monotonic() - begun
    return Outcome(
        target=target, code=code, stdout=stdout, stderr=stderr, seconds=seconds, error=error
    )

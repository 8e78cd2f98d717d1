"""Ctrl-C and its relatives while a rollout runs: once to pause, twice to end at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rayfleet.errors import RayfleetError

ASKED_BY = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the end of the terminal",
}


class Interrupted(RayfleetError):
    """The operator has stopped the run."""

    exit_code = 130


class _EndNow(BaseException):
    """Gets through whatever the main thread is in: nothing there takes it for a failure."""


@contextmanager
def listening(asked: Callable[[str], None], *, rollout: str) -> Iterator[None]:
    """While the block runs, call ``asked`` with what the first signal was.

    ``asked`` runs inside a signal handler: it may set a value and put into a SimpleQueue, no
    more. Only in the main thread; elsewhere nothing is listened to.

    Raises:
        Interrupted: a second Ctrl-C or SIGTERM came; the block ended wherever it was.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        # The end of a terminal may come twice and never asks to end at once.
        if number != signal.SIGHUP:
            heard.append(number)
        if len(heard) > 1:
            raise _EndNow
        asked(ASKED_BY[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in ASKED_BY}
    # nohup has told us to ignore what it tells us to ignore.
    ours = [number for number in before if before[number] is not signal.SIG_IGN]
    try:
        for number in ours:
            signal.signal(number, handle)
        yield
    except _EndNow:
        raise Interrupted(
            f"rollout {rollout} was ended in the middle",
            why="a second signal came; its journal is valid",
            next_step=f"invoke rollouts.resume {rollout}",
        ) from None
    finally:
        for number in ours:
            signal.signal(number, before[number])


def deafen() -> None:
    """Let the calling thread, and all that it starts, hear no Ctrl-C: the main thread does.

    A program gets the signals of its terminal until it is in a session of its own. One that is
    just being started would die of a Ctrl-C that means "finish what is in hand".
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})

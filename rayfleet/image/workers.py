"""Threads that do what they are given, the most urgent first."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

Work = Callable[[], None]
"""Something to do; it keeps its errors to itself."""


class Workers:
    """At most ``limit`` threads, started when there is something to do.

    They are daemons: one that waits for a silent server does not keep an operator who gives
    up from leaving. Safe to use from several threads.
    """

    def __init__(self, name: str, *, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._queue: list[tuple[int, int, Work]] = []
        self._order = count()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def do(self, work: Work, *, urgency: int = 0) -> None:
        """Have ``work`` done; the highest ``urgency`` first, equals in the order given."""
        with self._changed:
            if self._closed:
                return
            heapq.heappush(self._queue, (-urgency, next(self._order), work))
            if len(self._queue) > self._idle and len(self._threads) < self._limit:
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Forget what nobody has begun, and take nothing more."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()

    def wait(self, deadline: float) -> None:
        """After :meth:`close`: wait for what was begun, until the monotonic ``deadline``."""
        for thread in list(self._threads):
            thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._queue and not self._closed:
                    self._changed.wait()
                self._idle -= 1
                if self._closed:
                    return
                _, _, work = heapq.heappop(self._queue)
            work()

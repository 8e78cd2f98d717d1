"""Lines written by a thread of their own, so that a slow reader holds up nobody."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

HURRY_SECONDS = 0.5
"""How long a reader is waited for when the process is about to be ended."""


class Writer:
    """Gives lines to ``write`` in their order, from its own daemon thread.

    The first OSError or ValueError (a closed stream) ends it: nobody reads any more, and later
    lines are dropped. The queue is unbounded: a rollout has some dozen lines per cluster.
    """

    def __init__(self, write: Callable[[str], None], *, name: str) -> None:
        self._write = write
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closed = False
        self._thread.start()

    def line(self, text: str) -> None:
        """Have ``text`` written; returns at once."""
        self._lines.put(text)

    def close(self, timeout: float | None = None) -> None:
        """Wait until everything is written, at most ``timeout`` seconds if that is given."""
        if not self._closed:
            self._closed = True
            self._lines.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (text := self._lines.get()) is not None:
            try:
                self._write(text)
            except (OSError, ValueError):
                return

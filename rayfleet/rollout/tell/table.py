"""The live table of a rollout on a terminal; lines elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from rayfleet.console import Console, Line
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.model import Plan
from rayfleet.rollout.state import State
from rayfleet.rollout.tell.frame import View, frame
from rayfleet.rollout.tell.piped import Piped

REFRESH_PER_SECOND = 4


class LiveTable:
    """One line per cluster, at the bottom of the terminal; what is said goes above it.

    Where nothing may move it is :class:`Piped`. ``begun`` is when the rollout was, for one
    that is taken up again. It draws in a thread of its own and never holds up who tells it.
    """

    def __init__(
        self,
        plan: Plan,
        console: Console,
        *,
        begun: datetime | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._plan = plan
        self._now = now
        self._begun = begun
        self._state: State | None = None
        self._details: dict[str, str] = {}
        self._ended_at: datetime | None = None
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._console = console
        self._started = False
        self._piped: Piped | None = None

    def hear(self, record: Record, state: State) -> None:
        """A record was written; the first one opens the display."""
        if not self._started:
            self._start()
        if self._piped is not None:
            self._piped.hear(record, state)
            return
        with self._lock:
            self._begun = self._begun or record.at
            self._state = state
            if record.kind in {Kind.INTENT, Kind.CLUSTER}:
                self._details.pop(record.cluster, None)

    def detail(self, cluster: str, text: str) -> None:
        """What a step is just doing. From any thread."""
        if self._piped is not None:
            self._piped.detail(cluster, text)
            return
        with self._lock:
            self._details[cluster] = text

    def close(self, *, hurry: bool = False) -> None:
        """Leave the table on the screen as it is now."""
        if self._piped is not None:
            self._piped.close(hurry=hurry)
            return
        with self._lock:
            self._ended_at = self._ended_at or self._now()
        self._stack.close()

    def _start(self) -> None:
        self._started = True
        live = self._console.live(self._frame, per_second=REFRESH_PER_SECOND)
        if not self._stack.enter_context(live):
            say, begun, now = self._console.say, self._begun, self._now
            self._piped = Piped(self._plan, say, begun=begun, now=now)

    def _frame(self, width: int, height: int) -> Sequence[Line]:
        with self._lock:
            if self._state is None or self._begun is None:
                return ()
            view = View(
                plan=self._plan,
                state=self._state,
                now=self._ended_at or self._now(),
                begun=self._begun,
                details=dict(self._details),
                ended=self._ended_at is not None,
            )
        try:
            return frame(view, width, height)
        except Exception as error:
            # In the thread of the display a traceback would go across the screen, each time.
            return ([(f"the table cannot be shown: {error!r}", "red")],)

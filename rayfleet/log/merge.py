"""Lines of many files in the order of their times."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rayfleet.log.output.sink import Batch, Sink
from rayfleet.log.remote.records import printed, records, stamp

if TYPE_CHECKING:
    from rayfleet.cluster.heads import Target

DEFAULT_WINDOW = 2.0
MAX_HELD_BYTES = 64 * 1024 * 1024
PATIENCE_SECONDS = 10.0
"""How long all wait for the first lines of a node that does not answer."""

_OVERHEAD_BYTES = 256  # of a held record, about

Source = tuple[str, str, str]


class _Held(NamedTuple):
    """A record of ``batch``: its lines from ``start`` to ``end``."""

    when: float
    number: int
    start: int
    end: int
    batch: Batch


class Merge:
    """Holds every record back for ``window`` seconds, and hands on those it holds by time.

    A record that comes later than that, or while more than 64 MiB are held, follows out of order;
    the number of these is told at the end. The order within a file is never changed, and a record
    without a time stays behind the one before it. What was in the files at first is held until it
    has come from all ``targets``, 10 s at most.
    """

    def __init__(
        self,
        inner: Sink,
        *,
        window: float,
        targets: Sequence[Target],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.late = 0
        self._inner = inner
        self._window = window
        self._say = say
        self._clock = clock
        self._awaited = {target.name for target in targets}
        self._patient_until = clock() + max(window, PATIENCE_SECONDS)
        self._queues: dict[Source, deque[_Held]] = {}
        self._newest: dict[Source, float] = {}
        self._fronts: list[tuple[float, int, Source]] = []
        self._arrivals: deque[tuple[float, float]] = deque()
        self._number = 0
        self._held_bytes = 0
        self._due = self._shown = float("-inf")

    def write(self, batch: Batch) -> None:
        """Hold the records of ``batch``, and hand on those whose time has come."""
        now = self._clock()
        queue = self._queues.setdefault(batch.source, deque())
        newest = self._newest.get(batch.source, float("-inf"))
        start = end = 0
        for record in records(batch.lines, printed(batch.file)):
            end += len(record)
            when = stamp(record, batch.utc_offset)
            if when is not None and when > newest:
                newest = when
            self._number += 1
            queue.append(_Held(newest, self._number, start, end, batch))
            self._held_bytes += end - start + _OVERHEAD_BYTES
            start = end
            if len(queue) == 1:
                heapq.heappush(self._fronts, (newest, self._number, batch.source))
        self._newest[batch.source] = newest
        self._arrivals.append((now, newest))
        self._release(now)

    def idle(self) -> None:
        """Hand on what has waited long enough."""
        self._release(self._clock())
        self._inner.idle()

    def joined(self, target: Target) -> None:
        """It is not waited for: what it has at first may come out of order."""
        self._inner.joined(target)

    def caught_up(self, target: Target) -> None:
        """No longer wait for the first lines of ``target``."""
        self._awaited.discard(target.name)
        self._inner.caught_up(target)

    def ended(self, target: Target) -> None:
        """No longer wait for ``target``."""
        self._awaited.discard(target.name)
        self._inner.ended(target)

    def close(self) -> None:
        """Hand on all that is held, and tell how much was out of order."""
        self._due = float("inf")
        self._hand_on()
        self._inner.close()
        if self.late:
            lines = "1 record came" if self.late == 1 else f"{self.late} records came"
            self._say(f"{lines} too late to be put in order; a longer --merge waits longer")

    def _release(self, now: float) -> None:
        if self._awaited and now < self._patient_until and self._held_bytes <= MAX_HELD_BYTES:
            return
        while self._arrivals and now - self._arrivals[0][0] >= self._window:
            # With a record goes all that is older, whenever it came.
            self._due = max(self._due, self._arrivals.popleft()[1])
        self._hand_on()

    def _hand_on(self) -> None:
        run: _Held | None = None  # of neighbours in one batch
        for held in self._ordered():
            if held.when < self._shown:
                self.late += 1
            else:
                self._shown = held.when
            if run is not None and run.batch is held.batch and run.end == held.start:
                run = held._replace(start=run.start)
                continue
            if run is not None:
                self._inner.write(_part(run))
            run = held
        if run is not None:
            self._inner.write(_part(run))

    def _ordered(self) -> Iterator[_Held]:
        fronts = self._fronts
        while fronts and (fronts[0][0] <= self._due or self._held_bytes > MAX_HELD_BYTES):
            source = fronts[0][2]
            queue = self._queues[source]
            held = queue.popleft()
            if queue:
                heapq.heapreplace(fronts, (queue[0].when, queue[0].number, source))
            else:
                heapq.heappop(fronts)
            self._held_bytes -= held.end - held.start + _OVERHEAD_BYTES
            yield held


def _part(held: _Held) -> Batch:
    batch, start, end = held.batch, held.start, held.end
    last = end == len(batch.lines)
    if last and not start:
        return batch
    return replace(
        batch,
        lines=batch.lines[start:end],
        start=batch.start + start if batch.unbroken else batch.start,
        end=batch.start + end if batch.unbroken and not last else batch.end,
        cut=batch.cut and last,
    )

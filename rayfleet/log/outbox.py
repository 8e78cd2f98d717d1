"""What was read of many nodes and is not written yet: bounded, and fair between the nodes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from rayfleet.cluster.heads import Target

LIMIT_BYTES = 16 * 1024 * 1024


class Item(Protocol):
    """Something that waits to be written."""

    @property
    def size(self) -> int:
        """How many bytes of memory it counts for; 0: it never has to wait."""

    @property
    def lines(self) -> int:
        """How many lines would be lost with it; 0: it may not be dropped."""


T = TypeVar("T", bound=Item)


class Closed(Exception):
    """Nothing is taken out any more."""


@dataclass(slots=True)
class _Queue(Generic[T]):
    room: threading.Condition
    items: deque[T] = field(default_factory=deque)
    size: int = 0
    dropped: int = 0


class Outbox(Generic[T]):
    """Items of several nodes on the way to one writer, who takes from each node in turn.

    Each node has an equal share of ``limit`` bytes, and room for at least one item. ``put``
    waits while the share is used up; with ``drop``, the oldest of that node go instead.
    """

    def __init__(
        self, targets: Sequence[Target], *, drop: bool = False, limit: int = LIMIT_BYTES
    ) -> None:
        self._limit = limit
        self._drop = drop
        self._closed = False
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._queues: dict[Target, _Queue[T]] = {}
        self._ready: deque[Target] = deque()
        for target in targets:
            self.add(target)

    def add(self, target: Target) -> None:
        """One node more; the shares of the others become smaller."""
        with self._lock:
            self._queues[target] = _Queue(threading.Condition(self._lock))

    def remove(self, target: Target) -> None:
        """Nothing more comes of ``target``, and nothing of it is left."""
        with self._lock:
            del self._queues[target]
            for queue in self._queues.values():
                queue.room.notify()

    def put(self, target: Target, item: T) -> None:
        """Add ``item`` of ``target``, as soon as there is room.

        Raises:
            Closed: nobody takes it any more.
        """
        size = item.size
        with self._lock:
            queue = self._queues[target]
            while not (self._drop or self._closed) and self._full(queue, size):
                queue.room.wait()
            if self._closed:
                raise Closed
            if not queue.items:
                self._ready.append(target)
            elif self._full(queue, size):
                self._make_room(queue, size)
            queue.items.append(item)
            queue.size += size
            self._arrived.notify()

    def take(self, timeout: float) -> tuple[Target, T] | None:
        """The next item and whose it is; None when there is none within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with self._lock:
            while not self._ready:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._arrived.wait(left)
            target = self._ready.popleft()
            queue = self._queues[target]
            item = queue.items.popleft()
            queue.size -= item.size
            if queue.items:
                self._ready.append(target)
            queue.room.notify()
            return target, item

    def dropped(self) -> Mapping[Target, int]:
        """How many lines of each node were dropped since this was asked last."""
        with self._lock:
            found = {target: queue.dropped for target, queue in self._queues.items()}
            for queue in self._queues.values():
                queue.dropped = 0
        return {target: lines for target, lines in found.items() if lines}

    def close(self) -> None:
        """Take nothing more in; who waits for room is told so."""
        with self._lock:
            self._closed = True
            for queue in self._queues.values():
                queue.room.notify_all()

    def _full(self, queue: _Queue[T], size: int) -> bool:
        return bool(size and queue.size) and queue.size + size > self._share

    @property
    def _share(self) -> int:
        return self._limit // len(self._queues)

    def _make_room(self, queue: _Queue[T], size: int) -> None:
        kept: list[T] = []
        while queue.items and queue.size + size > self._share:
            item = queue.items.popleft()
            if item.lines:
                queue.size -= item.size
                queue.dropped += item.lines
            else:
                kept.append(item)
        queue.items.extendleft(reversed(kept))

"""How many uploads a run may have in flight: to one registry, and to all of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

PER_REGISTRY = 4
OVERALL = 16
# How soon a thread that waits for its turn notices that the operator has interrupted.
LOOK_SECONDS = 0.1


class Limits:
    """Turns for uploads; one object per run, shared by the clients of all registries.

    Whoever only waits before another attempt holds no turn, so that a registry that is down
    does not hold up the others. Safe to use from several threads.
    """

    def __init__(self, *, per_registry: int = PER_REGISTRY, overall: int = OVERALL) -> None:
        self.per_registry = per_registry
        self.overall = overall
        self._changed = threading.Condition()
        self._busy: Counter[str] = Counter()

    @contextmanager
    def turn(self, host: str, stop: threading.Event | None = None) -> Iterator[None]:
        """Hold a turn at the registry ``host`` for the block.

        Raises:
            Interrupted: ``stop`` was set before there was one.
        """
        from rayfleet.image.interruption import Interrupted

        with self._changed:
            while not self._free(host):
                if stop is not None and stop.is_set():
                    raise Interrupted
                self._changed.wait(LOOK_SECONDS)
            self._busy[host] += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy[host] -= 1
                self._changed.notify_all()

    def _free(self, host: str) -> bool:
        return self._busy[host] < self.per_registry and self._busy.total() < self.overall

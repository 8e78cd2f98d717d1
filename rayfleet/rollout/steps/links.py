"""What one process has of the heads of its clusters, kept from step to step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head


class Links:
    """Open connections by cluster. A cluster's is used by one thread at a time.

    ``seen`` are the clusters of which this process has itself seen, since it holds them, that
    all jobs are saved.
    """

    def __init__(self) -> None:
        self._open: dict[str, Head] = {}
        self.seen: set[str] = set()
        self._lock = threading.Lock()

    def get(self, cluster: str, connect: Callable[[], Head]) -> Head:
        """The connection to ``cluster``, made by ``connect`` if there is none that is alive.

        Raises:
            Unreachable: what ``connect`` raises.
        """
        with self._lock:
            there = self._open.get(cluster)
        if there is not None and there.alive:
            return there
        self.drop(cluster)
        made = connect()
        with self._lock:
            self._open[cluster] = made
        return made

    def alive(self, cluster: str) -> Head | None:
        """The connection that is open already."""
        with self._lock:
            there = self._open.get(cluster)
        return there if there is not None and there.alive else None

    def drop(self, cluster: str) -> None:
        """Close the connection, if there is one: the next one leads to another head."""
        with self._lock:
            there = self._open.pop(cluster, None)
        if there is not None:
            there.close()

    def forget(self, cluster: str) -> None:
        """Close the connection, and forget what was seen: the cluster is not held any more."""
        self.drop(cluster)
        self.seen.discard(cluster)

    @contextmanager
    def lent(self, cluster: str, connect: Callable[[], Head]) -> Iterator[Head]:
        """Like :meth:`get`, for code that closes what it opens."""
        yield self.get(cluster, connect)

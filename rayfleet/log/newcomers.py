"""Who is there now, asked again and again while logs are followed: workers come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from rayfleet.cluster.heads import Target

LOOK_SECONDS = 15.0
"""Between two looks, each a call to every cloud; a worker takes longer than that to boot."""

Look = Callable[[], Sequence[Target]]


class Newcomers:
    """Calls ``look`` every ``every`` seconds in a thread of its own: a cloud may take its time."""

    def __init__(self, look: Look, *, every: float = LOOK_SECONDS) -> None:
        self._look = look
        self._every = every
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._latest: Sequence[Target] | BaseException | None = None

    def start(self) -> None:
        """Begin; the first look is after the first pause."""
        threading.Thread(target=self._run, name="log-newcomers", daemon=True).start()

    def stop(self) -> None:
        """Look no more; a look that is under way ends by itself."""
        self._stopped.set()

    def listed(self) -> Sequence[Target] | None:
        """All nodes of the latest look, or None since the last call. Raises what it raised."""
        with self._lock:
            found, self._latest = self._latest, None
        if isinstance(found, BaseException):
            raise found
        return found

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            found: Sequence[Target] | BaseException
            try:
                found = self._look()
            except BaseException as error:
                # It is raised where the run can end with it.
                found = error
                self._stopped.set()
            with self._lock:
                self._latest = found

"""Looking after the clusters of a wave while it bakes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from rayfleet.cluster.fanout import fan_out
from rayfleet.errors import RayfleetError
from rayfleet.rollout.model import Target

LOOK_LIMIT = 8  # clusters looked at at once
LOOK_TIMEOUT = 60.0  # seconds for one cluster
SLOWEST, QUICKEST = 15.0, 0.1  # seconds between two rounds
ROUNDS = 5  # in a short bake


class Watch:
    """Asks every cluster of a wave now and then, in a thread of its own, whether it is well.

    A cluster is in trouble when it was so in two rounds running: one answer may be an accident.
    ``changed`` is called from that thread after each round.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        trouble: Callable[[Target], str],
        *,
        bake: float,
        changed: Callable[[], None],
    ) -> None:
        self.defect: BaseException | None = None
        self._targets = targets
        self._trouble = trouble
        self._interval = min(max(bake / ROUNDS, QUICKEST), SLOWEST)
        self._changed = changed
        self._ended = threading.Event()
        self._guard = threading.Lock()
        self._rounds = 0
        self._suspects: frozenset[str] = frozenset()
        self._found: dict[str, str] = {}
        threading.Thread(target=self._run, name="bake", daemon=True).start()

    def settled(self) -> bool:
        """Whether everybody has been looked at, and no cluster needs a second look."""
        with self._guard:
            return self._rounds > 0 and not self._suspects

    def take(self) -> dict[str, str]:
        """The clusters in trouble that were found since the last call, and what it is."""
        with self._guard:
            found, self._found = self._found, {}
        return found

    def end(self) -> None:
        """Look no more. A look that is under way is not waited for."""
        self._ended.set()

    def _run(self) -> None:
        known: set[str] = set()
        try:
            while not self._ended.is_set():
                self._round(known)
                self._changed()
                self._ended.wait(self._interval)
        except BaseException as error:  # handed to the engine, which raises it
            self.defect = error
            self._changed()

    def _round(self, known: set[str]) -> None:
        looks = {
            target.cluster: partial(self._trouble, target)
            for target in self._targets
            if target.cluster not in known
        }
        seen = fan_out(looks, limit=LOOK_LIMIT, timeout=LOOK_TIMEOUT, what="the cluster")
        troubles = {name: _text(answer) for name, answer in seen.items() if answer}
        with self._guard:
            again = troubles.keys() & self._suspects
            self._found |= {name: troubles[name] for name in again}
            known |= again
            self._suspects = frozenset(troubles.keys() - again)
            self._rounds += 1


def _text(answer: str | RayfleetError) -> str:
    if isinstance(answer, RayfleetError):
        return f"{answer.what}: {answer.why}" if answer.why else answer.what
    return answer

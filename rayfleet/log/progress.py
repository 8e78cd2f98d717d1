"""How the nodes that are followed stand, and what the run is to end with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rayfleet.cluster.heads import Target
from rayfleet.errors import PartialFailure, RayfleetError, Unreachable
from rayfleet.log.source import NoSuchLog, list_logs


class Progress:
    """Which nodes were reached, which have ended, which failed and why. ``growing``: others may
    join."""

    def __init__(self, targets: Sequence[Target], *, growing: bool = False) -> None:
        self._targets = list(targets)
        self._growing = growing
        self._left = set(targets)
        self._failures: dict[Target, RayfleetError] = {}
        self._any_reached = False

    @property
    def several(self) -> bool:
        """Whether an error is told when it happens; that of a single node is what the run ends
        with."""
        return self._growing or len(self._targets) > 1

    @property
    def left(self) -> int:
        """How many nodes are being read, or tried."""
        return len(self._left)

    @property
    def hopeless(self) -> bool:
        """Whether no node could be reached, of those that are tried."""
        tried_in_vain = bool(self._failures) and not self._any_reached
        return tried_in_vain and self._left <= self._failures.keys()

    def knows(self, target: Target) -> bool:
        """Whether ``target`` is being read or tried, or ended with an error."""
        return target in self._left or target in self._failures

    def joined(self, target: Target) -> None:
        """``target`` is read as well from now on."""
        # It is the cloud that told of it, and it may boot for a while: no reason to give up.
        self._any_reached = True
        if target not in self._targets:
            self._targets.append(target)
        self._left.add(target)

    def reached(self, target: Target) -> None:
        """The program runs on ``target``."""
        self._any_reached = True
        self._failures.pop(target, None)

    def failed(self, target: Target, error: RayfleetError) -> None:
        """``target`` could not be reached, and is tried again."""
        self._failures[target] = error

    def ended(self, target: Target, error: RayfleetError | None) -> bool:
        """Nothing more comes of ``target``; return whether that error was known already."""
        self._left.discard(target)
        known = self._failures.pop(target, None)
        if error is None:
            return False
        self._failures[target] = error
        return known is not None and known.text() == error.text()

    def judge(self, say: Callable[[str], None]) -> None:
        """Raise what the run is to end with, if anything failed.

        That a node has no such log is a failure only when none has: a job is on some nodes.
        """
        if not self.several:
            for error in self._failures.values():
                raise error
        lacking = {
            target for target, error in self._failures.items() if isinstance(error, NoSuchLog)
        }
        if lacking and len(lacking) == len(self._targets):
            raise NoSuchLog(
                f"none of {len(lacking)} nodes has such a log",
                next_step=list_logs(self._targets[0].cluster),
            )
        if lacking:
            say(f"no such log on {_names(lacking)}")
            self._failures = {
                target: error for target, error in self._failures.items() if target not in lacking
            }
        self._judge_failures()

    def _judge_failures(self) -> None:
        if not self._failures:
            return
        names = _names(self._failures)
        clusters = sorted({target.cluster for target in self._failures})
        if len(self._failures) == len(self._targets):
            raise Unreachable(
                f"no node could be read: {names}",
                why="the causes are above",
                next_step="invoke status",
            )
        raise PartialFailure(
            f"{len(self._failures)} of {len(self._targets)} nodes could not be read: {names}",
            why="the causes are above",
            next_step="invoke status " + " ".join(f"--cluster {name}" for name in clusters),
        )


def _names(targets: Iterable[Target]) -> str:
    return ", ".join(sorted(target.name for target in targets))

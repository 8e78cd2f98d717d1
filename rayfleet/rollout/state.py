"""Where a rollout stands: what its journal says, folded into one value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from rayfleet.rollout.model import Direction, Output, Owed, Step


class Outcome(StrEnum):
    """How a cluster's way in one direction has ended.

    UNTOUCHED failed before anything of the cluster was changed; LOCKED is that because another
    run holds it. FAILED failed after. SKIPPED was left out by an operator or by
    ``--unhealthy skip``. WITHOUT_JOBS is well, but a job was not given back.
    """

    DONE = "done"
    WITHOUT_JOBS = "done, a job was not restored"
    UNTOUCHED = "failed, untouched"
    LOCKED = "locked, untouched"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


class Result(StrEnum):
    """How a whole rollout has ended."""

    DONE = "done"
    WITHOUT_JOBS = "done, jobs were not restored"
    FAILED = "failed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One cluster's way in one direction.

    ``outputs`` are of the steps that are done; ``step`` is the one at hand, or the one that
    failed; ``notes`` are its own, in order. ``tries`` counts how often the step at hand was begun.
    ``error`` is the ``data`` of its FAILED record. ``outcome`` is None while it goes on.
    ``times`` has (step, begun, ended) of every try, ``ended`` None while it runs.
    """

    outputs: Mapping[Step, Output] = field(default_factory=dict)
    step: Step | None = None
    notes: tuple[Output, ...] = ()
    tries: int = 0
    error: Output = field(default_factory=dict)
    outcome: Outcome | None = None
    begun: datetime | None = None
    ended: datetime | None = None
    times: tuple[tuple[Step, datetime, datetime | None], ...] = ()
    owed: tuple[Owed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One cluster: its way forward, its way back (None: it never began), whether its lock is
    held by the rollout."""

    forward: Way | None = None
    back: Way | None = None
    held: bool = False

    def way(self, direction: Direction) -> Way | None:
        """The way in that direction."""
        return self.forward if direction is Direction.FORWARD else self.back


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The whole rollout. ``clusters`` has every target. ``baked`` are numbers of waves (from 0).

    ``baking`` maps a wave to the end of its bake in seconds since 1970. ``requests`` are those
    that have not been answered by a PAUSED or FINISHED record yet.
    """

    clusters: Mapping[str, ClusterState]
    baked: frozenset[int] = frozenset()
    baking: Mapping[int, float] = field(default_factory=dict)
    pause_wanted: bool = False
    aborted: bool = False
    paused: str = ""
    result: Result | None = None
    full: bool = False

"""Where a rollout stands: what its journal says, folded into one value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from rayfleet.job.restore.report import Outcome as JobOutcome
from rayfleet.rollout.model import TOUCHING, Direction, Output, Owed, Step, owed_of


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


NOT_BACK = frozenset({JobOutcome.FAILED.value, JobOutcome.NOT_RESTORABLE.value})
"""What a restore says of a job that the cluster does not have."""

GOOD = frozenset({Outcome.DONE, Outcome.WITHOUT_JOBS})
FAILURES = frozenset({Outcome.FAILED, Outcome.UNTOUCHED, Outcome.LOCKED})
BAD = FAILURES | {Outcome.INCONCLUSIVE}


class Result(StrEnum):
    """How a whole rollout has ended. ABORTED is also one of which a cluster was taken back
    because an operator asked for it, if none has failed."""

    DONE = "done"
    WITHOUT_JOBS = "done, jobs were not restored"
    FAILED = "failed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One cluster's way in one direction.

    ``outputs`` are of the steps that are done; ``step`` is the one at hand, or the one that
    failed; ``notes`` are its own, in order. ``tries`` counts how often the step at hand was begun.
    ``error`` is the ``data`` of its FAILED record, or why it was locked or left out. ``outcome``
    is None while it goes on. ``times`` has (step, begun, ended) of every try, ``ended`` None while
    it runs, and for one that was killed. ``begun`` is None while the way is only asked for.

    ``again``: an operator wants it tried again, and that has not begun. ``left_out``: an operator
    skipped it while it went on, so that it is SKIPPED should it fail. ``locked`` counts how often
    it was found locked.

    ``owed`` are the jobs that the way has taken from the cluster and may not have given back.
    ``earlier`` counts the ``times`` of tries after which the cluster was released: what was done
    then tells nothing about the cluster of now.
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
    again: bool = False
    left_out: bool = False
    locked: int = 0
    earlier: int = 0

    @property
    def not_given_back(self) -> tuple[Owed, ...]:
        """The jobs that it has taken from the cluster and not given back, as far as its steps
        tell."""
        kept = _lost(self.outputs)
        if kept is None:
            return self.owed
        rows = (
            replace(
                one,
                jobs=tuple(name for name in one.jobs if name in kept),
                stopped=tuple(name for name in one.stopped if name in kept),
            )
            for one in self.owed
        )
        return tuple(row for row in rows if row.jobs)

    @property
    def touched(self) -> bool:
        """Whether a step was begun that changes the cluster."""
        return any(step in TOUCHING for step, _, _ in self.times)

    @property
    def touched_again(self) -> bool:
        """Whether such a step was begun since the cluster was last released."""
        return any(step in TOUCHING for step, _, _ in self.times[self.earlier :])

    def held_anew(self) -> Way:
        """The way of a cluster that was free until now: others may have started it and given it
        jobs, so it begins with the first step again. What it owes stays."""
        if not self.outputs and self.step is None:
            return self
        return replace(
            self, outputs={}, step=None, notes=(), tries=0, error={}, earlier=len(self.times)
        )


def first_owed(way: Way, step: Step) -> tuple[Owed, ...]:
    """What ``way`` owes once ``step`` has begun: when jobs are to be stopped for the first time,
    what the snapshot has saved."""
    if step is not Step.QUIESCE or way.step is Step.QUIESCE:
        return way.owed
    return owed_of(way.outputs.get(Step.SNAPSHOT, {}))


def _lost(outputs: Mapping[Step, Output]) -> frozenset[str] | None:
    """The jobs that the last step which gave jobs back could not give; None: there was none."""
    if Step.WATCH in outputs:
        lost = outputs[Step.WATCH].get("lost", ())
        return frozenset(map(str, lost)) if isinstance(lost, list | tuple) else frozenset()
    if Step.JOBS not in outputs:
        return None
    rows = outputs[Step.JOBS].get("jobs", ())
    rows = rows if isinstance(rows, list | tuple) else ()
    return frozenset(str(row["job"]) for row in rows if row.get("outcome") in NOT_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One cluster: its way forward, its way back (None: it never began and nobody asked for it),
    whether its lock is held by the rollout, and the id of its last lease."""

    forward: Way | None = None
    back: Way | None = None
    held: bool = False
    lease: str = ""

    def was_free(self, lease: str) -> bool:
        """Whether others can have changed the cluster until the rollout got ``lease``."""
        return not self.held or self.lease != lease

    def way(self, direction: Direction) -> Way | None:
        """The way in that direction."""
        return self.forward if direction is Direction.FORWARD else self.back

    @property
    def left_changed(self) -> bool:
        """Whether it was left out after it had been changed and had failed: it may be down."""
        forward, back = self.forward, self.back
        if forward is None:
            return False
        if back is None or back.begun is None:
            return forward.outcome is Outcome.SKIPPED and forward.touched
        return back.outcome is Outcome.SKIPPED and (back.touched or forward.outcome not in GOOD)

    @property
    def not_given_back(self) -> tuple[Owed, ...]:
        """The jobs that the rollout has taken from it and not given back, in either direction."""
        back = self.back
        if back is not None and any(step is Step.QUIESCE for step, _, _ in back.times):
            return back.not_given_back  # with those that the way forward owed
        return () if self.forward is None else self.forward.not_given_back


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The whole rollout. ``clusters`` has every target. ``baked`` are numbers of waves (from 0).

    ``baking`` maps a wave whose bake goes on to its end in seconds since 1970 (0: promoted).
    ``pause_wanted`` says who asked for a pause that has not come yet. ``aborted``: no further
    cluster is begun; ``all_back``: those that were are taken back. ``paused`` is why the last run
    ended, until the next begins. ``full``: no more bakes.
    """

    clusters: Mapping[str, ClusterState]
    baked: frozenset[int] = frozenset()
    baking: Mapping[int, float] = field(default_factory=dict)
    pause_wanted: str = ""
    aborted: bool = False
    all_back: bool = False
    paused: str = ""
    result: Result | None = None
    full: bool = False

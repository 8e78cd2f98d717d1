"""The seam between the engine of a rollout and what really happens to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from rayfleet.errors import RayfleetError, UnknownCluster
from rayfleet.rollout.model import Direction, Output, Owed, Plan, Step, Target

if TYPE_CHECKING:
    from rayfleet.rollout.journal.records import Record
    from rayfleet.rollout.state import State


class Inconclusive(RayfleetError):
    """A gate could not say yes or no in time: a person has to look."""

    exit_code = 6


class LeftAlone(RayfleetError):
    """A preflight found that this cluster is to be skipped; ``what`` says why. No failure."""


class LeftFleet(UnknownCluster):
    """The fleet file has the cluster no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One step of one cluster.

    ``outputs`` are of the earlier steps in this direction. ``notes`` are what this step noted in
    a run that was killed. ``owed`` are jobs that the rollout has taken from the cluster by now,
    in either direction, and may not have given back. ``changed``: an earlier try in this
    direction has changed the cluster.
    """

    plan: Plan
    target: Target
    direction: Direction
    outputs: Mapping[Step, Output] = field(default_factory=dict)
    notes: tuple[Output, ...] = ()
    owed: tuple[Owed, ...] = ()
    changed: bool = False


class Performer(Protocol):
    """Does the steps. Everything may be called again after it was killed at any point: each
    looks first. Called from several threads, for different clusters."""

    def perform(
        self,
        step: Step,
        task: Task,
        *,
        note: Callable[[Output], None],
        narrate: Callable[[str], None],
    ) -> Output:
        """Do ``step`` and return its output. ``note`` makes something durable before it returns;
        ``narrate`` tells people what is going on.

        Raises:
            LeftAlone: only in a preflight.
            Inconclusive: only in the gates.
            RayfleetError: the step failed.
        """

    def trouble(self, target: Target) -> str:
        """What is wrong with a cluster while its wave bakes; empty when nothing is."""

    def hold(self, plan: Plan, target: Target) -> AbstractContextManager[str]:
        """Keep everybody else from changing the cluster while the block runs, which gets the id
        of the lease: that of before, unless the cluster was free and others can have changed it.

        Raises:
            Locked: somebody else holds it.
            LeftFleet: it cannot be changed any more.
        """

    def release(self, plan: Plan, target: Target) -> None:
        """Give the cluster free for everybody: it needs nothing of this rollout any more."""


class Audience(Protocol):
    """Hears of a rollout. Whatever it does, it must neither raise nor keep the engine waiting."""

    def hear(self, record: Record, state: State) -> None:
        """A record was written; ``state`` includes it. One call at a time."""

    def detail(self, cluster: str, text: str) -> None:
        """What a step is just doing. From any thread."""

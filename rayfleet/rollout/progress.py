"""What a rollout is doing with a cluster, for commands that only look at the cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from rayfleet.cluster.lease import Holdable, Lease, Place, lease_of
from rayfleet.errors import RayfleetError
from rayfleet.rollout.journal.store import Rollouts
from rayfleet.rollout.model import Change, Direction, Plan, Target, steps_of
from rayfleet.rollout.state import ClusterState
from rayfleet.rollout.tell.facts import last_way
from rayfleet.rollout.tell.words import one_line, safe

RESTARTING = "restarting"
STARTING = "starting"
ROLLING_BACK = "rolling back"
WORDS = frozenset((RESTARTING, STARTING, ROLLING_BACK))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A cluster that is part of an unfinished rollout.

    ``word`` is what the rollout does with it, one of ``WORDS``, and ``step`` where it is, empty
    where its journal does not tell. ``operator`` is ``user@host``; ``since`` is when its process
    took the cluster. Unless ``running`` no process works on it now.
    """

    rollout: str
    operator: str
    word: str
    step: str
    since: datetime
    running: bool

    @property
    def text(self) -> str:
        """All of it in one line."""
        whose = one_line(safe(f"rollout {self.rollout} of {self.operator}"))
        at = f", step {self.step}" if self.step else ""
        if self.running:
            return f"{self.word} by {whose}{at}, since {self.since:%H:%M} UTC"
        return f"part of the unfinished {whose}{at}; no process works on it"

    @property
    def next_step(self) -> str:
        """The command that tells more."""
        return f"invoke rollouts.show {self.rollout}"

    def document(self) -> dict[str, object]:
        """The progress as ``--json`` prints it."""
        return {
            "rollout": self.rollout,
            "operator": self.operator,
            "doing": self.word,
            "step": self.step,
            "since": self.since.isoformat(timespec="seconds"),
            "running": self.running,
        }


def progress_of(place: Place, cluster: Holdable) -> Progress | None:
    """What a rollout of this machine's state folder does with ``cluster``; None when none has it.

    Raises:
        PrerequisiteMissing: its lease cannot be read.
    """
    lease = lease_of(place, cluster)
    if lease is None:
        return None
    word, step = _where(place, lease)
    return Progress(
        rollout=lease.rollout,
        operator=lease.operator,
        word=word,
        step=step,
        since=lease.acquired,
        running=not lease.stale(time.time()),
    )


def _where(place: Place, lease: Lease) -> tuple[str, str]:
    """What is done with the cluster, and its step."""
    try:
        rollout = Rollouts(place.state).open(lease.rollout)
        plan, state = rollout.plan, rollout.state()
    except (RayfleetError, ValueError):
        return RESTARTING, ""  # the lease alone tells enough
    target, cluster = plan.targets.get(lease.cluster), state.clusters.get(lease.cluster)
    if target is None or cluster is None:
        return RESTARTING, ""
    return _step(plan, target, cluster)


def _step(plan: Plan, target: Target, cluster: ClusterState) -> tuple[str, str]:
    forward = STARTING if target.change is Change.START else RESTARTING
    found = last_way(cluster)
    if found is None:
        return forward, ""
    direction, way = found
    left = (s for s in steps_of(target, plan.settings, direction) if s not in way.outputs)
    step = way.step or next(left, "")
    return ROLLING_BACK if direction is Direction.BACK else forward, str(step)

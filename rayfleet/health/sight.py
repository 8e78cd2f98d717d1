"""All that was seen of a cluster at one moment, and what is found in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.health import Observed
from rayfleet.fleet.model import Cluster
from rayfleet.health.holding import Holdings
from rayfleet.health.room import Room
from rayfleet.rollout.gates.inside import Inside
from rayfleet.rollout.gates.scaling import Scaling
from rayfleet.rollout.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one node says of itself: ``inside`` where Ray runs, ``rooms`` are its disks."""

    inside: Inside
    rooms: tuple[Room, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A cluster as it was seen at ``now``, in seconds since the epoch.

    ``holdings`` is None where its cloud has no list of them, or was not asked. ``nodes`` has what
    nodes said, by the operators' names: ``us-east5`` is the head, ``us-east5/worker-ab12`` a
    worker. ``scaling`` is the autoscaler's report. ``bucket`` is where the cluster's bucket is,
    None when nobody asked; ``ours`` is the version of Ray on this machine. ``blind`` says what
    could not be looked at and why: nothing is concluded from its absence. ``rollout`` tells of
    the unfinished rollout that the cluster is part of.
    """

    cluster: Cluster
    config: LaunchConfig
    observed: Observed
    now: float
    holdings: Holdings | None = None
    nodes: Mapping[str, Seen] = field(default_factory=dict)
    scaling: Scaling | None = None
    bucket: str | None = None
    ours: str = ""
    blind: Mapping[str, str] = field(default_factory=dict)
    rollout: Progress | None = None

    @property
    def in_hand(self) -> bool:
        """Whether a rollout is changing the cluster now: what is missing comes back by itself."""
        return self.rollout is not None and self.rollout.running

    @property
    def word(self) -> str:
        """Its state in one or two words, for a table."""
        if self.rollout is not None and self.rollout.running:
            return self.rollout.word
        return self.observed.word()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One known state: ``state`` is its name, ``found`` what was seen, ``remedy`` the command
    that mends it. ``subjects`` are the names of the things that it is about."""

    state: str
    found: str
    remedy: str
    subjects: tuple[str, ...] = ()

"""What a cluster holds in its cloud, and what of that is of no use to anyone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rayfleet.cluster.google import ALIVE, ENDING

MADE_RECENTLY = 3600.0  # seconds; a firewall rule may be there before its node is


class Kind(StrEnum):
    """What a thing is, in the words that operators read."""

    VM = "VM"
    SLICE = "TPU slice"
    QUEUED = "queued resource"
    FIREWALL = "firewall rule"


UP = frozenset({"RUNNING", "READY"})
"""The states of a VM and of a slice in which it is neither on its way nor gone."""
STOPPED = frozenset({"TERMINATED", "STOPPED", "SUSPENDED"})
"""A VM in these states runs nothing.
https://cloud.google.com/compute/docs/instances/instance-life-cycle"""
LOST = frozenset({"PREEMPTED", "TERMINATED", "STOPPED"})
"""A slice in these states runs nothing and counts against the quota: the states of
https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes"""
AT_REST = frozenset({"FAILED", "SUSPENDED"})
"""A queued resource in these states gives nothing any more until it is asked for again:
https://cloud.google.com/tpu/docs/queued-resources"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One thing. ``name`` is the last part of its name. ``node_type`` is Ray's, ``head`` says that
    it is one, ``by_hand`` that it was added beside Ray, which neither counts nor ends it.
    ``addresses`` are those of its machines in their network. ``created`` is seconds since the
    epoch, None when the cloud does not say.

    ``queued`` is the last name of the queued resource that a slice belongs to; ``nodes`` are the
    last names of the slices that a queued resource is for. ``kept`` says why nobody but the
    operator may remove it.
    """

    kind: Kind
    name: str
    state: str
    zone: str = ""
    node_type: str = ""
    head: bool = False
    by_hand: bool = False
    addresses: tuple[str, ...] = ()
    created: float | None = None
    queued: str = ""
    nodes: tuple[str, ...] = ()
    kept: str = ""

    @property
    def alive(self) -> bool:
        """Whether Ray counts it as alive: it runs, or is being made."""
        return self.kind in (Kind.VM, Kind.SLICE) and self.state in ALIVE

    @property
    def runs(self) -> bool:
        """Whether it is up: a VM that runs is RUNNING, a slice READY."""
        return self.alive and self.state in UP

    @property
    def ending(self) -> bool:
        """Whether it is on its way out, and may still run something."""
        return self.kind in (Kind.VM, Kind.SLICE) and self.state in ENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that is of no use: ``why`` says it. ``kept`` is why it stays all the same."""

    holding: Holding
    why: str
    kept: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Everything that one cluster holds. ``others`` are the names of all other slices of its
    zone: a firewall rule of one of those is none of ours."""

    things: tuple[Holding, ...] = ()
    others: frozenset[str] = field(default_factory=frozenset)

    def of(self, *kinds: Kind) -> tuple[Holding, ...]:
        """Those of some kinds."""
        return tuple(thing for thing in self.things if thing.kind in kinds)

    @property
    def heads(self) -> tuple[Holding, ...]:
        """The heads that are alive."""
        return tuple(thing for thing in self.things if thing.alive and thing.head)

    @property
    def workers(self) -> tuple[Holding, ...]:
        """The workers that are alive: VMs and slices."""
        return tuple(thing for thing in self.things if thing.alive and not thing.head)


def node_of_rule(identity: str, rule: str) -> str:
    """The node of cluster ``identity`` that a firewall rule is named after; empty when it is not.

    Ray's ids of nodes are ``ray-IDENTITY-head|worker-8 hex digits-compute|tpu``; the rules that
    slices leave behind are called ``tpu-pod-NODE…``.
    """
    found = re.fullmatch(
        rf"(?:tpu-pod-)?(ray-{re.escape(identity)}-(?:head|worker)-[0-9a-f]{{8}}-(?:compute|tpu))"
        r"(?:-.*)?",
        rule,
    )
    return found[1] if found else ""


def leftovers(identity: str, holdings: Holdings, *, now: float) -> tuple[Leftover, ...]:
    """What of ``holdings`` is of no use to cluster ``identity``, slices first.

    ``now`` is in seconds since the epoch.
    """
    things = holdings.things
    queued = {thing.name: thing for thing in things if thing.kind is Kind.QUEUED}
    slices = {thing.name: thing for thing in things if thing.kind is Kind.SLICE}
    nodes = [thing for thing in things if thing.kind is not Kind.FIREWALL]
    there = {name for thing in nodes for name in (thing.name, *thing.nodes)} | holdings.others
    found = [
        *(_lost(thing, queued) for thing in slices.values()),
        *(_at_rest(thing, slices) for thing in queued.values()),
        *(_stopped(thing) for thing in things if thing.kind is Kind.VM),
        *(_orphan(identity, thing, there, now) for thing in things if thing.kind is Kind.FIREWALL),
    ]
    return tuple(one for one in found if one is not None)


def removable(found: Iterable[Leftover]) -> tuple[Leftover, ...]:
    """Those that may go."""
    return tuple(one for one in found if not one.kept)


def _lost(thing: Holding, queued: Mapping[str, Holding]) -> Leftover | None:
    if thing.state not in LOST:
        return None
    why = f"{thing.state}: it runs nothing and counts against the quota"
    owner = queued.get(thing.queued)
    # Its request is still being worked on, and decides what becomes of its slices.
    waits = f"its queued resource is {owner.state}" if owner and owner.state not in AT_REST else ""
    return Leftover(holding=thing, why=why, kept=thing.kept or waits)


def _at_rest(thing: Holding, slices: Mapping[str, Holding]) -> Leftover | None:
    if thing.state not in AT_REST:
        return None
    alive = [slices[name] for name in thing.nodes if name in slices]
    alive = [one for one in alive if one.state not in LOST]
    has = f"its slice {alive[0].name} is {alive[0].state}" if alive else ""
    why = f"{thing.state}: it gives no slice any more"
    return Leftover(holding=thing, why=why, kept=thing.kept or has)


def _stopped(thing: Holding) -> Leftover | None:
    if thing.state not in STOPPED:
        return None
    return Leftover(holding=thing, why=f"{thing.state}: it runs nothing", kept=thing.kept)


def _orphan(identity: str, thing: Holding, there: set[str], now: float) -> Leftover | None:
    node = node_of_rule(identity, thing.name)
    if not node or node in there:
        return None
    fresh = thing.created is None or now - thing.created < MADE_RECENTLY
    kept = "it was made within the last hour" if fresh else ""
    return Leftover(holding=thing, why=f"{node} is gone", kept=thing.kept or kept)

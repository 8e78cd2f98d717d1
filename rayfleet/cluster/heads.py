"""The nodes of a fleet, each entered once: at most one open connection per node in a process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from rayfleet.cluster.fanout import fan_out
from rayfleet.errors import RayfleetError, Unreachable, UsageError
from rayfleet.fleet.model import Cluster, Fleet

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head, HeadAddress
    from rayfleet.cluster.nodes import Nodes
    from rayfleet.project import Project

T = TypeVar("T")

HEAD = "head"
WORKERS = "workers"
NODES = (HEAD, WORKERS, "all")
"""Which nodes of a cluster may be asked for."""

LIMIT = 16  # connections that are being opened, or used by :meth:`Heads.each`, at once
LIST_SECONDS = 60.0  # for a cloud's list of workers
FRESH_SECONDS = 30.0
"""How old a list may be from which the address of a worker is taken when it is entered first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One node to enter. ``node`` is ``head`` or the worker's id in its cloud; ``name`` is what
    operators read: ``us-east5``, or ``us-east5/worker-ab12`` for a worker."""

    cluster: str
    region: str
    node: str
    name: str


class NodeGone(Unreachable):
    """The cloud has no such node now; who is there is in a new list of :meth:`Heads.targets`."""


class Heads:
    """The way into the heads and workers of ``fleet``. Safe to use from several threads.

    A connection is opened at first use, shared by all who ask for the same node, and opened
    again, with the address looked up again, once it was lost or closed.
    """

    def __init__(self, project: Project, fleet: Fleet) -> None:
        self._project = project
        self._fleet = fleet
        self._lock = threading.Lock()
        self._nodes: dict[str, Nodes] = {}
        self._workers: dict[str, _Workers] = {}
        self._places: dict[tuple[str, str], _Place] = {}
        self._closed = False

    def targets(self, clusters: Sequence[Cluster], nodes: str = HEAD) -> tuple[Target, ...]:
        """The nodes of ``clusters`` to enter, in their order, heads first.

        ``nodes`` is one of :data:`NODES`. The clouds are asked for workers only, all clusters at
        once. Where a cloud does not answer, one target stands for the workers of that cluster;
        opening it says why.

        Raises:
            UsageError: ``nodes`` is something else.
        """
        if nodes not in NODES:
            raise UsageError(f"no nodes are called {nodes!r}", why=f"choose of {', '.join(NODES)}")
        if nodes == HEAD:
            return tuple(_head_of(cluster) for cluster in clusters)
        listed = fan_out(
            {cluster.name: partial(self._worker_targets, cluster) for cluster in clusters},
            limit=LIMIT,
            timeout=LIST_SECONDS,
            what="the list of its workers",
        )
        found: list[Target] = []
        for cluster in clusters:
            workers = listed[cluster.name]
            found += [] if nodes == WORKERS else [_head_of(cluster)]
            found += [_unlisted(cluster)] if isinstance(workers, RayfleetError) else workers
        return tuple(found)

    def find(self, cluster: Cluster, node: str) -> Target:
        """The one node of ``cluster`` that ``node`` means: ``head``, or a worker's id, the end of
        its name as :class:`Target` has it, or a glob of either.

        Raises:
            UsageError: none or several are meant; the message lists the workers.
            Unreachable: the cloud does not answer.
        """
        if node == HEAD:
            return _head_of(cluster)
        workers = self._worker_targets(cluster)
        found = [
            worker
            for worker in workers
            if fnmatchcase(worker.node, node) or fnmatchcase(worker.name.rpartition("/")[2], node)
        ]
        if len(found) == 1:
            return found[0]
        names = [worker.name.rpartition("/")[2] for worker in found or workers]
        there = ", ".join(names if found else [HEAD, *names])
        raise UsageError(
            f"{cluster.name}: {node!r} is not one node",
            why=f"it means {there}" if found else f"there are {there}",
            next_step=f"invoke ssh --cluster {cluster.name} --node {names[0] if names else HEAD}",
        )

    def open(self, target: Target) -> Head:
        """The open connection to ``target``. Who closes it, closes it for all.

        Raises:
            Unreachable: the node is gone or cannot be entered; the address is looked up at every
                attempt.
            UsageError: the cluster has no config, or a key or ssh_config cannot be read.
        """
        from rayfleet.cluster.head import Head

        place = self._place(target)
        with place.lock:
            if place.head is None or not place.head.alive:
                if place.head is not None:
                    place.head.close()
                place.head = Head.open(self.address(target))
            head = place.head
        if self._closed:
            head.close()
        return head

    def address(self, target: Target) -> HeadAddress:
        """Where ``target`` is now, asked of its cloud.

        A worker that is asked for the first time is where the list said that named it; after
        that, a new list counts, one for all who ask at once. Its host keys are those that its
        cloud has on record, where one keeps them.

        Raises:
            NodeGone: there is no such worker.
            Unreachable: there is no head, or the cloud does not answer.
            UsageError: the cluster's config has not been generated.
        """
        from rayfleet.cluster.nodes import address_of, worker_address

        cluster = self._fleet.clusters[target.cluster]
        nodes = self._nodes_of(cluster)
        if target.node == HEAD:
            host = nodes.head_host(cluster.name)
            return address_of(self._project, self._fleet, cluster, nodes.config, host)
        place = self._place(target)
        oldest = time.monotonic() - (0.0 if place.asked else FRESH_SECONDS)
        place.asked = True
        workers = self._list_of(cluster).since(oldest)
        if target.node == WORKERS:
            raise NodeGone(
                f"{cluster.name}: its workers could not be listed, now they can",
                next_step="run the same again",
            )
        if target.node not in workers:
            raise NodeGone(
                f"{target.name} is gone",
                why=f"{cluster.name} has no worker {target.node} any more",
                next_step=f"invoke status --cluster {cluster.name}",
            )
        host = workers[target.node] or nodes.address(target.node)
        address = worker_address(
            self._project, self._fleet, cluster, nodes.config, target.node, host
        )
        return replace(address, host_keys=nodes.host_key(target.node))

    def each(
        self,
        targets: Sequence[Target],
        work: Callable[[Head], T],
        *,
        limit: int = LIMIT,
        timeout: float,
    ) -> dict[str, T | RayfleetError]:
        """Do ``work`` on every target, at most ``limit`` at once; keep each result or error by
        the target's name, in the order of ``targets``.

        ``timeout`` is seconds per node, connection and work together; a node that does not
        answer takes its place from nobody for longer. Errors that are no RayfleetError are
        defects and are raised.
        """

        def visit(target: Target) -> T:
            return work(self.open(target))

        jobs = {target.name: partial(visit, target) for target in targets}
        return fan_out(jobs, limit=limit, timeout=timeout, what="the node")

    def close(self) -> None:
        """Close every connection, those that are being opened as well; fine to call twice."""
        self._closed = True
        with self._lock:
            places = list(self._places.values())
        for place in places:
            # One that is being opened has the lock; it sees that we are closed.
            if place.head is not None:
                place.head.close()

    def __enter__(self) -> Heads:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _worker_targets(self, cluster: Cluster) -> list[Target]:
        from rayfleet.cluster.nodes import worker_label

        return [
            Target(
                cluster=cluster.name,
                region=cluster.region,
                node=node,
                name=f"{cluster.name}/{worker_label(cluster, node)}",
            )
            for node in self._list_of(cluster).since(time.monotonic())
        ]

    def _list_of(self, cluster: Cluster) -> _Workers:
        nodes = self._nodes_of(cluster)
        with self._lock:
            return self._workers.setdefault(cluster.name, _Workers(nodes.workers))

    def _nodes_of(self, cluster: Cluster) -> Nodes:
        from rayfleet.cluster.config import read_launch_config
        from rayfleet.cluster.nodes import Nodes

        with self._lock:
            if cluster.name not in self._nodes:
                self._nodes[cluster.name] = Nodes(read_launch_config(self._fleet, cluster))
            return self._nodes[cluster.name]

    def _place(self, target: Target) -> _Place:
        with self._lock:
            return self._places.setdefault((target.cluster, target.node), _Place())


@dataclass
class _Place:
    """The connection to one node; ``lock`` is held while it is being opened. ``asked``: its
    address was asked for before."""

    head: Head | None = None
    asked: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Workers:
    """The workers of one cluster by id, with their addresses, as ``look`` listed them last."""

    def __init__(self, look: Callable[[], Mapping[str, str]]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._begun = -math.inf
        self._found: Mapping[str, str] | RayfleetError = {}

    def since(self, begun: float) -> Mapping[str, str]:
        """A list that was asked for at ``begun`` (of time.monotonic) or later; a new one at need.

        Raises:
            RayfleetError: what came of it, for all who waited for the same list.
        """
        with self._lock:
            if self._begun < begun:
                self._begun = time.monotonic()
                try:
                    self._found = self._look()
                except RayfleetError as error:
                    self._found = error
            found = self._found
        if isinstance(found, RayfleetError):
            raise found
        return found


def _head_of(cluster: Cluster) -> Target:
    return Target(cluster=cluster.name, region=cluster.region, node=HEAD, name=cluster.name)


def _unlisted(cluster: Cluster) -> Target:
    name = f"{cluster.name}/{WORKERS}"
    return Target(cluster=cluster.name, region=cluster.region, node=WORKERS, name=name)

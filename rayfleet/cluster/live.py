"""The nodes of a cluster that are up, as the head tells of them (Ray 2.60, state API)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rayfleet.cluster.config import NodeType
from rayfleet.errors import ToolFailed

GROUP = "ray.io/node-group"
SLICE = "ray.io/tpu-slice-name"

NODES = "/api/v0/nodes?detail=1&limit=10000"
"""Where the dashboard lists them; 10 000 is the most that it gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNode:
    """One node, at ``address`` in its network. ``resources`` are all that it has, free or not,
    by Ray's names."""

    id: str
    head: bool = False
    address: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Its node type, by the config's name; empty when it has none."""
        return self.labels.get(GROUP, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Live workers of one node type: ``whole`` nodes, all of whose hosts have joined, the
    number of ``hosts``, and how many slices are ``partial``: some of their hosts are missing."""

    whole: int = 0
    hosts: int = 0
    partial: int = 0


def parse_nodes(document: object) -> tuple[LiveNode, ...]:
    """Read the answer of :data:`NODES`; nodes that are gone are left out.

    Raises:
        ToolFailed: it is no list of nodes.
    """
    try:
        rows = document["data"]["result"]["result"]  # type: ignore[index]
        return tuple(_node(row) for row in rows if row["state"] == "ALIVE")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ToolFailed("cannot read the nodes of the head", why=repr(error)) from error


def _node(row: Mapping[str, object]) -> LiveNode:
    resources, labels = row["resources_total"] or {}, row["labels"] or {}
    if not (isinstance(resources, Mapping) and isinstance(labels, Mapping)):
        raise TypeError("resources and labels are no mappings")
    return LiveNode(
        id=str(row["node_id"]),
        head=bool(row.get("is_head_node")),
        address=str(row.get("node_ip") or ""),
        resources={str(name): float(amount) for name, amount in resources.items()},
        labels={str(key): str(value) for key, value in labels.items()},
    )


def count_workers(nodes: Iterable[LiveNode], kinds: Iterable[NodeType]) -> Mapping[str, Workers]:
    """Live workers by node type. Each host of a slice is a node to Ray; a slice counts when all
    of its hosts are there, told apart by their label, or else by their number. Pure."""
    hosts = {kind.name: kind.hosts for kind in kinds}
    grouped: dict[str, Counter[str]] = {}
    for node in nodes:
        if not node.head:
            grouped.setdefault(node.kind, Counter())[node.labels.get(SLICE, "")] += 1
    return {kind: _counted(slices, hosts.get(kind, 1)) for kind, slices in grouped.items()}


def _counted(slices: Counter[str], hosts: int) -> Workers:
    if hosts == 1:
        return Workers(whole=slices.total(), hosts=slices.total())
    whole = sum(count >= hosts for name, count in slices.items() if name)
    partial = sum(count < hosts for name, count in slices.items() if name)
    unnamed = slices[""]
    return Workers(
        whole=whole + unnamed // hosts,
        hosts=slices.total(),
        partial=partial + bool(unnamed % hosts),
    )

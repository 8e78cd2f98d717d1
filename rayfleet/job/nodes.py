"""The nodes of a cluster that are up, as the head tells of them (Ray 2.60, state API)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rayfleet.errors import ToolFailed

NODES = "/api/v0/nodes?detail=1&limit=10000"
"""Where the dashboard lists them; 10 000 is the most that it gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNode:
    """One node. ``resources`` are all that it has, free or not, by Ray's names."""

    id: str
    head: bool = False
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


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
        resources={str(name): float(amount) for name, amount in resources.items()},
        labels={str(key): str(value) for key, value in labels.items()},
    )

"""Can any node that a cluster may ever have hold a job's entrypoint?

What the generated config does not state is not taken for absent where Ray looks for it on the
machine, and names that Ray makes by itself are never refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rayfleet.errors import ToolFailed, UsageError
from rayfleet.job.needs import Needs, amount_text

if TYPE_CHECKING:
    from rayfleet.cluster.config import NodeType
    from rayfleet.cluster.live import LiveNode

RAYS_OWN = re.compile(r"node:.+|accelerator_type:.+|TPU-.+-head|ray-.+")
"""Resources that Ray gives a node once it is up (Ray 2.60): its address, its accelerator, the
first host of a TPU slice, and the name of the slice, which the launcher begins with ``ray-``.
Other slices were made by hand, and are known once their hosts are up."""

MOST_NAMES = 3


def require_fit(
    needs: Needs,
    types: Sequence[NodeType],
    live: Callable[[], Sequence[LiveNode]],
    *,
    cluster: str,
) -> None:
    """Refuse ``needs`` that no node of the cluster can ever meet.

    ``live`` is asked for the nodes that are up only when none of ``types`` would do: machines
    that joined by hand have no type. When it cannot tell, nothing is refused.

    Raises:
        UsageError: nothing was submitted; the message says what would fit.
    """
    if needs.nothing or any(holds(kind, needs) for kind in types):
        return
    try:
        nodes = live()
    except ToolFailed:
        return
    # The head is a node: an empty list is no answer.
    if not nodes or any(node_holds(node, needs) for node in nodes):
        return
    raise UsageError(
        f"{cluster}: no node that it can have holds this job's entrypoint",
        why=f"it needs {needs.text()}, at once on one node\n  " + "\n  ".join(offers(types, nodes)),
        next_step="ask for less, and let the job's own tasks and actors ask for the rest",
    )


def holds(kind: NodeType, needs: Needs) -> bool:
    """True when a node of ``kind``, empty, could hold ``needs`` as far as the config tells."""
    return (
        kind.most > 0
        and all(
            amount <= kind.resources.get(name, 0.0) or _untold(kind, name)
            for name, amount in needs.amounts.items()
        )
        and all(
            _by_ray(key) or kind.more_labels or selects(value, kind.labels, key)
            for key, value in needs.labels.items()
        )
    )


def node_holds(node: LiveNode, needs: Needs) -> bool:
    """True when ``node``, empty, holds ``needs``."""
    return all(
        amount <= node.resources.get(name, 0.0) for name, amount in needs.amounts.items()
    ) and all(selects(value, node.labels, key) for key, value in needs.labels.items())


def selects(selector: str, labels: Mapping[str, str], key: str) -> bool:
    """Whether Ray's label ``selector`` for ``key`` takes a node with ``labels``."""
    wanted = selector.removeprefix("!")
    inside = wanted.startswith("in(") and wanted.endswith(")")
    values = [each.strip() for each in wanted[3:-1].split(",")] if inside else [wanted]
    return (labels.get(key) in values) is not selector.startswith("!")


def offers(types: Sequence[NodeType], nodes: Sequence[LiveNode]) -> list[str]:
    """One line per size of node: what an entrypoint can have there at most."""
    names: dict[str, list[str]] = {}
    for kind in types:
        if kind.most > 0:
            names.setdefault(_offer(kind.resources, kind.labels), []).append(kind.name)
    known = {frozenset(_plain(kind.resources).items()) for kind in types}
    for node in nodes:
        stated = {name: n for name, n in _plain(node.resources).items() if name != "memory"}
        if not node.head and frozenset(stated.items()) not in known:
            offer = _offer(node.resources, node.labels)
            names.setdefault(offer, []).append(f"the node {node.id[:8]}")
    return [f"{_listed(each)}: at most {offer}" for offer, each in names.items()]


def _untold(kind: NodeType, name: str) -> bool:
    if name in kind.resources and not kind.more_resources:
        return False
    return kind.more_resources or name in kind.found or bool(RAYS_OWN.fullmatch(name))


def _offer(resources: Mapping[str, float], labels: Mapping[str, str]) -> str:
    parts = [amount_text(name, amount) for name, amount in _plain(resources).items()]
    parts += [f"label {key}={value}" for key, value in labels.items() if not _by_ray(key)]
    return ", ".join(parts) or "what Ray finds on the machine"


def _by_ray(label: str) -> bool:
    return label.startswith("ray.io/")


def _plain(resources: Mapping[str, float]) -> dict[str, float]:
    return {
        name: amount
        for name, amount in resources.items()
        if amount and name != "object_store_memory" and not RAYS_OWN.fullmatch(name)
    }


def _listed(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    more = len(names) - MOST_NAMES
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown

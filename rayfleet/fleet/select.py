"""From ``--cluster`` to clusters: exact names and globs, nothing guessed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from rayfleet.errors import UnknownCluster, UsageError
from rayfleet.fleet.model import Cluster, Fleet

GLOB = frozenset("*?[")


def select_clusters(fleet: Fleet, names: Sequence[str], *, every: bool) -> tuple[Cluster, ...]:
    """The clusters that ``names`` (exact or glob) or ``every`` select, in fleet order, once each.

    Raises:
        UnknownCluster: a name or glob matches nothing; the message lists what there is.
        UsageError: neither names nor ``every`` were given, or both.
    """
    how = "add --cluster NAME (repeat it; globs are fine) or --all"
    if every and names:
        raise UsageError("both --cluster and --all are given", next_step="leave one of them out")
    if not every and not names:
        raise UsageError("no cluster is chosen", why=f"the fleet has {_all(fleet)}", next_step=how)
    if every:
        return tuple(fleet.clusters.values())
    chosen = {match for name in names for match in _matches(fleet, name)}
    return tuple(cluster for name, cluster in fleet.clusters.items() if name in chosen)


def select_one(fleet: Fleet, names: Sequence[str]) -> Cluster:
    """The one cluster that ``names`` choose.

    Raises:
        UnknownCluster: a name or glob matches nothing.
        UsageError: none is named, or they choose more than one.
    """
    clusters = select_clusters(fleet, names, every=False)
    if len(clusters) != 1:
        found = ", ".join(cluster.name for cluster in clusters)
        raise UsageError("one --cluster is needed here", why=f"these were chosen: {found}")
    return clusters[0]


def _matches(fleet: Fleet, name: str) -> list[str]:
    if not GLOB.intersection(name):
        found = [name] if name in fleet.clusters else []
    else:
        found = [known for known in fleet.clusters if fnmatchcase(known, name)]
    if not found:
        raise UnknownCluster(
            f"no cluster {name!r}" + _hint(fleet, name),
            why=f"the fleet has {_all(fleet)}",
            next_step="invoke fleet.list",
        )
    return found


def _hint(fleet: Fleet, name: str) -> str:
    same = [cluster.name for cluster in fleet.clusters.values() if cluster.identity == name]
    near = same or get_close_matches(name, fleet.clusters, n=3, cutoff=0.6)
    return f" (did you mean {', '.join(near)}?)" if near else ""


def _all(fleet: Fleet) -> str:
    return ", ".join(fleet.clusters)

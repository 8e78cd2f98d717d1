"""In which order clusters are changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rayfleet.fleet.model import Cluster, Fleet


def batches(
    fleet: Fleet, clusters: Sequence[Cluster], *, parallel: int
) -> tuple[tuple[Cluster, ...], ...]:
    """Split ``clusters`` into groups to be changed one group after the other.

    Those of the fleet's ``rollout.order`` come first, each alone, so that a bad change meets
    one cluster before many; the rest follows, at most ``parallel`` (at least 1) at a time.
    """
    chosen = {cluster.name: cluster for cluster in clusters}
    first = [chosen.pop(name) for name in fleet.rollout.order if name in chosen]
    rest = list(chosen.values())
    chunks = [tuple(rest[i : i + parallel]) for i in range(0, len(rest), parallel)]
    return (*((cluster,) for cluster in first), *chunks)

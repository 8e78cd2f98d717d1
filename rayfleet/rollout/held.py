"""Clusters that belong to a rollout: said before anything is looked at."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rayfleet.cluster.lease import lease_of
from rayfleet.errors import Locked
from rayfleet.fleet.model import Cluster
from rayfleet.project import Project


def refuse_held(project: Project, clusters: Sequence[Cluster]) -> None:
    """Do nothing if no rollout has any of ``clusters``.

    Raises:
        Locked: rollouts have some of them; all are named.
    """
    leases = [lease for cluster in clusters if (lease := lease_of(project, cluster))]
    if not leases:
        return
    now = time.time()
    refusal = leases[0].refusal(now)
    if len(leases) == 1:
        raise refusal
    raise Locked(
        f"{', '.join(lease.cluster for lease in leases)} belong to rollouts that are not through",
        why="".join(f"\n  {lease.cluster}: {lease.describe(now)}" for lease in leases),
        next_step=refusal.next_step,
    )

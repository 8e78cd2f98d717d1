"""Clusters of a rollout that have left the fleet file since it was planned."""

from __future__ import annotations

from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.rollout.model import Plan, Target
from rayfleet.rollout.performer import LeftFleet


def in_fleet(fleet: Fleet, target: Target) -> bool:
    """Whether ``fleet`` has the cluster of ``target``, under the same identity."""
    cluster = fleet.clusters.get(target.cluster)
    return cluster is not None and cluster.identity == target.identity


def require_known(fleet: Fleet, plan: Plan, target: Target) -> Cluster:
    """The cluster of ``target``.

    Raises:
        LeftFleet: it has left the fleet file, or is another one by now.
    """
    if in_fleet(fleet, target):
        return fleet.clusters[target.cluster]
    raise LeftFleet(
        f"{target.cluster} is not in the fleet file any more",
        why=f"rollout {plan.id} cannot change it ({target.identity} in {target.zone}) without its"
        " configuration",
        next_step=f"put {target.cluster} back into {plan.fleet}, then: invoke rollouts.retry"
        f" {plan.id} --cluster {target.cluster}; or leave it as it is: invoke rollouts.skip"
        f" {plan.id} --cluster {target.cluster}",
    )

"""How long a rollout still takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from statistics import median

from rayfleet.rollout.model import Plan
from rayfleet.rollout.state import ClusterState, State
from rayfleet.rollout.tell.facts import MOVING, Standing, cluster_seconds, standing

LEAST = 1.0
"""Seconds that a cluster is expected to need at least, once its own time is up."""


def rest_seconds(plan: Plan, state: State, now: datetime) -> float | None:
    """The seconds until everything is done if nothing fails, bakes included; None: unknown.

    A cluster counts with its estimate, or with the median of those that are done; what several
    at once save is taken from the plan's own estimate.
    """
    usual = _usual(plan, state, now)
    whole, left = 0.0, 0.0
    for name, target in plan.targets.items():
        expected = target.estimate if target.estimate is not None else usual
        if expected is None:
            return None
        whole += expected
        left += _left(state.clusters[name], expected, now)
    bakes = len(plan.waves) * plan.settings.bake
    side_by_side = 1 / max(min(plan.settings.parallel or 1, len(plan.targets)), 1)
    if plan.estimate is not None and whole > 0:
        side_by_side = max(min((plan.estimate - bakes) / whole, 1.0), 0.0) or side_by_side
    return left * side_by_side + sum(_bakes_left(plan, state, now))


def _usual(plan: Plan, state: State, now: datetime) -> float | None:
    known = [
        seconds
        for name in plan.targets
        if standing(state.clusters[name]) in {Standing.DONE, Standing.WITHOUT_JOBS}
        and (seconds := cluster_seconds(state.clusters[name], now)) is not None
    ]
    known = known or [t.estimate for t in plan.targets.values() if t.estimate is not None]
    return median(known) if known else None


def _left(cluster: ClusterState, expected: float, now: datetime) -> float:
    where = standing(cluster)
    if where is Standing.WAITING:
        return expected
    if where not in MOVING:
        return 0.0
    way = cluster.back or cluster.forward
    spent = (now - way.begun).total_seconds() if way is not None and way.begun else 0.0
    return max(expected - spent, LEAST)


def _bakes_left(plan: Plan, state: State, now: datetime) -> Iterator[float]:
    if state.full:
        return
    for number in range(len(plan.waves)):
        if number in state.baking:
            yield max(state.baking[number] - now.timestamp(), 0.0)
        elif number not in state.baked:
            yield plan.settings.bake

"""What failures mean for a rollout: whether its budget is spent, and its result. Pure."""

from __future__ import annotations

from collections.abc import Collection

from rayfleet.rollout.model import Plan, Wave
from rayfleet.rollout.state import FAILURES, GOOD, ClusterState, Outcome, Result, State, Way


def result_of(state: State) -> Result:
    """The result of a rollout in which nothing is left to do."""
    clusters = state.clusters.values()
    if any(_has_failed(cluster) for cluster in clusters):
        return Result.FAILED
    outcomes = {_outcome(cluster) for cluster in clusters}
    taken_back = any(c.back is not None and not _is_left_out(c) for c in clusters)
    if state.aborted or taken_back or not outcomes <= GOOD | {Outcome.SKIPPED}:
        return Result.ABORTED
    without = Outcome.WITHOUT_JOBS in outcomes or any(_left_jobs(each) for each in clusters)
    return Result.WITHOUT_JOBS if without else Result.DONE


def budget_spent(plan: Plan, state: State) -> bool:
    """Whether so much has failed that nothing new may begin.

    More than ``max_failures`` after they were touched, more than ``max_untouched`` before, a
    canary (or who took the place of one that was left out), or a whole wave.
    """
    bad = {name for name, cluster in state.clusters.items() if _counts(cluster)}
    if not bad:
        return False
    touched = sum(_outcome(state.clusters[name]) is Outcome.FAILED for name in bad)
    limits = plan.settings
    if touched > limits.max_failures or len(bad) - touched > limits.max_untouched:
        return True
    missing = unproven(plan, state)
    if any(plan.targets[name].digest_wanted in missing for name in bad):
        return True
    return any(_is_lost(state, wave, bad) for wave in plan.waves)


def unproven(plan: Plan, state: State) -> frozenset[str]:
    """Wanted digests whose canary was left out or taken back, and that no other cluster of the
    rollout runs well: the next cluster that gets one is the canary in its place."""
    canaries = [wave.clusters[0] for wave in plan.waves if wave.canary]
    gone = {plan.targets[name].digest_wanted for name in canaries if _is_gone(state.clusters[name])}
    if not gone:
        return frozenset()
    well = {
        plan.targets[name].digest_wanted
        for name, cluster in state.clusters.items()
        if cluster.back is None and _outcome(cluster) in GOOD
    }
    return frozenset(gone - well)


def once_more(way: Way) -> bool:
    """Whether it was found locked, and may be tried once more before that is a failure."""
    return way.outcome is Outcome.LOCKED and way.locked < 2


def _counts(cluster: ClusterState) -> bool:
    way = cluster.forward
    return way is not None and way.outcome in FAILURES and not once_more(way)


def _is_lost(state: State, wave: Wave, bad: Collection[str]) -> bool:
    """Whether the whole wave has failed, save for what was left out. A canary is a whole wave."""
    failed = sum(name in bad for name in wave.clusters)
    left_out = sum(_is_left_out(state.clusters[name]) for name in wave.clusters)
    return failed > 0 and failed + left_out == len(wave.clusters)


def _has_failed(cluster: ClusterState) -> bool:
    """Whether a way has failed of a cluster that nobody left out."""
    ways = (cluster.forward, cluster.back)
    return not _is_left_out(cluster) and any(way and way.outcome in FAILURES for way in ways)


def _left_jobs(cluster: ClusterState) -> bool:
    """Whether it was left out while jobs of it are only in the vault."""
    return cluster.left_changed and bool(cluster.not_given_back)


def _is_gone(canary: ClusterState) -> bool:
    return canary.back is not None or _is_left_out(canary)


def _is_left_out(cluster: ClusterState) -> bool:
    return _outcome(cluster) is Outcome.SKIPPED


def _outcome(cluster: ClusterState) -> Outcome | None:
    return None if cluster.forward is None else cluster.forward.outcome

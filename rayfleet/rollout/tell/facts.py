"""What a plan and a state mean to people: standings, times, failures, jobs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rayfleet.rollout.model import Direction, Plan, Step, Target, restore_command
from rayfleet.rollout.state import ClusterState, Outcome, State, Way
from rayfleet.rollout.tell.words import count, safe


class Standing(StrEnum):
    """Where one cluster stands, in both directions together."""

    UNDER_WAY = "under way"
    DONE = "done"
    WITHOUT_JOBS = "done, jobs missing"
    SKIPPED = "skipped"
    LEFT_CHANGED = "skipped, half changed"
    LEFT_WITHOUT_JOBS = "skipped, jobs missing"
    UNTOUCHED = "failed, untouched"
    LOCKED = "locked, untouched"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    ROLLING_BACK = "rolling back"
    ROLLED_BACK = "rolled back"
    BACK_WITHOUT_JOBS = "rolled back, jobs missing"
    BACK_INCONCLUSIVE = "rollback inconclusive"
    NOT_ROLLED_BACK = "rollback failed"
    WAITING = "not begun"


MOVING = frozenset((Standing.UNDER_WAY, Standing.ROLLING_BACK))
WELL = frozenset((Standing.DONE, Standing.SKIPPED))
TROUBLED = frozenset(Standing) - MOVING - WELL - {Standing.WAITING}

_FORWARD = {
    Outcome.DONE: Standing.DONE,
    Outcome.WITHOUT_JOBS: Standing.WITHOUT_JOBS,
    Outcome.SKIPPED: Standing.SKIPPED,
    Outcome.UNTOUCHED: Standing.UNTOUCHED,
    Outcome.LOCKED: Standing.LOCKED,
    Outcome.FAILED: Standing.FAILED,
    Outcome.INCONCLUSIVE: Standing.INCONCLUSIVE,
}
_BACK = {
    Outcome.DONE: Standing.ROLLED_BACK,
    Outcome.WITHOUT_JOBS: Standing.BACK_WITHOUT_JOBS,
    Outcome.SKIPPED: Standing.SKIPPED,
    Outcome.INCONCLUSIVE: Standing.BACK_INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that needs a person. ``next`` is a command; no text holds a secret."""

    cluster: str
    direction: Direction
    step: Step | None
    standing: Standing
    what: str
    why: str
    next: str


def standing(cluster: ClusterState) -> Standing:
    """Where a cluster stands. A way that is only asked for changes nothing yet."""
    forward, back = cluster.forward, cluster.back
    if cluster.left_changed:
        jobless = bool(cluster.not_given_back)
        return Standing.LEFT_WITHOUT_JOBS if jobless else Standing.LEFT_CHANGED
    if back is not None and back.begun is not None and not back.again:
        if back.outcome is None:
            return Standing.ROLLING_BACK
        return _BACK.get(back.outcome, Standing.NOT_ROLLED_BACK)
    if forward is None or forward.again:
        return Standing.WAITING
    if forward.outcome is not None:
        return _FORWARD[forward.outcome]
    return Standing.UNDER_WAY if forward.begun is not None else Standing.WAITING


def standings(state: State) -> Counter[Standing]:
    """How many clusters stand where, in the order of :class:`Standing`."""
    found = Counter(standing(cluster) for cluster in state.clusters.values())
    return Counter({each: found[each] for each in Standing if found[each]})


def summary(state: State) -> str:
    """``3 done, 1 failed``: all clusters by their standing."""
    return ", ".join(f"{number} {each}" for each, number in standings(state).items())


def last_way(cluster: ClusterState) -> tuple[Direction, Way] | None:
    """The way that a cluster is on, or was on last; None when it never began."""
    ways = ((direction, cluster.way(direction)) for direction in reversed(Direction))
    begun = ((direction, way) for direction, way in ways if way is not None and way.begun)
    return next(begun, None)


def cluster_seconds(cluster: ClusterState, now: datetime) -> float | None:
    """From a cluster's first step to its end, both ways and breaks included; None: not begun."""
    found = last_way(cluster)
    if found is None or standing(cluster) is Standing.WAITING:
        return None
    ways = (cluster.forward, cluster.back)
    begun = min(way.begun for way in ways if way is not None and way.begun)
    return max(((found[1].ended or now) - begun).total_seconds(), 0.0)


def waves_of(plan: Plan) -> dict[str, int]:
    """The number of each cluster's wave, from 0."""
    return {name: number for number, wave in enumerate(plan.waves) for name in wave.clusters}


def in_order(plan: Plan) -> tuple[Target, ...]:
    """The targets in the order of the waves."""
    return tuple(plan.targets[name] for wave in plan.waves for name in wave.clusters)


def failures(plan: Plan, state: State) -> tuple[Failure, ...]:
    """All that needs a person, in the order of the waves; a way back comes after its forward."""
    found = (
        failure
        for target in in_order(plan)
        for failure in _failures_of(plan, target, state.clusters[target.cluster])
    )
    return tuple(found)


def _failures_of(plan: Plan, target: Target, cluster: ClusterState) -> Iterator[Failure]:
    now = standing(cluster)
    if cluster.left_changed:
        yield _left_out(plan, target, cluster)
        return
    for direction in Direction:
        way = cluster.way(direction)
        if way is None or way.outcome in {None, Outcome.DONE, Outcome.SKIPPED}:
            continue
        what, why, following = _told(way, direction)
        yield Failure(
            cluster=target.cluster,
            direction=direction,
            step=way.step,
            standing=now,
            what=what.removeprefix(f"{target.cluster}: "),
            why=why,
            next=following or f"invoke rollouts.show {plan.id}",
        )


def _left_out(plan: Plan, target: Target, cluster: ClusterState) -> Failure:
    direction, way = last_way(cluster) or (Direction.FORWARD, Way())
    lost, following = lost_jobs(plan, target.cluster, cluster)
    cause = safe(way.error.get("what", "")).removeprefix(f"{target.cluster}: ")
    return Failure(
        cluster=target.cluster,
        direction=direction,
        step=way.step,
        standing=standing(cluster),
        what="left out after it was changed; it may be down" + (f": {cause}" if cause else ""),
        why=f"only in the vault: {', '.join(lost)}" if lost else "",
        next=following,
    )


def lost_jobs(plan: Plan, name: str, cluster: ClusterState) -> tuple[tuple[str, ...], str]:
    """The jobs that the rollout leaves the cluster ``name`` without, and the commands that give
    them back. Of one that was left out half changed they start it first, jobs or not."""
    if cluster.left_changed:
        owed = cluster.not_given_back
        steps = [f"invoke rollouts.unlock {plan.id} --cluster {name}"] if cluster.held else []
        gone = [way.error["left_fleet"] for way in _ways(cluster) if "left_fleet" in way.error]
        steps += [f"put {name} back into {fleet}" for fleet in gone[:1]]
        steps += [f"invoke start --cluster {name}"]
        steps += [restore_command(name, one) for one in owed]
        jobs = dict.fromkeys(safe(job) for one in owed for job in one.jobs)
        return tuple(jobs), "; then: ".join(steps)
    found = last_way(cluster)
    if found is None or found[1].outcome is not Outcome.WITHOUT_JOBS:
        return (), ""
    watch = found[1].outputs.get(Step.WATCH, {})
    return tuple(safe(each) for each in listed(watch, "lost")), safe(watch.get("next", ""))


def _ways(cluster: ClusterState) -> list[Way]:
    return [way for way in (cluster.forward, cluster.back) if way is not None]


def _told(way: Way, direction: Direction) -> tuple[str, str, str]:
    if way.outcome is Outcome.WITHOUT_JOBS:
        watch = way.outputs.get(Step.WATCH, {})
        lost = [safe(each) for each in listed(watch, "lost")]
        what = f"{count(len(lost), 'job')} not given back" if lost else "jobs are missing"
        return what, ", ".join(lost), safe(watch.get("next", ""))
    error = way.error
    what = safe(error.get("what", "")) or f"{direction.value}: {way.outcome}"
    return what, safe(error.get("why", "")), safe(error.get("next", ""))


def listed(output: Mapping[str, object], key: str) -> Sequence[object]:
    """The list ``key`` of a step's output; empty when there is none."""
    value = output.get(key)
    return value if isinstance(value, list | tuple) else ()

"""How long a rollout will take, from how long it took before. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from statistics import median

from rayfleet.rollout.model import Change, Plan, Settings, Target, Wave
from rayfleet.rollout.state import GOOD, State, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How long one cluster took in an earlier rollout, in seconds of work: waiting between a
    kill or a pause and the resume is not in it."""

    identity: str
    change: Change
    seconds: float


def samples(plan: Plan, state: State) -> tuple[Sample, ...]:
    """What a rollout teaches: one sample for each cluster that ended well."""
    return tuple(
        Sample(identity=target.identity, change=target.change, seconds=_seconds(way))
        for name, target in plan.targets.items()
        if (way := state.clusters[name].forward) is not None and way.outcome in GOOD
    )


def _seconds(way: Way) -> float:
    return sum((end - begun).total_seconds() for _, begun, end in way.times if end is not None)


def estimate_targets(
    targets: Iterable[Target], known: Iterable[Sample]
) -> Mapping[str, float | None]:
    """Seconds per cluster: the median of what it took before for the same change, else the
    median of all clusters for that change, else None."""
    own: defaultdict[tuple[str, Change], list[float]] = defaultdict(list)
    all_of: defaultdict[Change, list[float]] = defaultdict(list)
    for sample in known:
        own[sample.identity, sample.change].append(sample.seconds)
        all_of[sample.change].append(sample.seconds)
    usual = {change: median(seconds) for change, seconds in all_of.items()}
    return {
        target.cluster: (
            median(own[target.identity, target.change])
            if (target.identity, target.change) in own
            else usual.get(target.change)
        )
        for target in targets
    }


def estimate_plan(
    targets: Mapping[str, Target], waves: Sequence[Wave], settings: Settings
) -> float | None:
    """Seconds for all of it, nothing failing: each wave's clusters in their order as soon as
    the limits have room, then its bake. None when the estimate of a cluster is None."""
    if any(target.estimate is None for target in targets.values()):
        return None
    return sum(
        _wave([targets[name] for name in wave.clusters], settings) + max(0.0, settings.bake)
        for wave in waves
    )


def _wave(targets: Sequence[Target], settings: Settings) -> float:
    """Seconds until the last cluster of a wave has ended."""
    waiting: defaultdict[str, deque[tuple[int, float]]] = defaultdict(deque)
    for number, target in enumerate(targets):
        waiting[target.region].append((number, target.estimate or 0.0))
    running: list[tuple[float, str]] = []
    busy: Counter[str] = Counter()
    now = 0.0
    while running or any(waiting.values()):
        while not 0 < settings.parallel <= len(running):
            open_now = [
                region
                for region, queue in waiting.items()
                if queue and not 0 < settings.per_region <= busy[region]
            ]
            if not open_now:
                break
            region = min(open_now, key=lambda name: waiting[name][0])
            heappush(running, (now + waiting[region].popleft()[1], region))
            busy[region] += 1
        now, region = heappop(running)
        busy[region] -= 1
    return now

"""What is to be done next in a rollout: a pure function of its plan, its state and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TypeAlias

from rayfleet.rollout.model import Direction, OnFailure, Plan, Settings
from rayfleet.rollout.state import GOOD, ClusterState, Outcome, Result, State, Way
from rayfleet.rollout.verdict import budget_spent, once_more, result_of, unproven

Start: TypeAlias = tuple[str, Direction]
TO_TAKE_BACK = GOOD | {Outcome.FAILED, Outcome.INCONCLUSIVE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now; all of the fields that are set.

    ``start`` names clusters to begin or to go on with. ``bake``: begin the bake of this wave
    (write BAKING). ``baked``: its time is up, or there is nothing to wait for (write BAKED).
    ``pause``: write PAUSED with this reason and end. ``result``: write FINISHED and end.
    ``wait_until``: a bake ends then (seconds since 1970).
    """

    start: tuple[Start, ...] = ()
    bake: int | None = None
    baked: int | None = None
    pause: str = ""
    result: Result | None = None
    wait_until: float | None = None


def decide(plan: Plan, state: State, *, now: float, in_flight: Collection[str]) -> Decision:
    """What to do next. ``in_flight`` are the clusters that a living thread works on.

    ``now`` is in seconds since 1970. Clusters that were begun and have neither an end nor a
    thread (the process was killed) go on first, whatever has failed or was asked for since, and
    count against the limits.
    """
    if state.result is not None or state.paused:
        return Decision(result=state.result, pause=state.paused)
    look = _Look(plan, state, frozenset(in_flight))
    unsure, halves = look.inconclusive(), look.halves()
    wanted = [*look.again(), *look.ways_back()]
    others = look.busy.union(name for name, _ in (*halves, *wanted))
    fresh = [] if unsure else look.fresh(others)
    wanted += [(name, Direction.FORWARD) for name in fresh]
    bake = look.bake(now)
    quiet = ""
    if state.pause_wanted:
        left = bool(wanted) or bake.bake is not None or bake.wait_until is not None
        quiet = f"asked by {state.pause_wanted}" if left else ""
        wanted, bake = [], Decision(baked=bake.baked)
    start = tuple(_fitting(look, halves, wanted))
    if start or look.busy or bake != Decision():
        return replace(bake, start=start)
    if unsure:
        return Decision(pause=f"inconclusive gates: {', '.join(unsure)}")
    return Decision(pause=quiet) if quiet else Decision(result=result_of(state))


class _Look:
    """A plan and its state, looked at once."""

    def __init__(self, plan: Plan, state: State, busy: frozenset[str]) -> None:
        self.plan = plan
        self.state = state
        self.busy = busy
        self.spent = budget_spent(plan, state)
        self.wave = next((n for n in range(len(plan.waves)) if not self._is_finished(n)), None)

    def halves(self) -> list[Start]:
        """What was begun and has neither an end nor a thread."""
        return [
            (name, direction)
            for name, direction, way in self._open_ways()
            if way.begun is not None and not way.again
        ]

    def again(self) -> list[Start]:
        """What an operator wants tried again from where it stands, or taken back again."""
        return [
            (name, direction)
            for name, direction, way in self._open_ways()
            if way.again and (direction is Direction.BACK or way.touched)
        ]

    def ways_back(self) -> list[Start]:
        """What is to be taken back and has not begun to, who ended last first."""
        clusters = self.state.clusters
        names = [n for n, c in clusters.items() if n not in self.busy and self._goes_back(c)]
        names.sort(key=lambda name: _ended_at(clusters[name]), reverse=True)
        return [(name, Direction.BACK) for name in names]

    def inconclusive(self) -> list[str]:
        """Clusters that a person has to look at before anything else begins."""
        if self.state.aborted:
            return []
        clusters = self.state.clusters
        return [name for name, each in clusters.items() if _last(each) is Outcome.INCONCLUSIVE]

    def fresh(self, others: Collection[str]) -> list[str]:
        """Clusters of the wave at hand that may go forward now, from where they were before the
        rollout. ``others`` are those that go on."""
        if self.wave is None or self.state.aborted:
            return []
        wave = self.plan.waves[self.wave].clusters
        names = [name for name in wave if name not in self.busy and self._is_new(name)]
        if not names and not self.spent:
            names = self._locked(wave)
        missing = unproven(self.plan, self.state)
        if not missing or not names:
            return names
        if not missing.isdisjoint(map(self._digest, others)):
            return []
        before = list(takewhile(lambda name: self._digest(name) not in missing, names))
        return before or ([] if others else names[:1])

    def bake(self, now: float) -> Decision:
        """What the bake of the wave at hand wants, once all of the wave has ended."""
        if self.wave is None or self.spent or self.state.aborted:
            return Decision()
        number, plan, state = self.wave, self.plan, self.state
        names = plan.waves[number].clusters
        if not all(map(self._is_at_rest, names)):
            return Decision()
        if plan.settings.bake <= 0 or state.full or not any(map(self._is_well, names)):
            return Decision(baked=number)
        until = state.baking.get(number)
        if until is None:
            return Decision(bake=number)
        return Decision(baked=number) if now >= until else Decision(wait_until=until)

    def _open_ways(self) -> Iterator[tuple[str, Direction, Way]]:
        for name, cluster in self.state.clusters.items():
            forward, back = cluster.forward, cluster.back
            if forward is None or name in self.busy:
                continue
            if forward.outcome is None:
                yield name, Direction.FORWARD, forward
            elif back is not None and back.outcome is None:
                yield name, Direction.BACK, back

    def _goes_back(self, cluster: ClusterState) -> bool:
        """Whether it is to be taken back, by request or by policy, and has not begun to."""
        forward, back = cluster.forward, cluster.back
        if forward is None or forward.outcome is None:
            return False
        if back is not None:
            return back.begun is None and back.outcome is None
        by_policy = not self.state.aborted
        policy = self.plan.settings.on_failure
        whole = by_policy and policy is OnFailure.ROLLBACK_ALL and self.spent
        if self.state.all_back or whole:
            return forward.outcome in TO_TAKE_BACK
        failed = forward.outcome is Outcome.FAILED
        return by_policy and policy is OnFailure.ROLLBACK_FAILED and failed

    def _is_finished(self, wave: int) -> bool:
        names = self.plan.waves[wave].clusters
        return wave in self.state.baked and all(map(self._is_at_rest, names))

    def _is_at_rest(self, name: str) -> bool:
        """Whether nothing is done with the cluster or is to be done."""
        cluster = self.state.clusters[name]
        forward, back = cluster.forward, cluster.back
        if name in self.busy or forward is None or forward.outcome is None or once_more(forward):
            return False
        if _last(cluster) is Outcome.INCONCLUSIVE:
            return False
        return not self._goes_back(cluster) if back is None else back.outcome is not None

    def _is_well(self, name: str) -> bool:
        cluster = self.state.clusters[name]
        return cluster.back is None and _last(cluster) in GOOD

    def _is_new(self, name: str) -> bool:
        """Whether it is to go forward and was not touched yet; who asked for it in spite of a
        spent budget gets it."""
        forward = self.state.clusters[name].forward
        return not self.spent if forward is None else forward.again and not forward.touched

    def _locked(self, wave: Collection[str]) -> list[str]:
        """Those of a wave that were locked once, when all else of it has ended."""
        ways = {name: self.state.clusters[name].forward for name in wave}
        locked = [name for name, way in ways.items() if way is not None and once_more(way)]
        others = [name for name in wave if name not in locked]
        if not self.busy.isdisjoint(wave) or not all(map(self._is_at_rest, others)):
            return []
        return locked

    def _digest(self, name: str) -> str:
        return self.plan.targets[name].digest_wanted


def _last(cluster: ClusterState) -> Outcome | None:
    """How its last way has ended."""
    way = cluster.back or cluster.forward
    return None if way is None else way.outcome


def _ended_at(cluster: ClusterState) -> float:
    way = cluster.forward
    return 0.0 if way is None or way.ended is None else way.ended.timestamp()


@dataclass(slots=True, kw_only=True)
class _Slots:
    """What is in flight, held against the limits."""

    settings: Settings
    count: int = 0
    regions: Counter[str] = field(default_factory=Counter)

    def fits(self, region: str) -> bool:
        limits = self.settings
        if 0 < limits.parallel <= self.count:
            return False
        return not 0 < limits.per_region <= self.regions[region]

    def take(self, region: str) -> None:
        self.count += 1
        self.regions[region] += 1


def _fitting(look: _Look, halves: Iterable[Start], wanted: Iterable[Start]) -> Iterator[Start]:
    """Those that may start now, in their order. What is half done takes its place even while
    it waits."""
    regions = {name: target.region for name, target in look.plan.targets.items()}
    slots = _Slots(settings=look.plan.settings)
    for name in look.busy:
        slots.take(regions[name])
    waiting = []
    for start in halves:
        if slots.fits(regions[start[0]]):
            slots.take(regions[start[0]])
            yield start
        else:
            waiting.append(start)
    for name, _ in waiting:
        slots.take(regions[name])
    for start in wanted:
        if slots.fits(regions[start[0]]):
            slots.take(regions[start[0]])
            yield start

"""What holds for every rollout, whatever fails, is asked for, or dies in the middle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayfleet.rollout.fold import apply, fold
from rayfleet.rollout.journal.records import Kind, Record, parse_record
from rayfleet.rollout.machine import Decision, decide
from rayfleet.rollout.model import (
    Change,
    Direction,
    OnFailure,
    Output,
    Owed,
    Plan,
    Settings,
    Step,
    Wave,
)
from rayfleet.rollout.plan.waves import make_waves
from rayfleet.rollout.requests import Verb
from rayfleet.rollout.state import ClusterState, Outcome, Result, State, Way
from tests.support.rollout_examples import make_plan, make_target
from tests.support.rollout_ground import OURS, Ground, Notes
from tests.support.rollout_model import Decide, Model, Scenario

seeds = st.integers(0, 2**48)
MANY = 10_000


def make_fleet(random: Random) -> Plan:
    """A plan with some clusters, digests, regions, limits and waves."""
    count = random.choice((1, 2, 3, 4, 5, 6, 9))
    targets = []
    for number in range(count):
        change = Change.START if random.random() < 0.2 else Change.RESTART
        target = make_target(f"us-r{random.randrange(3)}-c{number}", change=change)
        targets.append(replace(target, digest_wanted=f"sha256:{random.choice('aab')}"))
    names = [target.cluster for target in targets]
    waves = make_waves(
        targets,
        order=random.sample(names, random.choice((0, 0, 1, 2)) % (count + 1)),
        waves=random.choice(((1, "25%", "100%"), ("50%",), (2,), ("100%",))),
        on_target=random.choice(((), (), ("sha256:a",), ("sha256:a", "sha256:b"))),
    )
    limits = Settings(
        parallel=random.choice((1, 1, 2, 3, 0)),
        per_region=random.choice((0, 1, 1, 2)),
        max_failures=random.choice((0, 0, 1, 3)),
        max_untouched=random.choice((0, 0, 1, 3)),
        on_failure=random.choice(tuple(OnFailure)),
        bake=random.choice((0.0, 30.0, 600.0)),
        preserve_jobs=random.random() < 0.8,
    )
    return make_plan(waves, targets, settings=limits)


def make_scenario(random: Random, *, always: bool = False) -> Scenario:
    """A plan and what fails, ``always`` or a few times."""
    plan = make_fleet(random)
    names = list(plan.targets)
    faults: dict[tuple[str, Direction, Step], tuple[str, int]] = {}
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        times = 0 if always else random.choice((0, 1, 1, 2))
        direction = random.choice((Direction.FORWARD, Direction.FORWARD, Direction.BACK))
        kind = random.choice(("error", "error", "inconclusive", "alone"))
        step = random.choice(tuple(Step))
        if kind != "error":
            step = Step.GATES if kind == "inconclusive" else Step.PREFLIGHT
        faults[random.choice(names), direction, step] = (kind, times)
    return Scenario(
        plan=plan,
        faults=faults,
        locked={
            random.choice(names): 0 if always else random.choice((0, 1, 2, 3))
            for _ in range(random.choice((0, 0, 0, 1, 2)))
        },
        troubled=_some(random, names, 0.15),
        jobless=_some(random, names, 0.1),
        schedule=random.getrandbits(32),
    )


def _some(random: Random, names: Collection[str], chance: float) -> frozenset[str]:
    return frozenset(name for name in names if random.random() < chance)


def make_request(random: Random, plan: Plan) -> Output:
    """Something that an operator may ask for."""
    names = random.sample(list(plan.targets), min(len(plan.targets), random.choice((0, 1, 1, 2))))
    full = random.random() < 0.2
    return {"verb": random.choice(tuple(Verb)).value, "clusters": names, "by": "bo@x", "full": full}


def disturbed(random: Random, scenario: Scenario) -> Scenario:
    """The same with kills and operators."""
    names = list(scenario.plan.targets)
    numbers = range(1, 40 + 30 * len(names))
    asks = random.choice((0, 0, 1, 3, 6))
    return replace(
        scenario,
        kills=frozenset(random.sample(numbers, random.choice((0, 1, 3, 12)))),
        early=frozenset(random.sample(numbers, random.choice((0, 1, 3, 12)))),
        requests={n: make_request(random, scenario.plan) for n in random.sample(numbers, asks)},
        after=tuple(
            make_request(random, scenario.plan) if random.random() < 0.7 else {}
            for _ in range(random.choice((0, 1, 2, 5)))
        ),
        users={
            n: (random.choice(("submit", "submit", "end")), random.choice(names))
            for n in random.sample(numbers, random.choice((0, 2, 8)))
        },
        hands=tuple(
            tuple(make_hand(random, names) for _ in range(random.choice((0, 1, 2, 4))))
            for _ in range(random.choice((0, 0, 2, 6)))
        ),
    )


def make_hand(random: Random, names: Sequence[str]) -> tuple[str, str]:
    """Something that somebody does to a cluster while nobody carries its rollout out."""
    return random.choice(("unlock", "drop", "restart", "submit", "submit")), random.choice(names)


def undisturbed(random: Random) -> Scenario:
    """A scenario whose end does not depend on which cluster is quicker: one at a time, or
    nothing that stops the others of a wave."""
    scenario = make_scenario(random, always=True)
    if random.random() < 0.5:
        return with_settings(scenario, parallel=1)
    faults = {key: what for key, what in scenario.faults.items() if what[0] != "inconclusive"}
    scenario = replace(scenario, faults=faults, troubled=frozenset())
    return with_settings(scenario, max_failures=MANY, max_untouched=MANY)


def with_settings(scenario: Scenario, **changed: Any) -> Scenario:
    """The scenario with other limits."""
    limits = replace(scenario.plan.settings, **changed)
    return replace(scenario, plan=replace(scenario.plan, settings=limits))


def ending(state: State) -> object:
    """What counts of a final state: when things happened and how often does not."""
    return (
        state.result,
        state.paused,
        state.baked,
        {
            name: [
                way and (way.outcome, way.step, frozenset(way.outputs), way.error)
                for way in (cluster.forward, cluster.back)
            ]
            for name, cluster in state.clusters.items()
        },
    )


@settings(max_examples=800)
@given(seed=seeds)
def test_no_rollout_breaks_a_rule_and_each_comes_to_an_end(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    Model(disturbed(random, make_scenario(random))).run()


@settings(max_examples=400)
@given(seed=seeds)
def test_a_rollout_that_is_killed_ends_as_one_that_is_not(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    scenario = undisturbed(random)
    quiet = Model(scenario)
    expected = ending(quiet.run())
    numbers = range(1, len(quiet.records) + 1)
    kills = frozenset(random.sample(numbers, min(len(numbers), random.choice((1, 2, 8)))))
    early = frozenset(random.sample(numbers, min(len(numbers), random.choice((0, 1, 8)))))
    schedule = random.getrandbits(32)
    killed = Model(replace(scenario, kills=kills, early=early, schedule=schedule))
    assert ending(killed.run()) == expected


@pytest.mark.parametrize("policy", OnFailure)
def test_a_kill_after_any_record_changes_nothing_in_the_end(policy: OnFailure) -> None:
    names = [f"us-r{number % 2}-c{number}" for number in range(4)]
    waves = make_waves([make_target(name) for name in names], order=(), waves=(2,), on_target=())
    limits = Settings(parallel=1, max_failures=1, on_failure=policy, bake=60.0)
    plan = make_plan(waves, map(make_target, names), settings=limits)
    fault = {(names[1], Direction.FORWARD, Step.JOBS): ("error", 0)}
    bad_back = {(names[1], Direction.BACK, Step.START): ("error", 0)}
    scenario = Scenario(plan=plan, faults=fault | bad_back, troubled=frozenset(names[2:3]))
    quiet = Model(scenario)
    expected = ending(quiet.run())
    for number in range(1, len(quiet.records)):
        assert ending(Model(replace(scenario, kills=frozenset({number}))).run()) == expected
        assert ending(Model(replace(scenario, early=frozenset({number}))).run()) == expected


@settings(max_examples=60)
@given(seed=seeds)
def test_what_a_journal_says_is_what_the_engine_knew(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    model = Model(disturbed(random, make_scenario(random)))
    state = model.run()
    records = [parse_record(record.line()) for record in model.records]
    assert records == model.records
    assert fold(model.plan, records) == state


# The properties see what they are for: each of these breaks one rule.


def _other_limits(**changed: Any) -> Decide:
    def broken(plan: Plan, state: State, *, now: float, in_flight: Collection[str]) -> Decision:
        other = replace(plan, settings=replace(plan.settings, **changed))
        return decide(other, state, now=now, in_flight=in_flight)

    return broken


def _other_state(change: Callable[[Plan, State], State]) -> Decide:
    def broken(plan: Plan, state: State, *, now: float, in_flight: Collection[str]) -> Decision:
        return decide(plan, change(plan, state), now=now, in_flight=in_flight)

    return broken


def _other_decision(change: Callable[[State, Decision], Decision]) -> Decide:
    def broken(plan: Plan, state: State, *, now: float, in_flight: Collection[str]) -> Decision:
        return change(state, decide(plan, state, now=now, in_flight=in_flight))

    return broken


def _one_wave(plan: Plan, state: State, *, now: float, in_flight: Collection[str]) -> Decision:
    flat = replace(plan, waves=(Wave(name="all", clusters=tuple(plan.targets)),))
    return decide(flat, state, now=now, in_flight=in_flight)


def _no_threads(plan: Plan, state: State, *, now: float, in_flight: Collection[str]) -> Decision:
    return decide(plan, state, now=now, in_flight=())


def _with_outcomes(state: State, old: Collection[Outcome], new: Outcome | None) -> State:
    def change(cluster: ClusterState) -> ClusterState:
        way = cluster.forward
        if way is None or way.outcome not in old:
            return cluster
        return replace(cluster, forward=None if new is None else replace(way, outcome=new))

    return replace(state, clusters={n: change(each) for n, each in state.clusters.items()})


def _without_starts(state: State, decision: Decision, direction: Direction) -> Decision:
    """Leave those alone that were begun in that direction and then killed."""

    def begun(name: str) -> bool:
        way = state.clusters[name].way(direction)
        return way is not None and way.begun is not None

    left = tuple(s for s in decision.start if s[1] is not direction or not begun(s[0]))
    return replace(decision, start=left)


BROKEN: dict[str, tuple[str, Decide]] = {
    "the limit over all": ("too many in flight", _other_limits(parallel=0)),
    "the limit per region": ("too many in a region", _other_limits(per_region=0)),
    "the budget of failures": ("spent budget", _other_limits(max_failures=MANY)),
    "the budget of untouched ones": ("spent budget", _other_limits(max_untouched=MANY)),
    "failed ones go back": ("is not back", _other_limits(on_failure=OnFailure.STOP)),
    "all go back": ("is not back", _other_limits(on_failure=OnFailure.ROLLBACK_FAILED)),
    "only what has to goes back": (
        "nobody wants it back",
        _other_limits(on_failure=OnFailure.ROLLBACK_ALL),
    ),
    "waves bake": ("baked too early", _other_limits(bake=0.0)),
    "waves come one after the other": ("an earlier wave", _one_wave),
    "one thread for a cluster": ("two threads", _no_threads),
    "waves wait for bakes": (
        "has not baked",
        _other_state(lambda plan, state: replace(state, baked=frozenset(range(len(plan.waves))))),
    ),
    "an abort is heard": (
        "in spite of an abort",
        _other_state(lambda _, state: replace(state, aborted=False)),
    ),
    "a pause is heard": (
        "in spite of a pause",
        _other_state(lambda _, state: replace(state, pause_wanted="")),
    ),
    "what is done is done once": (
        "forward once more",
        _other_state(lambda _, state: _with_outcomes(state, {Outcome.DONE}, None)),
    ),
    "what is left out is not begun": (
        "forward once more",
        _other_state(lambda _, state: _with_outcomes(state, {Outcome.SKIPPED}, None)),
    ),
    "a canary that was left out proves nothing": (
        "canary",
        _other_state(lambda _, state: _with_outcomes(state, {Outcome.SKIPPED}, Outcome.DONE)),
    ),
    "inconclusive gates stop the others": (
        "inconclusive gates",
        _other_state(lambda _, state: _with_outcomes(state, {Outcome.INCONCLUSIVE}, Outcome.DONE)),
    ),
    "a locked one is tried once more": (
        "not tried once more",
        _other_state(lambda _, state: _with_outcomes(state, {Outcome.LOCKED}, Outcome.SKIPPED)),
    ),
    "killed ones go on": (
        "neither goes on nor ends",
        _other_decision(lambda state, this: _without_starts(state, this, Direction.FORWARD)),
    ),
    "killed ways back go on": (
        "neither goes on nor ends",
        _other_decision(lambda state, this: _without_starts(state, this, Direction.BACK)),
    ),
    "the result is true": (
        "a wrong result",
        _other_decision(lambda _, this: replace(this, result=this.result and Result.DONE)),
    ),
    "it ends": (
        "neither goes on nor ends",
        _other_decision(lambda _, this: replace(this, result=None, pause="")),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_the_properties_see_it_when_a_rule_is_broken(rule: str) -> None:
    complaint, broken = BROKEN[rule]
    for seed in range(600):
        random = Random(seed)  # noqa: S311
        scenario = disturbed(random, make_scenario(random))
        try:
            Model(scenario, decide=broken).run()
        except (AssertionError, KeyError, RuntimeError) as error:
            if complaint in str(error):
                return
    raise AssertionError(f"nobody complains of: {complaint}")


class BlindStop(Ground):
    """Ends a head by what an earlier process saw."""

    def stop(self, owed: Sequence[Owed]) -> Notes:
        yield from ()
        self._lose()
        return {}


class BlindEmpty(Ground):
    """Looks before the stop, and not at a head that somebody has started after it."""

    def perform(
        self, step: Step, direction: Direction, owed: Sequence[Owed], *, changed: bool
    ) -> Notes:
        if step is Step.EMPTY:
            self._lose()
            return {}
        return (yield from super().perform(step, direction, owed, changed=changed))


class BlindStart(Ground):
    """Sets a head up anew that is there."""

    def start(self, direction: Direction, owed: Sequence[Owed]) -> Notes:
        yield from ()
        wanted = "old" if direction is Direction.BACK else "new"
        if not (self.head and self.image == wanted):
            self._lose()
            self.head, self.image = OURS, wanted
        return {}


class Late(Ground):
    """Notes what it asks to end after it has done so."""

    def look(self, owed: Sequence[Owed]) -> Notes:
        self.stopped |= set(self.running)
        self.running = []
        return (yield from super().look(owed))


class Resurrecting(Ground):
    """Takes no ending out of what is owed."""

    def _see_ends(self, asked: set[str]) -> None:
        pass

    def _give_back(self, owed: Sequence[Owed]) -> None:
        self.ended.clear()
        super()._give_back(owed)


class Stingy(Ground):
    """Gives back what was there at first, and nothing that came late."""

    def _give_back(self, owed: Sequence[Owed]) -> None:
        super()._give_back([replace(one, jobs=one.jobs[:2]) for one in owed])


class Ungrateful(Model):
    """A way back does not know what the way forward has taken."""

    def _owed(self, name: str, direction: Direction) -> tuple[Owed, ...]:
        return (self.state.clusters[name].way(direction) or Way()).owed


def _without_notes(plan: Plan, state: State, record: Record) -> State:
    """Forget what a step notes of the jobs that it asks to end."""
    if record.kind is Kind.NOTE:
        record = replace(record, data={})
    return apply(plan, state, record)


def _any_lease(plan: Plan, state: State, record: Record) -> State:
    """Take any lease for the one of before."""
    if record.kind is Kind.HELD:
        record = replace(record, data={})
    return apply(plan, state, record)


def _held_for_ever(plan: Plan, state: State, record: Record) -> State:
    """Take a cluster that was given free for one that is held."""
    return state if record.kind is Kind.RELEASED else _any_lease(plan, state, record)


def _anew_without_debts(plan: Plan, state: State, record: Record) -> State:
    """Begin a cluster anew that was free, as if nothing were owed to it."""
    after = apply(plan, state, record)
    if record.kind is not Kind.HELD:
        return after
    cluster = after.clusters[record.cluster]
    way = cluster.way(record.direction)
    if way is None or way.outputs:
        return after
    name = "back" if record.direction is Direction.BACK else "forward"
    changed = replace(cluster, **{name: replace(way, owed=())})
    return replace(after, clusters={**after.clusters, record.cluster: changed})


LOSING: dict[str, tuple[str, Callable[[Scenario], Model]]] = {
    "who stops looks first": ("is lost", partial(Model, ground=BlindStop)),
    "a head that came after the stop is looked at": ("is lost", partial(Model, ground=BlindEmpty)),
    "a head that is set up anew is looked at": ("is lost", partial(Model, ground=BlindStart)),
    "a job is owed before it is asked to end": ("is lost", partial(Model, ground=Late)),
    "notes say what is owed": ("is lost", partial(Model, apply=_without_notes)),
    "a release leaves what is owed": ("is lost", partial(Model, apply=_anew_without_debts)),
    "a way back owes what the way forward took": ("is not given back", Ungrateful),
    "a free cluster begins anew": ("goes on", partial(Model, apply=_held_for_ever)),
    "another lease means that it was free": ("goes on", partial(Model, apply=_any_lease)),
    "what has ended stays so": ("came back after its end", partial(Model, ground=Resurrecting)),
    "all is given back": ("is not given back", partial(Model, ground=Stingy)),
}


@pytest.mark.parametrize("rule", LOSING)
def test_the_properties_see_it_when_a_job_is_lost(rule: str) -> None:
    complaint, broken = LOSING[rule]
    for seed in range(2000):
        random = Random(seed)  # noqa: S311
        scenario = disturbed(random, make_scenario(random))
        try:
            broken(scenario).run()
        except (AssertionError, KeyError, RuntimeError) as error:
            if complaint in str(error):
                return
    raise AssertionError(f"nobody complains of: {complaint}")

"""A model of the engine of rollouts, its clusters and its operators, which checks as it goes.

It writes the records that the engine writes, one at a time and interleaved at random, and dies
before or after any of them. Meanwhile users submit jobs to the heads themselves, and between two
runs clusters are unlocked and restarted by hand. What the state machine decides is held against
the rules of a rollout, which are written down here a second time; the jobs against the one rule
that none is lost and none comes back after its end (see rollout_ground.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from random import Random

from rayfleet.rollout.fold import apply, begin
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.machine import Decision, decide
from rayfleet.rollout.model import (
    TOUCHING,
    Change,
    Direction,
    OnFailure,
    Output,
    Owed,
    Plan,
    Step,
    steps_of,
)
from rayfleet.rollout.state import (
    FAILURES,
    GOOD,
    ClusterState,
    Outcome,
    Result,
    State,
    Way,
)
from tests.support.rollout_ground import Ground, Refused

Apply = Callable[[Plan, State, Record], State]
EPOCH = datetime(2026, 11, 21, tzinfo=UTC)
ENDLESS = 6000  # records; no scenario needs a third of them

Decide = Callable[..., Decision]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What happens to a rollout.

    ``faults`` maps a step to what it raises ("error", "inconclusive", "alone") and how often
    (0: always). ``locked`` says how often others hold a cluster (0: always). ``troubled`` turn
    bad in a bake, ``jobless`` lose a job. The process dies after the records with the numbers
    ``kills``, or right before those of ``early`` are written. ``requests`` come after the records
    with those numbers, ``after`` one by one whenever the rollout rests. ``users`` do something to
    a cluster after the records with those numbers ("submit" a job, "end" one), ``hands`` one by
    one whenever nobody carries the rollout out: they "unlock" a cluster, or "drop" its lease
    unsaid, "restart" it by hand, or "submit" a job.
    """

    plan: Plan
    faults: Mapping[tuple[str, Direction, Step], tuple[str, int]] = field(default_factory=dict)
    locked: Mapping[str, int] = field(default_factory=dict)
    troubled: frozenset[str] = frozenset()
    jobless: frozenset[str] = frozenset()
    kills: frozenset[int] = frozenset()
    early: frozenset[int] = frozenset()
    requests: Mapping[int, Output] = field(default_factory=dict)
    after: tuple[Output, ...] = ()
    users: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    hands: tuple[tuple[tuple[str, str], ...], ...] = ()
    schedule: int = 0


class _Killed(Exception):
    """The process died."""


class Model:
    """Carries out a scenario; raises AssertionError when a rule is broken."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        decide: Decide = decide,
        apply: Apply = apply,
        ground: Callable[..., Ground] = Ground,
    ) -> None:
        self.scenario = scenario
        self.plan = scenario.plan
        self.records: list[Record] = []
        self.state = begin(self.plan)
        self.now = EPOCH.timestamp()
        self._decide = decide
        self._apply = apply
        self.grounds = {
            name: ground(name, target.change, self.plan.settings.preserve_jobs)
            for name, target in self.plan.targets.items()
        }
        self._leases: dict[str, str] = {}
        self._freed: set[str] = set()
        self._hands = list(scenario.hands)
        self._early = set(scenario.early)
        self._random = Random(scenario.schedule)  # noqa: S311
        self._threads: dict[str, Iterator[None]] = {}
        self._used: Counter[object] = Counter()
        self._done: set[tuple[str, Direction, Step]] = set()
        self._troubled = set(scenario.troubled)

    def run(self) -> State:
        """Until nobody asks for anything and the rollout rests."""
        after = list(self.scenario.after)
        while True:
            try:
                if self.state.result is None:
                    self._process()
            except _Killed:
                self._threads.clear()
                known, self.state = self.state, self._folded()
                assert self.state == known
                self._by_hand()
                continue
            if self.state.result is None and not self.state.paused:
                continue  # somebody has asked for more at the last moment
            self._by_hand()
            if not after:
                return self.state
            request = after.pop(0)
            if request:  # else it is only taken up again
                self._request(request)

    def _folded(self) -> State:
        state = begin(self.plan)
        for record in self.records:
            state = self._apply(self.plan, state, record)
        return state

    def _by_hand(self) -> None:
        """What people do while nobody carries it out."""
        for what, name in self._hands.pop(0) if self._hands else ():
            ground = self.grounds[name]
            if what == "submit":
                ground.submit()
            elif what == "restart":
                ground.restart_by_hand()
            elif name in self._leases:
                del self._leases[name]
                self._freed.add(name)
                self._done = {each for each in self._done if each[0] != name}
                if what == "unlock":
                    self._append(Kind.RELEASED, cluster=name)

    def _process(self) -> None:
        """One process that drives it."""
        self._write(Kind.BEGUN, data={"by": "ana@ops-1"})
        while True:
            self._bake_trouble()
            decision = self._decide(
                self.plan, self.state, now=self.now, in_flight=frozenset(self._threads)
            )
            self._check(decision)
            if decision.bake is not None:
                until = self.now + self.plan.settings.bake
                self._write(Kind.BAKING, data={"wave": decision.bake, "until": until})
            elif decision.baked is not None:
                self._write(Kind.BAKED, data={"wave": decision.baked})
            elif decision.start:
                for name, direction in decision.start:
                    self._check_start(name, direction)
                    self._threads[name] = self._thread(name, direction)
            elif self._threads:
                self._advance()
            elif decision.result is not None:
                self._check_end(decision.result)
                return self._write(Kind.FINISHED, data={"result": decision.result.value})
            elif decision.pause:
                unsure = self._inconclusive() and not self.state.aborted
                assert self.state.pause_wanted or unsure, "a pause without a cause"
                return self._write(Kind.PAUSED, data={"reason": decision.pause})
            else:
                assert decision.wait_until is not None, "it neither goes on nor ends"
                assert decision.wait_until > self.now
                self.now = decision.wait_until

    def _advance(self) -> None:
        """Let threads write records until one has ended or somebody has asked for something."""
        while True:
            name = self._random.choice(sorted(self._threads))
            before = len(self.records)
            if next(self._threads[name], "ended") == "ended":
                del self._threads[name]
                return
            if any(record.kind is Kind.REQUEST for record in self.records[before:]):
                return

    def _thread(self, name: str, direction: Direction) -> Iterator[None]:
        """What a thread of the engine does with one cluster, record by record."""

        def write(kind: Kind, step: Step | None = None, data: Output | None = None) -> None:
            self._write(kind, cluster=name, direction=direction, step=step, data=data)

        target, settings = self.plan.targets[name], self.plan.settings
        way = self.state.clusters[name].way(direction) or Way()
        touched = way.touched or direction is Direction.BACK
        todo = [s for s in steps_of(target, settings, direction) if s not in way.outputs]
        yield
        if self._strikes(("locked", name), self.scenario.locked.get(name)):
            write(Kind.FAILED, todo[0], {"what": "it is locked"})
            yield
            outcome = Outcome.FAILED if touched else Outcome.LOCKED
            return write(Kind.CLUSTER, data={"outcome": outcome.value})
        lease = self._leases.setdefault(name, f"{name} {len(self.records)}")
        write(Kind.HELD, data={"lease": lease})
        way = self.state.clusters[name].way(direction) or Way()
        touched = way.touched_again or direction is Direction.BACK
        steps = steps_of(target, settings, direction)
        todo = [step for step in steps if step not in way.outputs]
        if name in self._freed:
            assert todo[0] is steps[0], f"{name} was free, and goes on"
        self._freed.discard(name)
        outcome = Outcome.WITHOUT_JOBS if name in self.scenario.jobless else Outcome.DONE
        for step in todo:
            yield
            assert (name, direction, step) not in self._done, f"{name}: {step} once more"
            write(Kind.INTENT, step)
            touched = touched or step in TOUCHING
            yield
            kind, times = self.scenario.faults.get((name, direction, step), ("", None))
            strikes = self._strikes((name, direction, step), times)
            if strikes and kind == "alone":
                outcome = Outcome.SKIPPED
                break
            # Some fail when they have done their work.
            if not strikes or (kind == "error" and self._random.random() < 0.5):
                output: Output = {}
                try:
                    output = yield from self._performed(name, direction, step, write)
                except Refused as refused:
                    strikes, kind = True, str(refused)
            if not strikes:
                write(Kind.DONE, step, {"of": name, **output})
                continue
            write(Kind.FAILED, step, {"what": kind})
            outcome = Outcome.FAILED if touched else Outcome.UNTOUCHED
            outcome = Outcome.INCONCLUSIVE if kind == "inconclusive" else outcome
            break
        yield
        if outcome in GOOD:
            self._tell(name, direction)
        write(Kind.CLUSTER, data={"outcome": outcome.value})
        if outcome not in {Outcome.FAILED, Outcome.INCONCLUSIVE}:
            yield
            del self._leases[name]
            self._freed.add(name)
            write(Kind.RELEASED)

    def _tell(self, name: str, direction: Direction) -> None:
        """Jobs of a cluster that was only started end with its way back, which says so and leaves
        them in the vault."""
        started = self.plan.targets[name].change is Change.START
        if started and direction is Direction.BACK:
            left = self._owed(name, direction)
            self.grounds[name].gone |= {job for owed in left for job in owed.jobs}

    def _performed(
        self, name: str, direction: Direction, step: Step, write: Callable[..., None]
    ) -> Generator[None, None, Output]:
        """Let a step work on its cluster, and write its notes; returns its output."""
        way = self.state.clusters[name].way(direction) or Way()
        owed = self._owed(name, direction)
        work = self.grounds[name].perform(step, direction, owed, changed=way.touched)
        try:
            while True:
                write(Kind.NOTE, step, next(work))
                yield
        except StopIteration as ended:
            output: Output = ended.value
            return output

    def _owed(self, name: str, direction: Direction) -> tuple[Owed, ...]:
        """What a step is told that the cluster is to get back."""
        cluster = self.state.clusters[name]
        way, forward = cluster.way(direction) or Way(), cluster.forward or Way()
        return way.owed or (forward.owed if direction is Direction.BACK else ())

    def _strikes(self, key: object, times: int | None) -> bool:
        self._used[key] += 1
        return times is not None and (times == 0 or self._used[key] <= times)

    def _bake_trouble(self) -> None:
        baking = [name for wave in self.state.baking for name in self.plan.waves[wave].clusters]
        for name in sorted(self._troubled & set(baking)):
            if self._outcome(name) in GOOD and self.state.clusters[name].back is None:
                self._write(Kind.FAILED, cluster=name, step=Step.GATES, data={"what": "dead"})
                outcome = {"outcome": Outcome.FAILED.value}
                self._write(Kind.CLUSTER, cluster=name, data=outcome)
                self._troubled.discard(name)

    def _request(self, data: Output) -> None:
        """An operator asks for something, from another terminal."""
        self._append(Kind.REQUEST, data=data)
        again = {"retry": set(Direction), "rollback": {Direction.BACK}}.get(
            str(data["verb"]), set()
        )
        names = data.get("clusters") or list(self.plan.targets)
        assert isinstance(names, list)
        # Nothing else may bring back steps that are done.
        self._done = {each for each in self._done if each[0] not in names or each[1] not in again}

    def _write(
        self,
        kind: Kind,
        *,
        cluster: str = "",
        direction: Direction = Direction.FORWARD,
        step: Step | None = None,
        data: Output | None = None,
    ) -> None:
        if len(self.records) + 1 in self._early:
            self._early.discard(len(self.records) + 1)
            raise _Killed
        self._append(kind, cluster=cluster, direction=direction, step=step, data=data)
        if kind is Kind.DONE and step is not None:
            self._done.add((cluster, direction, step))
        number = len(self.records)
        if number in self.scenario.requests:
            self._request(self.scenario.requests[number])
        if number in self.scenario.kills:
            raise _Killed

    def _append(
        self,
        kind: Kind,
        *,
        cluster: str = "",
        direction: Direction = Direction.FORWARD,
        step: Step | None = None,
        data: Output | None = None,
    ) -> None:
        self.now += 1.0
        record = Record(
            number=len(self.records) + 1,
            at=EPOCH + timedelta(seconds=self.now - EPOCH.timestamp()),
            kind=kind,
            cluster=cluster,
            direction=direction,
            step=step,
            data=data or {},
        )
        assert record.number < ENDLESS, "it does not end"
        self.records.append(record)
        self.state = self._apply(self.plan, self.state, record)
        if record.number in self.scenario.users:
            what, name = self.scenario.users[record.number]
            ground = self.grounds[name]
            (ground.submit if what == "submit" else ground.end_one)()
        self._check_jobs()

    # The rules.

    def _check_jobs(self) -> None:
        """No job is lost: what a cluster has not is owed by a way of it."""
        for name, ground in self.grounds.items():
            cluster = self.state.clusters[name]
            ways = [way for way in (cluster.forward, cluster.back) if way is not None]
            ground.check([owed for way in ways for owed in way.owed])

    def _check(self, decision: Decision) -> None:
        """What holds for every decision as a whole."""
        limits = self.plan.settings
        names = [name for name, _ in decision.start]
        flying = [*self._threads, *names]
        assert len(flying) == len(set(flying)), "two threads for one cluster"
        assert not flying or (decision.result is None and not decision.pause), "an end too early"
        halves = {n for n, each in self.state.clusters.items() if _half_done(each)}
        if set(names) - halves:  # what is half done counts before anything new begins
            flying = list(halves.union(flying))
        assert limits.parallel == 0 or len(flying) <= limits.parallel, "too many in flight"
        regions = Counter(self.plan.targets[name].region for name in flying)
        most = max(regions.values(), default=0)
        assert limits.per_region == 0 or most <= limits.per_region, "too many in a region"
        if decision.baked is not None:
            wave = self.plan.waves[decision.baked].clusters
            assert all(self._has_ended(name) for name in wave), "baked before it has ended"
            if limits.bake > 0 and not self.state.full and any(map(self._is_well, wave)):
                until = self.state.baking.get(decision.baked, inf)
                assert until <= self.now, "baked too early"

    def _check_start(self, name: str, direction: Direction) -> None:
        """What holds for a cluster that is begun or goes on."""
        cluster = self.state.clusters[name]
        forward, back = cluster.forward, cluster.back
        if direction is Direction.BACK:
            assert forward is not None
            assert forward.outcome is not None, "two directions at once"
            if back is None:
                assert self._must_go_back(cluster), "nobody wants it back"
            else:
                assert back.outcome is None, "back once more"
            new = back is None or back.begun is None or back.again
            assert not (new and self.state.pause_wanted), "begun in spite of a pause"
            return
        if forward is not None and forward.outcome is None and not forward.again:
            return  # half done
        asked = forward is not None and forward.again
        once_more = forward is not None and forward.outcome is Outcome.LOCKED
        assert forward is None or asked or once_more, "forward once more"
        assert not self.state.pause_wanted, "begun in spite of a pause"
        assert not self.state.aborted, "begun in spite of an abort"
        if not asked:
            assert not self.spent(), "begun in spite of a spent budget"
        if forward is None or not forward.touched:
            assert not self._inconclusive(), "begun in spite of inconclusive gates"
            self._check_wave(name)
        if once_more and not asked:
            assert forward is not None
            assert forward.locked == 1, "locked twice is a failure"

    def _check_wave(self, name: str) -> None:
        number = next(n for n, wave in enumerate(self.plan.waves) if name in wave.clusters)
        for earlier, wave in enumerate(self.plan.waves[:number]):
            assert earlier in self.state.baked, "an earlier wave has not baked"
            assert all(map(self._has_ended, wave.clusters)), "an earlier wave has not ended"
            first = wave.clusters[0]
            if not wave.canary or self._is_well(first):
                continue
            # Left out or taken back: another one has shown the digest to be good, or this is
            # the one, alone.
            assert self._outcome(first) is Outcome.SKIPPED or self.state.clusters[first].back
            if self.plan.targets[name].digest_wanted == self.plan.targets[first].digest_wanted:
                alike = self._alike(first)
                assert any(map(self._is_well, alike)) or not self._threads, "no canary"
            else:
                assert not set(self._threads) & set(self._alike(first)) or any(
                    map(self._is_well, self._alike(first))
                ), "beside a canary"

    def _check_end(self, result: Result) -> None:
        """What holds when it is finished."""
        over = self.spent() or self.state.aborted
        failed = False
        for name, cluster in self.state.clusters.items():
            ways = [way for way in (cluster.forward, cluster.back) if way is not None]
            assert not any(map(_is_half_done, ways)), f"{name} is half done"
            assert over or cluster.forward is not None, f"{name} was forgotten"
            assert over or not any(way.again for way in ways), f"{name} was not tried again"
            assert cluster.back is not None or not self._must_go_back(cluster), (
                f"{name} is not back"
            )
            once = self._outcome(name) is Outcome.LOCKED and ways[0].locked == 1
            assert over or not once, f"{name} was not tried once more"
            started = self.plan.targets[name].change is Change.START
            if ways and ways[-1].outcome in GOOD and not (started and cluster.back):
                self.grounds[name].check_end()
            if self._outcome(name) is not Outcome.SKIPPED:
                failed = failed or any(way.outcome in FAILURES for way in ways)
        if not over:
            assert set(range(len(self.plan.waves))) == self.state.baked
            assert not self._inconclusive()
        assert (result is Result.FAILED) == failed, "a wrong result"
        ends = {self._outcome(name) for name in self.plan.targets}
        if result in {Result.DONE, Result.WITHOUT_JOBS}:
            assert ends <= GOOD | {Outcome.SKIPPED}, "a wrong result"
            assert (result is Result.WITHOUT_JOBS) == (Outcome.WITHOUT_JOBS in ends)
        asked = self.state.aborted or any(c.back for c in self.state.clusters.values())
        assert result is not Result.ABORTED or asked, "aborted by nobody"

    def spent(self) -> bool:
        """Whether nothing new may begin because of failures."""
        settings, bad, failed = self.plan.settings, set(), 0
        for name, cluster in self.state.clusters.items():
            way = cluster.forward
            if way is None or way.outcome not in FAILURES:
                continue
            if way.outcome is Outcome.LOCKED and way.locked == 1:
                continue
            bad.add(name)
            failed += way.outcome is Outcome.FAILED
        if failed > settings.max_failures or len(bad) - failed > settings.max_untouched:
            return True
        for wave in self.plan.waves:
            ends = [n in bad or self._outcome(n) is Outcome.SKIPPED for n in wave.clusters]
            if all(ends) and bad.intersection(wave.clusters):
                return True
            first = wave.clusters[0]
            gone = self._outcome(first) is Outcome.SKIPPED or self.state.clusters[first].back
            alike = self._alike(first)
            untried = gone and not any(map(self._is_well, alike))
            if wave.canary and untried and bad.intersection(alike):
                return True
        return False

    def _alike(self, name: str) -> list[str]:
        digest = self.plan.targets[name].digest_wanted
        return [n for n, target in self.plan.targets.items() if target.digest_wanted == digest]

    def _must_go_back(self, cluster: ClusterState) -> bool:
        outcome = None if cluster.forward is None else cluster.forward.outcome
        touched = outcome in GOOD | {Outcome.FAILED, Outcome.INCONCLUSIVE}
        if self.state.aborted:
            return touched and self.state.all_back
        if self.plan.settings.on_failure is OnFailure.ROLLBACK_FAILED:
            return outcome is Outcome.FAILED
        return self.plan.settings.on_failure is OnFailure.ROLLBACK_ALL and touched and self.spent()

    def _inconclusive(self) -> bool:
        ways = [cluster.back or cluster.forward for cluster in self.state.clusters.values()]
        return any(way is not None and way.outcome is Outcome.INCONCLUSIVE for way in ways)

    def _has_ended(self, name: str) -> bool:
        cluster = self.state.clusters[name]
        ways = [way for way in (cluster.forward, cluster.back) if way is not None]
        ended = bool(ways) and all(way.outcome is not None for way in ways)
        sure = ended and ways[-1].outcome is not Outcome.INCONCLUSIVE
        return sure and name not in self._threads

    def _is_well(self, name: str) -> bool:
        return self._outcome(name) in GOOD and self.state.clusters[name].back is None

    def _outcome(self, name: str) -> Outcome | None:
        way = self.state.clusters[name].forward
        return None if way is None else way.outcome


def _is_half_done(way: Way) -> bool:
    if any(ended is None for _, _, ended in way.times[-1:]):
        return True  # whatever it says of itself
    return way.begun is not None and way.outcome is None and not way.again


def _half_done(cluster: ClusterState) -> bool:
    return any(way and _is_half_done(way) for way in (cluster.forward, cluster.back))

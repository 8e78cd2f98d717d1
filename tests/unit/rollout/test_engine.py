"""The engine on fake clusters: order, limits, failures, requests, bakes, and what it tells."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.lease import Names, hold_cluster
from rayfleet.errors import Locked, PrerequisiteMissing, ToolFailed, UsageError
from rayfleet.rollout import verbs
from rayfleet.rollout.journal.file import Journal
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Direction, OnFailure, Output, Plan, Step, Target
from rayfleet.rollout.performer import LeftAlone, Task
from rayfleet.rollout.rehearsal import Failure, Mishap, Rehearsal
from rayfleet.rollout.state import Outcome, Result, State
from rayfleet.waiting import wait_until
from tests.support.rehearsals import (
    NEW,
    OLD,
    OPERATOR,
    Listener,
    create,
    done_again,
    faults,
    kinds,
    leases,
    make_plan,
    place_of,
    run,
)

BOB = "bob@lap"


def outcomes(state: State) -> Mapping[str, Outcome | None]:
    return {n: each.forward.outcome if each.forward else None for n, each in state.clusters.items()}


def back(state: State) -> Mapping[str, Outcome | None]:
    return {n: each.back.outcome for n, each in state.clusters.items() if each.back}


def error(state: State, cluster: str) -> Output:
    way = state.clusters[cluster].forward
    return way.error if way else {}


def truth(rollout: Rollout, cluster: str) -> Any:
    return Rehearsal(place_of(rollout)).look(cluster)


def begun(rollout: Rollout) -> list[str]:
    """Clusters in the order in which they were held first."""
    held = [each.cluster for each in rollout.records() if each.kind is Kind.HELD]
    return list(dict.fromkeys(held))


def broken(cluster: str, step: Step, mishap: Mishap = Mishap.REFUSED, **more: Any) -> Failure:
    return Failure(cluster=cluster, step=step, mishap=mishap, **more)


def test_every_cluster_is_changed_once_and_its_jobs_come_back(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b", "c"], ["d"], canary=True, start=["c"]))
    state = run(rollout)
    assert state.result is Result.DONE
    assert set(outcomes(state).values()) == {Outcome.DONE}
    assert faults(rollout) == []
    assert state == rollout.state()


def test_a_wave_begins_when_the_one_before_has_ended(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b", "c", "d"], ["e"], canary=True))
    run(rollout)
    order = begun(rollout)
    assert order[0] == "a"
    assert set(order[1:4]) == {"b", "c", "d"}
    assert order[4] == "e"


def most_at_once(records: tuple[Record, ...], plan: Plan, region: str = "") -> int:
    flying: set[str] = set()
    most = 0
    for record in records:
        if record.kind is Kind.HELD and region in {"", plan.targets[record.cluster].region}:
            flying.add(record.cluster)
        if record.kind is Kind.CLUSTER:
            flying.discard(record.cluster)
        most = max(most, len(flying))
    return most


@pytest.mark.parametrize(("parallel", "per_region"), [(1, 0), (3, 0), (8, 1), (5, 2)])
def test_never_more_at_once_than_allowed(tmp_path: Path, parallel: int, per_region: int) -> None:
    plan = make_plan([str(i) for i in range(10)], jobs=0, parallel=parallel, per_region=per_region)
    rollout = create(tmp_path, plan)
    run(rollout, performer=Rehearsal(tmp_path, seconds=0.002))
    assert 1 <= most_at_once(rollout.records(), plan) <= parallel
    if per_region:
        for region in ("region-0", "region-1"):
            assert most_at_once(rollout.records(), plan, region) <= per_region


def test_a_canary_that_fails_stops_everything_and_keeps_its_lease(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b", "c"], canary=True))
    state = run(rollout, failures=[broken("a", Step.START)])
    assert state.result is Result.FAILED
    assert outcomes(state) == {"a": Outcome.FAILED, "b": None, "c": None}
    assert leases(rollout) == ["lease ray-a"]
    assert state.clusters["a"].held
    assert error(state, "a")["what"] == "a: the rehearsal's start went wrong"
    assert error(state, "a")["code"] == 1
    assert truth(rollout, "b").stops == 0


def test_a_retry_goes_on_from_the_failed_step_and_then_with_the_others(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"], canary=True))
    run(rollout, failures=[broken("a", Step.START)])
    assert verbs.retry(rollout, by=BOB).drive
    assert run(rollout).result is Result.DONE
    assert faults(rollout) == []


def test_a_cluster_that_fails_before_it_is_touched_is_given_free(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a", "b"], parallel=1))
    state = run(rollout, failures=[broken("a", Step.SNAPSHOT, Mishap.UNREACHABLE)])
    assert outcomes(state) == {"a": Outcome.UNTOUCHED, "b": None}
    assert leases(rollout) == []
    assert error(state, "a")["code"] == 4


def test_failed_ones_go_back_with_their_jobs_and_the_budget_lets_others_go_on(
    tmp_path: Path,
) -> None:
    plan = make_plan(
        ["a", "b", "c"], parallel=1, max_failures=1, on_failure=OnFailure.ROLLBACK_FAILED
    )
    rollout = create(tmp_path, plan)
    state = run(rollout, failures=[broken("a", Step.GATES, times=9)])
    assert state.result is Result.FAILED
    assert outcomes(state) == {"a": Outcome.FAILED, "b": Outcome.DONE, "c": Outcome.DONE}
    assert back(state) == {"a": Outcome.DONE}
    a = truth(rollout, "a")
    assert (a.digest, a.starts, sorted(a.running)) == (OLD, 2, ["a-job0", "a-job1"])
    assert set(a.runs.values()) == {2}
    assert leases(rollout) == []


def test_all_go_back_when_the_budget_is_spent_the_newest_first(tmp_path: Path) -> None:
    plan = make_plan(["a"], ["b"], ["c"], parallel=1, on_failure=OnFailure.ROLLBACK_ALL)
    rollout = create(tmp_path, plan)
    state = run(rollout, failures=[broken("c", Step.WATCH, times=9)])
    assert back(state) == dict.fromkeys("abc", Outcome.DONE)
    ways_back = [
        each.cluster
        for each in rollout.records()
        if each.kind is Kind.CLUSTER and each.direction is Direction.BACK
    ]
    assert ways_back == ["c", "b", "a"]
    for name in "abc":
        fake = truth(rollout, name)
        assert (fake.digest, len(fake.running), fake.up) == (OLD, 2, True)
    assert leases(rollout) == []


def test_a_way_back_that_fails_keeps_its_lease(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], on_failure=OnFailure.ROLLBACK_FAILED))
    stuck = broken("a", Step.START, Mishap.LOCKED, direction=Direction.BACK)
    state = run(rollout, failures=[broken("a", Step.GATES), stuck])
    assert state.result is Result.FAILED
    assert back(state) == {"a": Outcome.FAILED}
    assert leases(rollout) == ["lease ray-a"]


def test_a_cluster_that_somebody_else_holds_is_tried_once_more_and_left_alone(
    tmp_path: Path,
) -> None:
    rollout = create(tmp_path, make_plan(["a", "b"], parallel=1, max_untouched=1))
    with hold_cluster(
        Rehearsal(tmp_path), Names(name="a", identity="ray-a"), rollout="R2", operator=BOB
    ):
        pass
    state = run(rollout)
    assert outcomes(state) == {"a": Outcome.LOCKED, "b": Outcome.DONE}
    tried = [each for each in rollout.records() if each.cluster == "a"]
    assert [each.kind for each in tried] == [Kind.FAILED, Kind.CLUSTER] * 2
    assert "rollout R2" in str(error(state, "a")["why"])
    assert leases(rollout) == ["lease ray-a"]
    assert not state.clusters["a"].held


def test_one_that_is_held_only_for_a_while_gets_its_turn(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a", "b"], parallel=1))
    state = run(rollout, failures=[broken("a", Step.PREFLIGHT, Mishap.LOCKED)])
    assert state.result is Result.DONE
    assert begun(rollout) == ["a", "b"]
    assert faults(rollout) == []


def test_a_cluster_that_the_preflight_leaves_alone_is_skipped(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a", "b"]))
    state = run(rollout, failures=[broken("a", Step.PREFLIGHT, Mishap.LEFT_ALONE)])
    assert outcomes(state) == {"a": Outcome.SKIPPED, "b": Outcome.DONE}
    assert state.result is Result.DONE
    assert leases(rollout) == []


def test_gates_that_cannot_tell_pause_and_are_looked_at_again(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"]))
    failures = [broken("a", Step.GATES, Mishap.INCONCLUSIVE)]
    state = run(rollout, failures=failures)
    assert state.result is None
    assert "a" in state.paused
    assert outcomes(state) == {"a": Outcome.INCONCLUSIVE, "b": None}
    assert leases(rollout) == ["lease ray-a"]
    assert run(rollout, failures=failures).result is Result.DONE
    assert faults(rollout) == []


def test_promote_takes_undecided_gates_for_passed(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"]))
    failures = [broken("a", Step.GATES, Mishap.INCONCLUSIVE, times=99)]
    run(rollout, failures=failures)
    assert verbs.promote(rollout, by=BOB).drive
    state = run(rollout, failures=failures)
    assert state.result is Result.DONE
    way = state.clusters["a"].forward
    assert way is not None
    assert way.outputs[Step.GATES] == {"promoted": BOB}
    assert faults(rollout) == []


def test_lost_jobs_are_a_result_of_their_own(tmp_path: Path) -> None:
    class Forgetful(Rehearsal):
        def perform(self, step: Step, task: Task, **more: Any) -> Output:
            output = super().perform(step, task, **more)
            return {**output, "lost": ["a-job0"]} if step is Step.WATCH else output

    rollout = create(tmp_path, make_plan(["a"]))
    state = run(rollout, performer=Forgetful(tmp_path))
    assert state.result is Result.WITHOUT_JOBS
    assert leases(rollout) == []


def test_a_defect_is_written_without_its_text_and_raised_when_others_are_through(
    tmp_path: Path,
) -> None:
    rollout = create(tmp_path, make_plan(["a", "b"], ["c"]))
    with pytest.raises(ZeroDivisionError):
        run(rollout, failures=[broken("a", Step.STOP, Mishap.DEFECT)])
    state = rollout.state()
    assert outcomes(state) == {"a": Outcome.FAILED, "b": Outcome.DONE, "c": None}
    assert "ZeroDivisionError" in state.paused
    assert "went wrong" not in rollout.journal.path.read_text()
    verbs.retry(rollout, by=BOB)
    assert run(rollout).result is Result.DONE
    assert faults(rollout) == []


def test_after_a_defect_of_the_engine_those_in_hand_are_still_told_of(tmp_path: Path) -> None:
    """It waited for them in silence, for as long as a cluster takes."""
    wrong, broke, told = (threading.Event() for _ in range(3))

    class Waits(Rehearsal):
        def perform(self, step: Step, task: Task, **more: Any) -> Output:
            if (task.target.cluster, step) == ("b", Step.STOP):
                assert broke.wait(60)
            if (task.target.cluster, step) == ("b", Step.START):
                assert told.wait(60), "nobody hears that b has stopped"
            return super().perform(step, task, **more)

    class Hears(Listener):
        def hear(self, record: Record, state: State) -> None:
            super().hear(record, state)
            if (record.cluster, record.kind) == ("a", Kind.CLUSTER):
                wrong.set()
            if (record.cluster, record.kind, record.step) == ("b", Kind.DONE, Step.STOP):
                told.set()

    def clock() -> float:
        if wrong.is_set():
            broke.set()
            raise ZeroDivisionError("a clock")
        return 0.0

    audience, rollout = Hears(), create(tmp_path, make_plan(["a", "b"]))
    with pytest.raises(ZeroDivisionError):
        run(rollout, performer=Waits(tmp_path), audience=audience, clock=clock)
    assert outcomes(rollout.state()) == {"a": Outcome.DONE, "b": Outcome.DONE}
    assert tuple(audience.heard) == rollout.records()


def test_no_secret_that_an_error_quotes_is_in_the_journal(tmp_path: Path) -> None:
    class Quotes(Rehearsal):
        def perform(self, step: Step, task: Task, **more: Any) -> Output:
            if step is Step.PREFLIGHT and task.target.cluster == "b":
                raise LeftAlone("its command is run --token hunter2secret")
            if step is Step.STOP:
                why = "curl https://me:hunter2secret@host"
                raise ToolFailed("TOKEN=hunter2secret failed", why=why, next_step=f"{why} again")
            return super().perform(step, task, **more)

    rollout = create(tmp_path, make_plan(["a", "b"]))
    assert run(rollout, performer=Quotes(tmp_path)).result is Result.FAILED
    assert "hunter2secret" not in rollout.journal.path.read_text()
    assert rollout.state().clusters["a"].forward.error["what"] == "TOKEN=*** failed"


def test_the_audience_hears_every_record_once_in_order_and_from_one_thread(tmp_path: Path) -> None:
    class Strict(Listener):
        def hear(self, record: Record, state: State) -> None:
            assert threading.current_thread() is threading.main_thread()
            super().hear(record, state)

    audience = Strict()
    rollout = create(tmp_path, make_plan(["a", "b", "c"], parallel=3))
    run(rollout, audience=audience)
    assert tuple(audience.heard) == rollout.records()
    assert ("a", "stop") in audience.details


def test_a_resumed_run_tells_only_what_is_new(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"]))
    run(rollout, failures=[broken("a", Step.GATES, Mishap.INCONCLUSIVE)])
    before = len(rollout.records())
    audience = Listener()
    run(rollout, audience=audience)
    assert tuple(audience.heard) == rollout.records()[before:]
    assert audience.heard[0].kind is Kind.BEGUN


def test_a_finished_rollout_is_left_as_it_is(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"]))
    run(rollout)
    before = rollout.records()
    assert run(rollout).result is Result.DONE
    assert rollout.records() == before


def test_only_one_engine_drives(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"]))
    with rollout.drive(), pytest.raises(Locked):
        run(Rollout(rollout.folder))
    assert rollout.records() == ()


class Waiting(Rehearsal):
    """Waits inside one step of one cluster until it may go on."""

    def __init__(self, folder: Path, cluster: str, step: Step) -> None:
        super().__init__(folder, entered=self._enter)
        self.there, self.go = threading.Event(), threading.Event()
        self._where = (cluster, step)

    def _enter(self, step: Step, task: Task) -> None:
        if (task.target.cluster, step) == self._where:
            self.there.set()
            assert self.go.wait(120)


@contextmanager
def running(rollout: Rollout, performer: Waiting, **more: Any) -> Iterator[dict[str, State]]:
    """Carry it out in another thread as far as where it waits; after the block it goes on to
    its end, which is in the dictionary then."""
    ended: dict[str, State] = {}

    def drive() -> None:
        ended["state"] = run(Rollout(rollout.folder), performer=performer, **more)

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        assert performer.there.wait(120)
        yield ended
    finally:
        performer.go.set()
        thread.join(120)


def test_a_pause_finishes_what_is_in_hand(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"]))
    with running(rollout, Waiting(tmp_path, "a", Step.STOP)) as ended:
        answer = verbs.pause(rollout, by=BOB)
        assert not answer.drive
    assert outcomes(ended["state"]) == {"a": Outcome.DONE, "b": None}
    assert BOB in ended["state"].paused
    assert run(rollout).result is Result.DONE
    assert faults(rollout) == []


def test_an_abort_finishes_what_is_in_hand_and_leaves_the_rest(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"]))
    with running(rollout, Waiting(tmp_path, "a", Step.STOP)) as ended:
        assert not verbs.abort(rollout, by=BOB).drive
    assert ended["state"].result is Result.ABORTED
    assert outcomes(ended["state"]) == {"a": Outcome.DONE, "b": None}
    assert leases(rollout) == []


def test_a_cluster_is_left_out_while_others_go_on(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"], ["c"]))
    with running(rollout, Waiting(tmp_path, "a", Step.STOP)) as ended:
        assert not verbs.skip(rollout, ["b"], by=BOB).drive
    assert ended["state"].result is Result.DONE
    assert outcomes(ended["state"])["b"] is Outcome.SKIPPED
    assert truth(rollout, "b").stops == 0


def test_a_cluster_is_taken_back_while_others_go_on(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"]))
    with running(rollout, Waiting(tmp_path, "b", Step.STOP)) as ended:
        assert not verbs.rollback(rollout, ["a"], by=BOB).drive
    assert back(ended["state"]) == {"a": Outcome.DONE}
    assert truth(rollout, "a").digest == OLD
    assert truth(rollout, "b").digest == NEW
    assert leases(rollout) == []


def test_a_skipped_failure_gives_its_cluster_free_when_the_rollout_goes_on(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"], canary=True))
    run(rollout, failures=[broken("a", Step.START, times=99)])
    verbs.skip(rollout, ["a"], by=BOB)
    rollout.append(Kind.REQUEST, data={"verb": "retry", "clusters": [], "by": BOB})
    state = run(rollout)
    assert outcomes(state) == {"a": Outcome.SKIPPED, "b": Outcome.DONE}
    assert leases(rollout) == []


class Between(Rollout):
    """Somebody asks for something right before the run writes its end."""

    ask: Output = {}  # noqa: RUF012
    asked = False

    def append(self, kind: Kind, **more: Any) -> Record:
        if kind in {Kind.PAUSED, Kind.FINISHED} and not self.asked:
            self.asked = True
            Rollout(self.folder).append(Kind.REQUEST, data=self.ask)
        return super().append(kind, **more)


@pytest.mark.parametrize(
    ("verb", "result"), [("promote", Result.DONE), ("abort", Result.ABORTED), ("pause", None)]
)
def test_a_request_right_before_a_pause_is_heard(
    tmp_path: Path, verb: str, result: Result | None
) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"]))
    late = Between(rollout.folder)
    late.ask = {"verb": verb, "clusters": [], "by": BOB}
    state = run(late, failures=[broken("a", Step.GATES, Mishap.INCONCLUSIVE, times=99)])
    assert state.result is result
    assert rollout.state() == state


def test_a_retry_right_before_the_end_is_heard(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"], canary=True))
    late = Between(rollout.folder)
    late.ask = {"verb": "retry", "clusters": [], "by": BOB}
    state = run(late, failures=[broken("a", Step.START)])
    assert state.result is Result.DONE
    assert rollout.state() == state
    assert faults(rollout) == []


def test_a_kill_between_the_end_and_the_release_leaves_nothing_held(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"]))
    run(rollout, failures=[broken("b", Step.GATES, Mishap.INCONCLUSIVE)])
    lines = rollout.journal.path.read_text().splitlines(keepends=True)
    kept = next(n for n, line in enumerate(lines) if '"kind":"cluster"' in line) + 1
    with hold_cluster(
        Rehearsal(tmp_path), Names(name="a", identity="ray-a"), rollout=rollout.id, operator="o"
    ):
        pass
    (tmp_path / "leases" / "ray-b.json").unlink()
    rollout.journal.path.write_text("".join(lines[:kept]))
    fresh = Rollout(rollout.folder)
    fakes = Rehearsal(tmp_path)
    b = fakes.look("b")
    assert (b.stops, b.starts) == (1, 1)
    state = run(fresh)
    assert state.result is Result.DONE
    assert leases(rollout) == []


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


def wait_for(rollout: Rollout, kind: Kind, times: int = 1) -> None:
    wait_until(lambda: kinds(rollout)[kind] >= times, what=f"{kind}", timeout=120, interval=0.01)


@contextmanager
def baking(rollout: Rollout, clock: Clock) -> Iterator[dict[str, State]]:
    """Drive it in another thread, to its end after the block."""
    ended: dict[str, State] = {}

    def drive() -> None:
        ended["state"] = run(Rollout(rollout.folder), clock=clock)

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        wait_for(rollout, Kind.BAKING)
        yield ended
    finally:
        thread.join(120)


def test_a_wave_bakes_for_its_time(tmp_path: Path) -> None:
    rollout, clock = create(tmp_path, make_plan(["a"], ["b"], bake=600.0)), Clock()
    with baking(rollout, clock) as ended:
        assert rollout.state().baking == {0: clock.now + 600}
        clock.now += 599
        assert kinds(rollout)[Kind.BAKED] == 0
        clock.now += 2
        wait_for(rollout, Kind.BAKING, 2)
        assert begun(rollout) == ["a", "b"]
        clock.now += 601
    assert ended["state"].result is Result.DONE
    assert ended["state"].baked == {0, 1}


def test_promote_ends_one_bake_and_full_all_of_them(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"], ["c"], bake=600.0))
    with baking(rollout, Clock()) as ended:
        assert not verbs.promote(rollout, by=BOB).drive
        wait_for(rollout, Kind.BAKING, 2)
        assert not verbs.promote(rollout, by=BOB, full=True).drive
    assert ended["state"].result is Result.DONE
    assert kinds(rollout)[Kind.BAKING] == 2


def test_a_cluster_that_falls_ill_while_its_wave_bakes_has_failed(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"], bake=1.0))
    with baking(rollout, Clock()) as ended:
        Rehearsal(tmp_path).ail("a", "the head does not answer")
    state = ended["state"]
    assert state.result is Result.FAILED
    assert outcomes(state) == {"a": Outcome.FAILED, "b": None}
    assert error(state, "a")["why"] == "the head does not answer"


def test_one_that_fell_ill_while_baking_is_taken_back(tmp_path: Path) -> None:
    plan = make_plan(["a"], ["b"], bake=1.0, on_failure=OnFailure.ROLLBACK_FAILED)
    rollout = create(tmp_path, plan)
    with baking(rollout, Clock()) as ended:
        Rehearsal(tmp_path).ail("a", "the head does not answer")
    assert back(ended["state"]) == {"a": Outcome.DONE}
    assert truth(rollout, "a").digest == OLD


def test_a_bake_ends_only_when_everybody_was_looked_at_and_is_well(tmp_path: Path) -> None:
    looks = count()

    class Flickering(Rehearsal):
        def trouble(self, target: Target) -> str:
            return "no answer" if next(looks) % 2 == 0 else ""

    rollout = create(tmp_path, make_plan(["a"], bake=0.001))
    state = run(rollout, performer=Flickering(tmp_path))
    assert state.result is Result.DONE
    assert next(looks) >= 2


def test_a_defect_while_looking_after_a_bake_is_raised(tmp_path: Path) -> None:
    class Defective(Rehearsal):
        def trouble(self, target: Target) -> str:
            raise ZeroDivisionError

    rollout = create(tmp_path, make_plan(["a"], bake=600.0))
    with pytest.raises(ZeroDivisionError):
        run(rollout, performer=Defective(tmp_path))
    assert "ZeroDivisionError" in rollout.state().paused


class Full(Journal):
    """A disk that is full from the write with the number ``at`` on."""

    def __init__(self, path: Path, at: int) -> None:
        super().__init__(path)
        self._at, self._writes = at, count()

    def write(self, file: int, data: bytes) -> None:
        if next(self._writes) >= self._at:
            os.write(file, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, data)


def test_a_full_disk_at_any_write_stops_before_the_next_step_and_resumes(tmp_path: Path) -> None:
    for at in count(0, 2):
        rollout = create(tmp_path / str(at), make_plan(["a"], ["b"], jobs=1))
        steps = Counting(place_of(rollout))
        full = Rollout(rollout.folder, journal=Full(rollout.journal.path, at))
        try:
            state = run(full, performer=steps)
        except PrerequisiteMissing as refused:
            text = refused.text()
        else:
            assert state.result is Result.DONE
            break
        assert "No space left on device" in text
        assert f"invoke rollouts.resume {rollout.id}" in text
        written = kinds(rollout)[Kind.INTENT]
        assert steps.begun <= written
        assert run(rollout).result is Result.DONE
        assert faults(rollout) == []
    assert at > 50


class Counting(Rehearsal):
    """Counts the steps that were begun."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, entered=self._enter)
        self.begun = 0
        self._guard = threading.Lock()

    def _enter(self, step: Step, task: Task) -> None:
        with self._guard:
            self.begun += 1


def test_a_step_that_swallows_a_refused_note_does_not_go_on(tmp_path: Path) -> None:
    class Swallowing(Rehearsal):
        def perform(self, step: Step, task: Task, **more: Any) -> Output:
            note: Callable[[Output], None] = more["note"]
            if step is Step.STOP:
                try:
                    note({"x": 1})
                except Exception:
                    raise ToolFailed("something else") from None
            return super().perform(step, task, **more)

    rollout = create(tmp_path, make_plan(["a"], jobs=0))
    full = Rollout(rollout.folder, journal=Full(rollout.journal.path, 11))
    with pytest.raises(PrerequisiteMissing):
        run(full, performer=Swallowing(tmp_path))
    assert rollout.records()[-1].kind is Kind.INTENT
    assert run(rollout).result is Result.DONE
    assert done_again(rollout.records()) == []


def test_begun_says_who_drives(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], jobs=0))
    run(rollout)
    assert rollout.records()[0].data["by"] == OPERATOR
    assert rollout.records()[0].data["pid"] == os.getpid()


def test_a_hundred_clusters_are_driven_without_delay_between_them(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan([f"c{i}" for i in range(100)], jobs=0, parallel=32))
    # A poll that nobody waits for: ends of clusters wake the engine.
    state = run(rollout, poll=600.0)
    assert state.result is Result.DONE
    assert faults(rollout) == []


def test_a_lease_that_cannot_be_written_is_no_failure_of_its_cluster(tmp_path: Path) -> None:
    class NoRoom(Rehearsal):
        @contextmanager
        def hold(self, plan: Plan, target: Target) -> Iterator[str]:
            if target.cluster == "b":
                raise PrerequisiteMissing("cannot write it", why="No space left on device")
            with super().hold(plan, target) as lease:
                yield lease

    rollout = create(tmp_path, make_plan(["a"], ["b"]))
    with pytest.raises(PrerequisiteMissing, match="No space left on device"):
        run(rollout, performer=NoRoom(tmp_path))
    assert outcomes(rollout.state()) == {"a": Outcome.DONE, "b": None}
    assert run(rollout).result is Result.DONE


def test_a_journal_that_gets_damaged_ends_the_run_with_its_line(tmp_path: Path) -> None:
    class Damaging(Rehearsal):
        def perform(self, step: Step, task: Task, **more: Any) -> Output:
            if step is Step.STOP:
                with rollout.journal.path.open("a") as journal:
                    journal.write("{}\n")
            return super().perform(step, task, **more)

    rollout = create(tmp_path, make_plan(["a"]))
    lines = "journal.jsonl:"
    with pytest.raises((PrerequisiteMissing, UsageError), match=lines):
        run(rollout, performer=Damaging(tmp_path))

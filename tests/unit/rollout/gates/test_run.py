"""Asking gates: when each is asked, when that ends, and how."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.errors import RayfleetError, ToolFailed, Unreachable, UsageError
from rayfleet.job.dashboard import Unauthorized
from rayfleet.rollout.gates.gate import GateTimes, Reading, Verdict
from rayfleet.rollout.gates.run import run_gates
from rayfleet.rollout.model import Output
from rayfleet.rollout.performer import Inconclusive
from tests.unit.job.canned import FakeClock
from tests.unit.rollout.gates.fakes import SECOND, Scripted, opens_at, subject_of

PASS = Reading(Verdict.PASS, "well")


def ask(
    *gates: Scripted, times: Mapping[str, GateTimes] | None = None, told: list[str] | None = None
) -> Output:
    times = times or {gate.name: SECOND for gate in gates}
    heard = told if told is not None else []
    clock = gates[0].clock
    return run_gates(gates, subject_of(), times=times, narrate=heard.append, clock=clock)


def test_gates_that_are_open_cost_one_look_and_no_wait() -> None:
    clock = FakeClock()
    gates = [Scripted(name, lambda now: PASS, clock) for name in ("a", "b")]
    assert ask(*gates)["passed"] == {"a": "well", "b": "well"}
    assert clock.slept == []
    assert [gate.asked for gate in gates] == [[0.0], [0.0]]
    assert [gate.closed for gate in gates] == [1, 1]


def test_all_take_as_long_as_the_slowest() -> None:
    clock = FakeClock()
    gates = [Scripted(f"g{n}", opens_at(float(n)), clock) for n in (3, 7, 5)]
    ask(*gates)
    assert clock.now == 7.0
    # One that is open is asked no more.
    assert [len(gate.asked) for gate in gates] == [4, 8, 6]


def test_each_gate_has_its_own_interval() -> None:
    clock = FakeClock()
    slow, quick = Scripted("slow", opens_at(9.0), clock), Scripted("quick", opens_at(3.0), clock)
    ask(slow, quick, times={"slow": GateTimes(interval=4.0), "quick": GateTimes(interval=1.5)})
    assert slow.asked == [0.0, 4.0, 8.0, 12.0]
    assert quick.asked == [0.0, 1.5, 3.0]


def test_a_gate_waits_for_those_that_it_needs_and_its_time_counts_from_then() -> None:
    clock = FakeClock()
    # In an order that makes it wait for the next round, too.
    second = Scripted("second", opens_at(50.0), clock, needs=("first", "nobody-chose-it"))
    first = Scripted("first", opens_at(30.0), clock)
    times = {"first": SECOND, "second": GateTimes(interval=1.0, timeout=25.0)}
    ask(second, first, times=times)
    assert second.asked[0] == 30.0
    assert clock.now == 50.0


def test_a_no_ends_it_at_once() -> None:
    clock = FakeClock()
    wrong = Scripted("image", lambda now: Reading(Verdict.FAIL, "another one runs"), clock)
    slow = Scripted("slow", opens_at(50.0), clock)
    with pytest.raises(ToolFailed) as caught:
        ask(slow, wrong)
    assert caught.value.what == "us-east5: the gate image says no"
    assert caught.value.why == "another one runs"
    assert caught.value.next_step.startswith("invoke tail-logs --cluster us-east5")
    assert clock.now == 0.0
    assert (slow.closed, wrong.closed) == (1, 1)


def test_a_gate_that_does_not_open_in_time_is_named_with_its_last_word() -> None:
    clock = FakeClock()
    with pytest.raises(Unreachable) as caught:
        ask(Scripted("workers", opens_at(61.0), clock))
    assert not isinstance(caught.value, Inconclusive)
    assert caught.value.what == "us-east5: the gate workers did not open within 60 s"
    assert caught.value.why == "not well"
    assert clock.now == 60.0


def test_a_gate_that_cannot_tell_in_time_leaves_it_to_a_person() -> None:
    clock = FakeClock()
    with pytest.raises(Inconclusive) as caught:
        ask(Scripted("autoscaler", opens_at(61.0, before=Verdict.UNKNOWN), clock))
    assert caught.value.code == 6
    assert "could not say yes or no within 60 s" in caught.value.what
    assert caught.value.next_step.endswith("invoke rollouts.promote r1")


def test_the_last_look_is_when_time_is_up_whatever_the_interval() -> None:
    clock = FakeClock()
    gate = Scripted("slow", opens_at(10.0), clock)
    ask(gate, times={"slow": GateTimes(interval=7.0, timeout=10.0)})
    assert gate.asked == [0.0, 7.0, 10.0]


def test_successes_must_come_in_a_row() -> None:
    clock = FakeClock()
    relapse = Scripted(
        "flaky", lambda now: Reading(Verdict.NOT_YET, "no") if now == 2.0 else PASS, clock
    )
    ask(relapse, times={"flaky": GateTimes(interval=1.0, timeout=60.0, successes=3)})
    assert relapse.asked == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_successes_that_do_not_fit_into_the_time_are_not_enough() -> None:
    clock = FakeClock()
    gate = Scripted("late", opens_at(9.0), clock)
    with pytest.raises(Unreachable):
        ask(gate, times={"late": GateTimes(interval=1.0, timeout=10.0, successes=3)})


@pytest.mark.parametrize("error", [Unreachable("no answer"), ToolFailed("HTTP 500")])
def test_errors_of_a_cluster_that_comes_up_are_waited_out(error: RayfleetError) -> None:
    clock = FakeClock()
    ask(Scripted("health", lambda now: PASS if now >= 5.0 else error, clock))
    assert clock.now == 5.0


@pytest.mark.parametrize(
    "error",
    [
        Unauthorized("refused", why="no token", next_step="put it into RAY_AUTH_TOKEN"),
        UsageError("refused", why="no token", next_step="put it into RAY_AUTH_TOKEN"),
    ],
)
def test_errors_that_waiting_cannot_mend_are_a_no_with_their_own_remedy(
    error: RayfleetError,
) -> None:
    with pytest.raises(ToolFailed) as caught:
        ask(Scripted("health", lambda now: error, FakeClock()))
    assert caught.value.why == "refused: no token"
    assert caught.value.next_step == "put it into RAY_AUTH_TOKEN"


def test_a_defect_is_no_reading_and_still_closes_the_gates() -> None:
    gate = Scripted("broken", lambda now: ZeroDivisionError("defect"), FakeClock())
    with pytest.raises(ZeroDivisionError):
        ask(gate)
    assert gate.closed == 1


def test_people_hear_of_what_changes_and_of_nothing_twice() -> None:
    told: list[str] = []
    clock = FakeClock()
    ask(Scripted("workers", opens_at(3.0), clock), told=told)
    assert told == ["gate workers: not well", "gate workers: well"]


def test_a_long_detail_is_cut() -> None:
    gate = Scripted("x", lambda now: Reading(Verdict.PASS, "w" * 5000), FakeClock())
    passed = ask(gate)["passed"]
    assert isinstance(passed, dict)
    assert len(passed["x"]) == 300


MOMENTS = st.integers(min_value=0, max_value=40)


@given(
    st.lists(
        st.tuples(MOMENTS, st.integers(1, 7), st.integers(1, 3), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_gates_end_when_the_slowest_is_open_within_one_interval(
    chosen: list[tuple[int, int, int, bool]],
) -> None:
    clock = FakeClock()
    gates, times = [], {}
    for index, (moment, interval, successes, chained) in enumerate(chosen):
        needs = (f"g{index - 1}",) if chained and index else ()
        gates.append(Scripted(f"g{index}", opens_at(float(moment)), clock, needs=needs))
        times[f"g{index}"] = GateTimes(
            interval=float(interval), timeout=1000.0, successes=successes
        )
    ask(*gates, times=times)
    # Never later than if each had been asked to its end before the next one that needs it.
    latest = 0.0
    ends: list[float] = []
    for index, (moment, interval, successes, chained) in enumerate(chosen):
        begin = ends[index - 1] if chained and index else 0.0
        ends.append(max(begin, float(moment)) + interval * successes)
        latest = max(latest, ends[-1])
    assert clock.now <= latest
    assert all(gate.asked[0] == 0.0 for gate in gates if not gate.needs)
    for gate, (moment, _, successes, _) in zip(gates, chosen, strict=True):
        assert len([now for now in gate.asked if now >= moment]) == successes

"""When each step ran, and where that lies on the axis of the page."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.model import Direction, Step, Wave
from rayfleet.rollout.state import Outcome
from rayfleet.rollout.tell.axis import Axis
from rayfleet.rollout.tell.timeline import Fate, Session, down_seconds, trace
from tests.support.rollout_examples import (
    BEGUN,
    SECONDS,
    Story,
    big_fleet,
    failing_canary,
    four_good,
    killed_and_resumed,
    make_plan,
    make_target,
)


def one() -> Story:
    """A story of one cluster."""
    return Story(make_plan([Wave(name="1", clusters=("a",))], [make_target("a")]))


def test_every_step_has_its_times() -> None:
    lane = trace(four_good().records).lanes["us-central2"]
    assert [each.step for each in lane] == list(Step)
    assert [each.seconds for each in lane] == pytest.approx(list(SECONDS.values()), abs=0.01)
    assert {each.fate for each in lane} == {Fate.DONE}
    assert down_seconds(lane) == pytest.approx(14 + 2.5 + 48, abs=0.1)


def test_a_way_back_follows_the_failure_and_ends_the_downtime() -> None:
    lane = trace(failing_canary().records).lanes["us-east5"]
    forward = [each for each in lane if each.direction is Direction.FORWARD]
    assert (forward[-1].step, forward[-1].fate) == (Step.START, Fate.FAILED)
    assert len(lane) - len(forward) == len(Step)
    started = next(e for e in lane if e.direction is Direction.BACK and e.step is Step.START)
    stopped = next(e for e in lane if e.step is Step.STOP)
    down = (started.ended - stopped.begun).total_seconds()
    assert down_seconds(lane) == pytest.approx(down, abs=0.01)


def test_what_was_under_way_when_the_process_was_killed_is_cut_off() -> None:
    timeline = trace(killed_and_resumed().records)
    lane = timeline.lanes["us-east5"]
    starts = [(each.fate, each.number) for each in lane if each.step is Step.START]
    assert starts == [(Fate.CUT, 1), (Fate.DONE, 2), (Fate.DONE, 3)]
    assert [session.end for session in timeline.sessions] == ["", "us-east5 has failed", "done"]
    assert [session.by for session in timeline.sessions][1:] == ["bob@laptop"] * 2
    assert [request.data["verb"] for request in timeline.requests] == ["retry"]


def test_what_is_under_way_now_runs_until_the_last_record() -> None:
    story = one()
    story.begin()
    story.run(1, "a", killed=Step.START)
    timeline = trace(story.example().records)
    last = timeline.lanes["a"][-1]
    assert (last.step, last.fate) == (Step.START, Fate.RUNNING)
    assert timeline.sessions[-1].end == ""
    assert trace(()).seconds == 0


def test_a_bake_may_be_broken_off_and_a_cluster_may_fail_in_it() -> None:
    story = one()
    story.begin()
    at = story.run(1, "a")
    story.say(at, Kind.BAKING, data={"wave": 0, "until": at + 60})
    story.say(at + 9, Kind.FAILED, "a", step=Step.GATES, data={"what": "it died"})
    story.say(at + 10, Kind.PAUSED, data={"reason": "a has failed"})
    timeline = trace(story.example().records)
    (bake,) = timeline.bakes
    assert (bake.whole, (bake.ended - bake.begun).total_seconds()) == (False, 10)
    last = timeline.lanes["a"][-1]
    assert (last.step, last.fate, last.seconds, last.why) == (Step.GATES, Fate.FAILED, 0, "it died")


def test_gates_that_could_not_decide_are_inconclusive() -> None:
    story = one()
    story.begin()
    story.run(1, "a", fails=Step.GATES, outcome=Outcome.INCONCLUSIVE)
    assert trace(story.example().records).lanes["a"][-1].fate is Fate.INCONCLUSIVE


@pytest.mark.parametrize("example", [four_good, killed_and_resumed, big_fleet])
def test_the_axis_keeps_the_order_of_all_moments(example: type) -> None:
    records = example().records
    axis = Axis(trace(records).sessions)
    places = [axis.place(record.at) for record in records]
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] == pytest.approx(100)
    labels = axis.ticks()
    assert 2 <= len(labels) <= 9


def test_a_night_between_two_runs_takes_little_of_the_axis() -> None:
    axis = Axis(trace(killed_and_resumed().records).sessions)
    shortened = [piece for piece in axis.pieces if piece.shortened]
    assert [round(piece.right - piece.left, 6) for piece in shortened] == [5, 5]
    assert shortened[0].ended - shortened[0].begun > 50_000


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e6)), max_size=30))
def test_the_axis_of_any_runs_is_whole(spans: list[tuple[float, float]]) -> None:
    at, sessions = BEGUN, []
    for took, gap in spans:
        ended = at + timedelta(seconds=took)
        sessions.append(Session(by="a", begun=at, ended=ended, end=""))
        at = ended + timedelta(seconds=gap)
    axis = Axis(sessions)
    edges = [axis.pieces[0].left, *(piece.right for piece in axis.pieces)]
    assert edges == sorted(edges)
    assert edges[0] == 0
    assert edges[-1] <= 100.001
    assert all(0 <= place <= 100 for place, _ in axis.ticks())

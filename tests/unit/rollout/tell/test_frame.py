"""The live table as lines of a terminal of any size."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.tell.frame import View, frame
from tests.support.rollout_examples import (
    EXAMPLES,
    Example,
    Story,
    big_fleet,
    failing_canary,
    four_good,
)


@cache
def example(name: str) -> Example:
    """An example, made once."""
    return EXAMPLES[name]()


def view(example: Example, *, later: float = 7, **more: object) -> View:
    """What is seen some seconds after the last record."""
    last = example.records[-1].at
    return View(
        plan=example.plan,
        state=example.state,
        now=last + timedelta(seconds=later),
        begun=example.records[0].at,
        **more,  # type: ignore[arg-type]
    )


def text(view: View, width: int = 100, height: int = 24) -> list[str]:
    """The lines without their styles."""
    return ["".join(piece for piece, _ in line).rstrip() for line in frame(view, width, height)]


def test_each_cluster_has_its_wave_step_and_times() -> None:
    story = four_good()
    at = next(r.number for r in story.records if r.cluster == "us-east5" and r.step == "start")
    details = {"us-east5": "waiting for\nthe head", "us-central2": "old news"}
    lines = text(view(story.until(at), details=details))
    assert lines[0].startswith("rollout 20261121T163000Z-4f2a · wave 2/2 · ")
    assert lines[0].endswith(" min left")
    assert lines[1] == "2 under way · 1 done · 1 not begun"
    assert lines[2].split() == ["cluster", "wave", "step", "in", "step", "total"]
    assert lines[3].split() == ["us-central2", "1", "done", "2:02"]
    assert lines[4].split()[:4] == ["us-east5", "2", "start", "0:07"]
    assert lines[4].endswith("7/12 waiting for the head")


def test_a_bake_shows_the_time_that_is_left() -> None:
    story = four_good()
    at = next(record.number for record in story.records if record.kind is Kind.BAKING)
    assert "wave 1 (canary) bakes: 0:53 left" in text(view(story.until(at)))
    assert not any("bakes" in line for line in text(view(story.until(at), ended=True)))


def test_a_failure_says_what_it_is_and_a_way_back_is_marked() -> None:
    story = failing_canary()
    failed = next(record.number for record in story.records if record.kind is Kind.CLUSTER)
    row = text(view(story.until(failed)))[3]
    assert row.split(None, 2)[2].startswith("failed: start")
    assert row.endswith("the head does not answer after its start")
    row = text(view(story.until(failed + 6)))[3]
    assert "back: " in row


def test_an_end_shows_the_reason_of_a_pause_and_no_rest() -> None:
    story = Story(four_good().plan)
    story.begin()
    at = story.run(1, "us-central2")
    story.say(at, Kind.REQUEST, data={"verb": "pause", "clusters": [], "by": "Ctrl-C"})
    lines = text(view(story.example()))
    assert lines[1].endswith("pausing: what is in flight is finished")
    story.say(at + 1, Kind.PAUSED, data={"reason": "asked for by Ctrl-C"})
    lines = text(view(story.example(), ended=True))
    assert lines[1].endswith("paused: asked for by Ctrl-C")
    assert "left" not in lines[0]


def test_of_300_clusters_those_in_flight_and_failed_are_shown_and_the_others_counted() -> None:
    story = big_fleet()
    part = view(story.until(1500))
    lines = text(part, 100, 40)
    rows, last = lines[3:-1], lines[-1]
    assert len(lines) <= 39
    assert sum("failed: gates" in row for row in rows) == 1
    assert sum("not begun" in row for row in rows) >= 2
    states = part.state.clusters
    flying = [n for n, c in states.items() if c.forward and c.forward.outcome is None]
    shown = {row.split()[0] for row in rows}
    assert set(flying) <= shown
    assert last.startswith(f"and {300 - len(rows)} more: ")
    small = text(part, 100, 12)
    assert any("failed: gates" in row for row in small)


@pytest.mark.parametrize("width", range(20, 90))
def test_rows_fit_every_narrow_terminal(width: int) -> None:
    """At 56 to 59 and 64 to 65 columns a row was two wider than the terminal."""
    lines = frame(view(example("big_fleet"), ended=True), width, 40)
    rows = ["".join(piece for piece, _ in line[:-1]) for line in lines[4:-1]]
    assert all(len(row) <= max(width, 45) for row in rows)


def test_a_bake_leaves_room_for_a_cluster_in_six_rows() -> None:
    whole = example("big_fleet")
    lines = frame(view(replace(whole, records=whole.records[:29])), 20, 6)
    assert len(lines) == 5
    assert any("bakes" in piece for line in lines for piece, _ in line)


@pytest.mark.parametrize("name", ["big_fleet", "killed_and_resumed", "failing_canary"])
@settings(max_examples=30)
@given(data=st.data())
def test_every_frame_fits_its_terminal(name: str, data: st.DataObject) -> None:
    whole = example(name)
    number = data.draw(st.integers(1, len(whole.records)))
    width, height = data.draw(st.integers(20, 200)), data.draw(st.integers(6, 120))
    part = replace(whole, records=whole.records[:number])
    lines = frame(view(part, ended=data.draw(st.booleans())), width, height)
    assert len(lines) <= max(height - 1, 5)
    rows = ["".join(piece for piece, _ in line[:-1]) for line in lines[4:-1]]
    assert all(len(row) <= max(width, 45) for row in rows)
    assert not any("\n" in piece for line in lines for piece, _ in line)


def test_a_column_never_moves_while_the_rollout_goes_on() -> None:
    whole = four_good()
    titles = {text(view(whole.until(number)))[2] for number in range(1, len(whole.records), 5)}
    assert len({title for title in titles if title.startswith("cluster")}) == 1

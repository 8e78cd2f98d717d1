"""Those who hear of a rollout: lines, events, the live table, and all of them as one."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rayfleet.console import Console
from rayfleet.rollout.fold import apply, begin
from rayfleet.rollout.journal.records import Record, parse_record
from rayfleet.rollout.model import Wave
from rayfleet.rollout.performer import Audience
from rayfleet.rollout.signals import Interrupted
from rayfleet.rollout.state import State
from rayfleet.rollout.tell.audience import audience
from rayfleet.rollout.tell.chorus import Chorus
from rayfleet.rollout.tell.events import Events
from rayfleet.rollout.tell.piped import Piped
from rayfleet.rollout.tell.table import LiveTable
from rayfleet.rollout.tell.writer import Writer
from rayfleet.waiting import wait_until
from tests.support.rollout_examples import (
    BEGUN,
    Example,
    failing_canary,
    four_good,
    killed_and_resumed,
    make_plan,
    make_target,
)
from tests.unit.test_bars import terminal


def play(example: Example, audience: Audience, *, first: int = 0) -> None:
    """Tell ``audience`` of the records from the ``first`` on, as an engine does."""
    state = begin(example.plan)
    for number, record in enumerate(example.records):
        state = apply(example.plan, state, record)
        if number >= first:
            audience.hear(record, state)


def test_lines_tell_of_each_step_outcome_wave_and_bake() -> None:
    lines: list[str] = []
    example = four_good()
    piped = Piped(example.plan, lines.append)
    play(example, piped)
    piped.close()
    assert lines[:3] == [
        "     0.0 s  rollout 20261121T163000Z-4f2a begun by ana@ops-1",
        "     0.1 s  wave 1 of 2, canary: us-central2",
        "     2.2 s  us-central2: preflight done in 2.1 s",
    ]
    assert "   122.2 s  us-central2: done after 2 min 02 s (1 of 4 clusters have ended)" in lines
    assert "   122.3 s  wave 1 bakes for 1 min" in lines
    assert "   182.3 s  wave 1 has baked" in lines
    assert lines[-1].endswith("finished: done (4 done)")
    assert not any("\x1b" in line for line in lines)


def test_lines_tell_of_failures_with_the_next_command_and_of_the_way_back() -> None:
    lines: list[str] = []
    example = failing_canary()
    piped = Piped(example.plan, lines.append)
    play(example, piped)
    piped.close()
    text = "\n".join(lines)
    assert "us-east5: start FAILED in 1 min 12 s: us-east5: the head does not answer" in text
    assert "us-east5: next: invoke rollouts.retry 20261121T163000Z-4f2a --cluster us-east5" in text
    assert "us-east5: back: gates done in 31 s" in text
    assert "us-east5: rolled back after" in text


def test_who_takes_a_rollout_up_counts_from_its_begin() -> None:
    lines: list[str] = []
    example = killed_and_resumed()
    again = [n for n, record in enumerate(example.records) if record.kind == "begun"][1]
    piped = Piped(example.plan, lines.append, begun=BEGUN)
    play(example, piped, first=again)
    piped.close()
    assert lines[0] == " 52000.0 s  rollout 20261121T163000Z-4f2a taken up again by bob@laptop"
    assert any("asked for by bob@laptop: retry us-east5" in line for line in lines)
    assert any("paused: us-east5 has failed (" in line for line in lines)


def test_a_detail_is_a_line_only_after_a_long_silence() -> None:
    lines: list[str] = []
    example, now = four_good(), [BEGUN]
    piped = Piped(example.plan, lines.append, now=lambda: now[0])
    play(example.until(3), piped)
    piped.detail("us-central2", "too early")
    now[0] = BEGUN + timedelta(seconds=75)
    piped.detail("us-central2", "waiting for\nthe head")
    piped.detail("us-central2", "too early again")
    piped.close()
    assert lines[-1] == "    75.0 s  us-central2: waiting for the head"
    assert not any("too early" in line for line in lines)


def test_events_are_the_records_and_then_one_summary() -> None:
    lines: list[str] = []
    example = failing_canary()
    events = Events(example.plan, lines.append, report="r/report.html")
    play(example, events)
    events.close()
    events.close()
    assert tuple(map(parse_record, lines[:-1])) == example.records
    summary: dict[str, Any] = json.loads(lines[-1])
    assert list(summary) == [
        *("kind", "rollout", "result", "reason", "clusters", "seconds", "report"),
    ]
    assert (summary["kind"], summary["result"]) == ("summary", "failed")
    assert summary["seconds"] == pytest.approx(238.1, abs=0.1)
    assert summary["report"] == "r/report.html"
    cluster = summary["clusters"]["us-east5"]
    assert (cluster["wave"], cluster["outcome"]) == ("canary", "rolled back")
    assert cluster["seconds"] == pytest.approx(238, abs=1)
    assert [job["outcome"] for job in cluster["jobs"]] == ["restored", "restored"]
    (failure,) = cluster["failures"]
    assert (failure["direction"], failure["step"]) == ("forward", "start")
    assert failure["next"].startswith("invoke rollouts.retry")
    idle = summary["clusters"]["us-central2"]
    assert (idle["outcome"], idle["seconds"]) == ("not begun", None)


def test_a_run_that_is_cut_off_has_a_summary_too() -> None:
    lines: list[str] = []
    example = four_good().until(12)
    events = Events(example.plan, lines.append)
    play(example, events)
    events.close(hurry=True)
    assert json.loads(lines[-1])["result"] == "interrupted"


def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    reads = threading.Event()
    lines: list[str] = []

    def write(line: str) -> None:
        reads.wait(60)
        lines.append(line)

    example = four_good()
    events = Events(example.plan, write)
    play(example, events)
    events.close(hurry=True)
    assert lines == []
    reads.set()
    events.close()
    assert len(lines) == len(example.records) + 1


def test_a_reader_that_is_gone_ends_the_writing() -> None:
    written: list[str] = []

    def write(line: str) -> None:
        written.append(line)
        raise BrokenPipeError

    writer = Writer(write, name="test")
    writer.line("one")
    writer.close()
    writer.line("two")
    writer.close()
    assert written == ["one"]


class Recorder:
    """Keeps what it hears; raises when it is told to."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.heard: list[int] = []
        self.details: list[str] = []
        self.closed: list[bool] = []
        self.error = error

    def hear(self, record: Record, state: State) -> None:
        """A record was written."""
        self.heard.append(record.number)
        if self.error is not None:
            raise self.error

    def detail(self, cluster: str, text: str) -> None:
        """What a step is doing."""
        self.details.append(f"{cluster}: {text}")

    def close(self, *, hurry: bool = False) -> None:
        """It is over."""
        self.closed.append(hurry)


def test_a_listener_that_raises_is_left_out_and_told_once() -> None:
    said: list[str] = []
    bad, good = Recorder(ZeroDivisionError("no")), Recorder()
    example = four_good()
    with Chorus(bad, good, say=said.append) as chorus:
        play(example, chorus)
        chorus.detail("a", "b")
    assert bad.heard == [1]
    assert len(good.heard) == len(example.records)
    assert (bad.closed, good.closed, good.details) == ([], [False], ["a: b"])
    assert said == [
        "Recorder fails and is left out from now on: ZeroDivisionError: no",
    ]


def test_a_second_signal_that_comes_while_somebody_listens_is_not_swallowed() -> None:
    first, last = Recorder(Interrupted("second signal")), Recorder()
    with pytest.raises(Interrupted), Chorus(first, last, say=print) as chorus:
        play(four_good(), chorus)
    assert (first.closed, last.closed) == ([True], [True])


def test_nobody_reading_the_narration_is_no_error_either() -> None:
    def say(line: str) -> None:
        raise BrokenPipeError

    with Chorus(Recorder(ValueError("x")), say=say) as chorus:
        play(four_good(), chorus)


@pytest.fixture
def screen(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[], AbstractContextManager[tuple[Console, Callable[[], str]]]]:
    """A console on a pseudo-terminal of 100 columns and 30 rows."""
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return terminal


def test_what_is_said_goes_above_the_live_table_and_its_end_stays(
    screen: Callable[[], AbstractContextManager[tuple[Console, Callable[[], str]]]],
) -> None:
    example, state = failing_canary(), failing_canary().state
    now = example.records[-1].at
    with screen() as (console, seen):
        table = LiveTable(example.plan, console, now=lambda: now)
        with Chorus(table, say=console.say) as chorus:
            play(example.until(12), chorus)
            chorus.detail("us-east5", "looking at [b]nodes[/b]")
            wait_until(lambda: "[b]nodes[/b]" in seen(), what="a frame", timeout=60, interval=0.02)
            console.say("Ctrl-C: pausing")
            chorus.hear(example.records[-1], state)
        console.say("report: report.html")
    shown = seen()
    said = shown.index("Ctrl-C: pausing\r\n")
    assert "rollout 20261121T163000Z-4f2a" in shown[said:]
    final = shown[shown.rindex("rollout 20261121T163000Z-4f2a") :]
    assert "1 rolled back" in final
    assert "report: report.html" in final
    assert final.count("us-central2") == 1


def test_a_frame_that_cannot_be_drawn_ends_nothing(
    screen: Callable[[], AbstractContextManager[tuple[Console, Callable[[], str]]]],
) -> None:
    example = four_good()
    others = make_plan([Wave(name="1", clusters=("elsewhere",))], [make_target("elsewhere")])
    with screen() as (console, seen):
        table = LiveTable(others, console)
        with Chorus(table, say=console.say) as chorus:
            play(example.until(5), chorus)
    assert "the table cannot be shown: KeyError" in seen()


def test_off_a_terminal_the_table_is_lines_and_json_is_alone_on_stdout() -> None:
    example = four_good()
    for as_json in (False, True):
        console = Console(out=io.StringIO(), err=io.StringIO())
        with audience(example.plan, console, as_json=as_json, notify=None) as listeners:
            play(example, listeners)
            listeners.detail("us-east5", "x")
        assert isinstance(console.err, io.StringIO)
        assert isinstance(console.out, io.StringIO)
        assert "wave 2 of 2, 100%: us-east5, europe-west4, us-west4" in console.err.getvalue()
        assert "\x1b" not in console.err.getvalue()
        rows = [json.loads(line) for line in console.out.getvalue().splitlines()]
        assert len(rows) == (len(example.records) + 1 if as_json else 0)


def test_events_hide_what_looks_secret_wherever_a_record_has_it() -> None:
    """They were the records as they are, where everything else that is printed is masked."""
    lines: list[str] = []
    example = four_good()
    events = Events(example.plan, lines.append)
    data = {
        "what": "the job TOKEN=hunter2secret failed",
        "jobs": [{"job": "a", "reason": "curl https://me:hunter2secret@host"}],
        "seconds": 3,
    }
    events.hear(replace(example.records[0], data=data), begin(example.plan))
    events.close()
    assert "hunter2secret" not in "".join(lines)
    assert json.loads(lines[0])["data"] == {
        "what": "the job TOKEN=*** failed",
        "jobs": [{"job": "a", "reason": "curl https://***@host"}],
        "seconds": 3,
    }

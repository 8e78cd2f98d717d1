"""Following many nodes, with scripted ones: what is said, asked again, and ended with."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rayfleet.cluster.channel import ConnectionLost
from rayfleet.errors import PartialFailure, ToolFailed, Unreachable, UsageError
from rayfleet.log.source import SILENCE_SECONDS
from tests.support.scripted_nodes import (
    BEAT,
    CAUGHT_UP,
    END,
    FOLLOW,
    LOST,
    NOTHING,
    READ,
    Node,
    Play,
    Script,
    data,
    dead,
    enough_when,
    frame,
    hello,
    opened,
)

# Without following


def test_all_lines_are_written_and_everybody_is_told_how_it_stands() -> None:
    play = Play(
        {
            "a": Node([[hello() + opened(4), data(b"1\n2\n", 8), CAUGHT_UP + END]]),
            "b": Node([[b"Welcome\n" + hello(), CAUGHT_UP, END]]),
        }
    )
    play.run(READ)
    assert [event for event in play.sink.events if event[0] == "a"] == [
        ("a", "1\n2"),
        ("a", "caught up"),
        ("a", "ended"),
    ]
    assert play.sink.events[-1] == ("", "closed")
    batch = play.sink.batches[0]
    assert (batch.start, batch.end, batch.file, batch.role) == (4, 8, "monitor.log", "autoscaler")
    assert play.said == []


def test_one_dead_node_is_told_and_the_others_are_read() -> None:
    play = Play({"a": Node([dead()]), "b": Node([[hello(), CAUGHT_UP, END]])})
    with pytest.raises(PartialFailure, match="1 of 2 nodes could not be read: a"):
        play.run(READ)
    assert ("b", "ended") in play.sink.events
    assert len(play.said) == 1
    assert "Connection refused" in play.said[0]


@pytest.mark.parametrize("request_", [READ, FOLLOW])
def test_no_node_at_all_is_unreachable_whether_following_or_not(request_: dict[str, Any]) -> None:
    play = Play({"a": Node([dead()] * 1000), "b": Node([dead()] * 1000)})
    with pytest.raises(Unreachable, match="no node could be read: a, b"):
        play.run(request_)
    alone = Play({"a": Node([dead()] * 1000)})
    with pytest.raises(Unreachable, match="Connection refused"):
        alone.run(request_)
    assert alone.said == []


def test_a_lost_connection_is_taken_up_again_a_few_times_even_when_only_reading() -> None:
    node = Node(
        [
            [hello() + opened() + data(b"1\n", 2), LOST],
            [hello(), LOST],
            [hello() + opened(2) + data(b"2\n", 4) + CAUGHT_UP, LOST],
            [hello() + BEAT, LOST],
            [hello(), LOST],
            [hello(), LOST],
        ]
    )
    play = Play({"a": node})
    with pytest.raises(ConnectionLost):
        play.run(READ)
    assert b"".join(batch.lines for batch in play.sink.batches) == b"1\n2\n"
    assert node.scripts == []


def test_a_node_without_the_program_says_why() -> None:
    with pytest.raises(ToolFailed, match=r"a: its logs .*exit code 127: sh: python3: not found"):
        Play({"a": Node([[b"Welcome\n"]])}).run(READ)


def test_a_program_that_refuses_says_why() -> None:
    refusal = frame("error", reason="no-files", text="no file matches job-driver-x.log")
    with pytest.raises(ToolFailed, match="no file matches"):
        Play({"a": Node([[hello() + refusal]])}).run(READ)


def test_some_nodes_without_such_a_log_are_told_and_all_are_an_error() -> None:
    refusal = hello() + frame("error", reason="no-files", text="no log there has such a name")
    lines = hello() + opened(0) + data(b"1\n", 2) + END
    play = Play({"a": Node([[refusal]]), "b": Node([[lines]]), "c": Node([[refusal]])})
    play.run(READ)
    assert play.said == ["no such log on a, c"]
    with pytest.raises(ToolFailed, match="none of 2 nodes has such a log"):
        Play({"a": Node([[refusal]]), "b": Node([[refusal]])}).run(READ)


# Following


def test_a_lost_connection_goes_on_at_the_cursors() -> None:
    node = Node(
        [
            [hello() + opened(10) + data(b"1\n", 12) + CAUGHT_UP + data(b"2\n", 14), LOST],
            dead("No route to host"),
            dead("No route to host"),
            [hello() + opened(14) + data(b"3\n", 16), lambda: None],
        ]
    )
    play = Play({"a": node})
    play.sink.when_written = enough_when(lambda: len(play.sink.batches) == 3)
    play.run({**FOLLOW, "tail": 10})
    assert node.asked[0] == {
        **FOLLOW,
        "tail": 10,
        "first": True,
        "session": "",
        "cursors": [],
    }
    assert node.asked[1]["first"] is False
    assert node.asked[1]["session"] == "session_1"
    assert [(each["offset"], each["mark"]) for each in node.asked[1]["cursors"]] == [(14, [14, 5])]
    assert [text.partition(";")[0] for text in play.said] == [
        "the connection was lost",
        "cannot reach the head: No route to host",
        "a: back, and going on where it was",
    ]


def test_what_was_lost_before_all_files_were_told_of_is_asked_for_again_as_at_first() -> None:
    node = Node([dead(), [hello() + opened(10), LOST], [hello() + opened(10) + BEAT, LOST]])
    play = Play({"a": node, "b": Node([])})
    play.sink.when_idle = enough_when(lambda: len(node.asked) == 3)
    play.run(FOLLOW)
    assert [asked["first"] for asked in node.asked] == [True, True, False]
    assert [each["offset"] for each in node.asked[1]["cursors"]] == [10]


def test_the_session_that_is_read_is_that_of_the_last_file() -> None:
    flip = opened(0, inode=8, session="session_2") + data(b"2\n", 2)
    node = Node([[hello() + opened() + CAUGHT_UP + flip, LOST], [hello("session_3"), LOST]])
    play = Play({"a": node})
    play.sink.when_idle = enough_when(lambda: len(node.asked) >= 3)
    play.run(FOLLOW)
    assert [asked["session"] for asked in node.asked[:3]] == ["", "session_2", "session_2"]


def test_a_node_that_is_dead_at_first_is_tried_again_beside_a_live_one() -> None:
    late = Node([dead(), dead(), [hello() + opened() + data(b"here\n", 5)]])
    play = Play({"a": late, "b": Node([])})
    play.sink.when_written = enough_when(lambda: True)
    play.run(FOLLOW)
    assert ("a", "here") in play.sink.events
    assert len([text for text in play.said if "Connection refused" in text]) == 1
    # Nobody waits for the first lines of a node that may never come.
    assert play.sink.events[0] == ("a", "caught up")


def test_a_node_in_an_outage_is_given_up_when_the_time_is_over() -> None:
    request = {"follow": True, "until": 1.0}
    play = Play({"a": Node([[hello() + CAUGHT_UP, LOST]]), "b": Node([[hello(), END]])})
    with pytest.raises(PartialFailure):
        play.run(request)


def test_a_node_that_begins_to_refuse_is_told_of_once() -> None:
    refusal: Script = [hello() + frame("error", reason="no-ray", text="no Ray runs there")]
    node = Node([[hello() + CAUGHT_UP, LOST], *[refusal] * 5])
    play = Play({"a": node})
    play.sink.when_idle = enough_when(lambda: len(node.asked) >= 7)
    play.run(FOLLOW)
    assert len([text for text in play.said if "no Ray runs there" in text]) == 1
    assert len([text for text in play.said if "a: back" in text]) == 1


def test_nodes_that_all_refuse_are_not_followed() -> None:
    refusal: Script = [hello() + frame("error", reason="no-ray", text="no Ray runs there")]
    with pytest.raises(ToolFailed, match="no Ray runs there"):
        Play({"a": Node([refusal])}).run(FOLLOW)


def test_a_mistake_in_the_request_is_not_tried_again() -> None:
    refusal = frame("error", reason="bad-request", text="no such level")
    play = Play({"a": Node([[hello() + refusal]]), "b": Node([[hello() + refusal]])})
    with pytest.raises(Unreachable):
        play.run(FOLLOW)
    assert "no such level" in play.said[0]


def test_a_node_that_falls_silent_is_connected_to_again() -> None:
    clock = [0.0]

    def sleep() -> None:
        clock[0] += SILENCE_SECONDS + 1

    node = Node(
        [
            [NOTHING, sleep, NOTHING, hello() + BEAT, sleep, BEAT, NOTHING, sleep, NOTHING, END],
            [NOTHING, sleep, sleep, sleep, NOTHING, END],
        ]
    )
    play = Play({"a": node})
    play.sink.when_idle = enough_when(lambda: len(node.asked) == 3)
    play.run(FOLLOW, now=lambda: clock[0])
    assert "nothing was heard" in play.said[0]
    assert node.scripts == []


def test_a_node_that_waits_for_us_is_not_silent() -> None:
    clock = [0.0]
    taken = threading.Event()

    def stalls() -> None:
        clock[0] += 1000
        taken.set()

    big = data(b"x" * 1024 * 1024 * 6 + b"\n", 6_300_000)
    # The outbox holds two of them, so that the fourth is put when the first was written.
    node = Node([[hello() + opened(), big, big, big, big, lambda: None, NOTHING, END]])
    play = Play({"a": node})
    play.sink.when_written = stalls
    play.run(FOLLOW, now=lambda: clock[0])
    assert play.said == []
    assert len(play.sink.batches) == 4


def test_what_is_dropped_is_counted() -> None:
    big = data((b"x" * 1023 + b"\n") * 6 * 1024, 6_300_000)
    read = threading.Event()
    node = Node([[hello() + opened(), big, big, big, big, big, read.set, END]])
    play = Play({"a": node})
    play.sink.when_written = lambda: None if read.wait(30) else pytest.fail("it was held up")
    play.run(FOLLOW, drop=True)
    lines = sum(batch.lines.count(b"\n") for batch in play.sink.batches)
    assert lines < 5 * 6 * 1024
    assert play.said == [
        f"a: {5 * 6 * 1024 - lines} lines were dropped, they came faster than we write"
    ]


# How it ends


def interrupted() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_is_the_normal_end_of_following_and_nothing_is_held_back() -> None:
    node = Node([[hello() + opened() + data(b"1\n", 2)]])
    play = Play({"a": node})
    play.sink.when_written = interrupted
    play.run(FOLLOW)
    assert play.sink.events[-1] == ("", "closed")
    assert node.closed.is_set()
    again = Play({"a": Node([[hello() + opened() + data(b"1\n", 2), END]])}, sink=play.sink)
    with pytest.raises(KeyboardInterrupt):
        again.run(READ)


def test_what_the_sink_raises_ends_the_run() -> None:
    def gone() -> None:
        raise BrokenPipeError

    def unwanted() -> None:
        raise UsageError("an unwanted line")

    for error, raised in ((gone, BrokenPipeError), (unwanted, UsageError)):
        play = Play({"a": Node([])})
        play.sink.when_idle = error
        with pytest.raises(raised):
            play.run(FOLLOW)
        assert (("", "closed") in play.sink.events) == (raised is UsageError)


def test_a_defect_is_no_failure_of_a_node() -> None:
    def defect() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Play({"a": Node([[hello(), defect]]), "b": Node([])}).run(FOLLOW)


def test_too_many_nodes_are_refused() -> None:
    with pytest.raises(UsageError, match="too many"):
        Play({str(number): Node([]) for number in range(257)}).run(FOLLOW)

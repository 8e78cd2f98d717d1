"""Times and texts for people."""

from __future__ import annotations

import pytest

from rayfleet.rollout.tell.words import clock, count, cut, one_line, safe, spell


@pytest.mark.parametrize(
    ("seconds", "words", "stopwatch"),
    [
        (-3, "0.0 s", "0:00"),
        (0.04, "0.0 s", "0:00"),
        (4.24, "4.2 s", "0:04"),
        (9.97, "10 s", "0:09"),
        (59.7, "1 min", "0:59"),
        (184, "3 min 04 s", "3:04"),
        (3600, "1 h", "1:00:00"),
        (3725, "1 h 02 min", "1:02:05"),
        (183_600, "2 d 03 h", "51:00:00"),
    ],
)
def test_times_are_short(seconds: float, words: str, stopwatch: str) -> None:
    assert (spell(seconds), clock(seconds)) == (words, stopwatch)


def test_nothing_is_counted_as_no() -> None:
    assert [count(number, "job") for number in range(3)] == ["no jobs", "1 job", "2 jobs"]


def test_a_text_cannot_steer_a_terminal_nor_reorder_a_line() -> None:
    hostile = "\x1b[2Jname\u202egnp.exe\r\nnext \ud800line\x07"
    assert one_line(hostile) == r"\x1b[2Jname\u202egnp.exe next \ud800line\x07"


def test_a_secret_is_masked_and_lines_are_kept() -> None:
    assert safe("refused\nWANDB_API_KEY=0123456789abcdef") == "refused\nWANDB_API_KEY=***"


def test_what_is_left_out_shows() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"

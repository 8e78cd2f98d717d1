"""Where records begin, when they were written, how grave they are, and which are wanted."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.log.remote.records import (
    Keep,
    Pattern,
    begins,
    level,
    open_traceback,
    printed,
    records,
    stamp,
)
from tests.support.batches import CPP, DATED, MOMENT, TRACE

AS_JSON = b'{"asctime":"2026-11-20 08:16:46,816","levelname":"ERROR","message":"x"}\n'
BLOCK = DATED + TRACE + CPP + b"plain\n"


def keep(
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    level: str | None = None,
    since: float | None = None,
    until: float | None = None,
    alone: bool = False,
) -> Keep:
    return Keep(list(include), list(exclude), level, since, until, alone=alone)


@pytest.mark.parametrize(
    ("line", "when"),
    [
        (DATED, MOMENT),
        (CPP, MOMENT + 0.684),
        (AS_JSON, MOMENT),
        (b"\x1b[0m" + DATED, MOMENT),
        (b"2026-11-20T08:16:46.816Z ERROR x\n", MOMENT),
        (b"2026-11-20T09:16:46.816000+01:00 x\n", MOMENT),
        (b"2026-11-20T04:46:46.816-0330 x\n", MOMENT),
        (b"2026-11-20 08:16:46 x\n", 1795162606.0),
        (b'{"timestamp": 1795162606816, "a": 1}\n', MOMENT),
        (b'{"ts": 1795162606.816}\n', MOMENT),
        (b'{"message": "2026-11-20 08:16:46"}\n', None),
        (b'{"time": "9' + b"9" * 400 + b'"}\n', None),
        (b'{"time": "inf"}\n', None),
        (b"2026-13-20 08:16:46,816 x\n", None),
        (b"2026-11-20 25:16:46,816 x\n", None),
        (b"0000-00-00 00:00:00 x\n", None),
        (b"Traceback (most recent call last):\n", None),
        (b"\xff\xfe\n", None),
    ],
)
def test_the_time_of_a_line_is_known_in_every_format_of_ray(
    line: bytes, when: float | None
) -> None:
    assert stamp(line, 0) == (None if when is None else pytest.approx(when, abs=1e-6))


def test_a_time_without_a_zone_is_one_of_the_node() -> None:
    assert stamp(DATED, 3600) == pytest.approx(MOMENT - 3600)
    assert stamp(b"2026-11-20T08:16:46.816Z x\n", 3600) == pytest.approx(MOMENT)


@given(st.integers(0, 4102444799))
def test_every_date_of_this_century_is_counted_right(second: int) -> None:
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second))
    assert stamp(text.encode(), 0) == second


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (DATED, 20),
        (CPP, 30),
        (AS_JSON, 40),
        (b'{"severity": "warning"}\n', 30),
        (b"2026-11-20T08:16:46Z ERROR x\n", 40),
        (b"2026-11-20 08:16:46,816 - root - CRITICAL - x\n", 50),
        (b"2026-11-20 08:16:46,816 [DEBUG] x\n", 10),
        (b"ERROR: boo\n", 40),
        (b"[WARNING] boo\n", 30),
        (b"INFO - boo\n", 20),
        (TRACE, 40),
        (b"2026-11-20 08:16:46,816 nothing of that kind\n", None),
        (b"ERRORS were made\n", None),
        (b"plain\n", None),
    ],
)
def test_the_level_of_a_line_is_known_in_every_format_of_ray(
    line: bytes, number: int | None
) -> None:
    assert level(line) == number


def test_a_record_is_a_dated_line_and_the_lines_without_a_date_after_it() -> None:
    assert list(records(BLOCK)) == [DATED + TRACE, CPP + b"plain\n"]
    assert begins(DATED)
    assert begins(CPP)
    assert begins(AS_JSON)
    assert not begins(b"plain\n")


def test_before_the_first_date_each_line_is_a_record_but_for_tracebacks() -> None:
    chained = TRACE + b"\nDuring handling of the above exception, another one:\n\n" + TRACE
    lines = b"one\n" + chained + b"two\n  indented\n\n}\nthree\n"
    assert list(records(lines)) == [b"one\n", chained, b"two\n  indented\n\n}\n", b"three\n"]


def test_what_programs_print_stands_for_itself_after_a_dated_line_too() -> None:
    assert list(records(BLOCK, alone=True)) == [DATED, TRACE, CPP, b"plain\n"]


@pytest.mark.parametrize(
    ("name", "is_printed"),
    [
        ("job-driver-raysubmit_1.log", True),
        ("worker-28a3-01000000-541.out", True),
        ("monitor.err", True),
        ("monitor.out.1", True),
        ("raylet.out", False),
        ("raylet.1.out", False),
        ("gcs_server.out", False),
        ("monitor.log", False),
        ("/var/log/syslog", False),
    ],
)
def test_files_of_prints_are_known_by_their_names(name: str, is_printed: bool) -> None:
    assert printed(name) is is_printed


lines_of_logs = st.lists(
    st.sampled_from(
        [DATED, CPP, AS_JSON, b"plain\n", b"\n", b"  indented\n", b"}\n", b"\xff\x00\n"]
        + [line + b"\n" for line in TRACE.splitlines()]
    )
)


@given(lines_of_logs, st.booleans())
def test_no_byte_is_lost_or_moved_when_records_are_told_apart(
    lines: list[bytes], alone: bool
) -> None:
    found = list(records(b"".join(lines), alone))
    assert b"".join(found) == b"".join(lines)
    assert all(record.endswith(b"\n") for record in found)


@given(lines_of_logs, st.integers(0, 30))
def test_a_filter_decides_the_same_wherever_a_block_is_cut_between_records(
    lines: list[bytes], cut: int
) -> None:
    whole = DATED + b"".join(lines)
    parts = [*records(whole)]
    some = keep(include=("started|slow",), exclude=("bad",))
    once = keep(include=("started|slow",), exclude=("bad",))
    cut = min(cut, len(parts))
    in_two = some(b"".join(parts[:cut])) + some(b"".join(parts[cut:]))
    assert in_two == once(whole)


def test_an_unfinished_traceback_is_held_from_the_beginning_of_its_record() -> None:
    unfinished = TRACE.rpartition(b"ValueError")[0]
    assert open_traceback(CPP + DATED + unfinished) == len(CPP)
    assert open_traceback(b"plain\n" + unfinished) == len(b"plain\n")
    assert open_traceback(unfinished[:35]) == 0


def test_a_finished_traceback_is_not_held() -> None:
    unfinished = TRACE.rpartition(b"ValueError")[0]
    assert open_traceback(DATED + TRACE) == -1
    assert open_traceback(DATED + unfinished + CPP) == -1
    assert open_traceback(DATED) == -1
    assert open_traceback(b"") == -1


def test_a_match_keeps_the_whole_traceback() -> None:
    assert keep(include=("ValueError",))(BLOCK) == DATED + TRACE
    assert keep(exclude=("ValueError",))(BLOCK) == CPP + b"plain\n"


def test_lines_that_follow_later_share_the_fate_of_their_record() -> None:
    some = keep(include=("started",))
    assert some(CPP + DATED) == DATED
    assert some(b"more\n") == b"more\n"
    assert some(b"still\n" + CPP) == b"still\n"
    assert some(b"more\n") == b""


def test_any_include_is_enough_and_any_exclude_too_much() -> None:
    block = b"".join(DATED.replace(b"started", word) for word in (b"a", b"b", b"ab", b"c"))
    kept = keep(include=("-- a", "b$"), exclude=("ab",))(block)
    assert re.findall(rb"-- (\w+)", kept) == [b"a", b"b"]


def test_a_level_leaves_out_what_is_below_it_or_unknown() -> None:
    assert keep(level="warning")(b"plain\n" + DATED + CPP) == CPP
    assert keep(level="ERROR", alone=True)(CPP + TRACE + b"plain\n") == TRACE


def test_times_bound_what_is_kept_and_undated_lines_go_with_those_before() -> None:
    assert keep(since=MOMENT + 0.1)(BLOCK) == CPP + b"plain\n"
    early = keep(until=MOMENT + 0.1)
    assert early(DATED) == DATED
    assert early(CPP + b"plain\n") == b""


def test_a_record_without_any_time_before_it_is_kept() -> None:
    assert keep(since=MOMENT)(b"plain\n") == b"plain\n"


def test_without_filters_a_block_is_handed_on_as_it_is() -> None:
    assert keep()(BLOCK) is BLOCK


@pytest.mark.parametrize("text", [r"\Aplain\Z", "^plain$", "(?!x)plain", "(?i)PLAIN", "pl.in"])
def test_an_expression_is_looked_for_in_each_record_by_itself(text: str) -> None:
    assert keep(include=(text,), alone=True)(DATED + b"plain\n" + CPP) == b"plain\n"


def test_characters_beyond_ascii_are_characters_in_expressions() -> None:
    assert Pattern("caf[éè]$").found("café\n".encode())
    assert not Pattern("^.$").found("é!\n".encode())
    assert Pattern("é").found(b"\xff \xc3\xa9\n")


def test_an_empty_line_is_found_and_the_end_of_a_record_is_none() -> None:
    assert not Pattern("^$").found(b"plain\n")
    assert Pattern("^$").found(b"plain\n\n  x\n")


def test_an_escape_for_a_character_works_in_an_expression() -> None:
    assert Pattern(r"caf\u00e9").found("café\n".encode())
    with pytest.raises(re.error):
        Pattern("(")

"""JSON lines: valid and plain whatever is in the logs."""

from __future__ import annotations

import io
import json
import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rayfleet.log.output.jsonl import JsonlSink
from rayfleet.log.output.pipe import reader_is_gone
from rayfleet.log.output.sink import Batch
from tests.support.batches import CPP, DATED, TRACE, batch


def objects(*batches: Batch) -> list[dict[str, Any]]:
    out = io.BytesIO()
    sink = JsonlSink(out)
    for one in batches:
        sink.write(one)
    assert out.getvalue().isascii()
    return [json.loads(line) for line in out.getvalue().split(b"\n")[:-1]]


def test_an_object_says_when_where_how_grave_and_what() -> None:
    (found,) = objects(batch(DATED, start=100, utc_offset=3600))
    assert found == {
        "time": "2026-11-20T08:16:46.816+01:00",
        "cluster": "eu",
        "region": "europe-west4",
        "node": "head",
        "file": "monitor.log",
        "offset": 100,
        "level": "INFO",
        "message": DATED.decode().rstrip("\n"),
    }


def test_the_lines_of_a_record_share_its_time_and_level_also_in_the_next_batch() -> None:
    first, *more = objects(batch(CPP + b"detail\n"), batch(b"more\nERROR: no record\n"))
    assert first["level"] == "WARNING"
    assert [(one["time"], one["level"]) for one in more] == [(first["time"], "WARNING")] * 3


def test_what_a_program_prints_has_no_time_of_another_line() -> None:
    found = objects(batch(DATED + b"printed\n" + TRACE, file="job-driver-1.log"))
    assert [one["time"] is None for one in found] == [False, True, True, True, True]
    assert [one["level"] for one in found] == ["INFO", None, "ERROR", "ERROR", "ERROR"]


def test_offsets_are_those_of_the_lines_and_unknown_where_lines_were_filtered_out() -> None:
    assert [one["offset"] for one in objects(batch(b"a\nbc\nd\n", start=7))] == [7, 9, 12]
    assert [one["offset"] for one in objects(batch(b"a\nb\n", start=7, end=100))] == [None, None]


def test_the_last_piece_of_a_cut_line_is_marked() -> None:
    found = objects(batch(b"a\nlong\n", end=6, cut=True))
    assert [one.get("cut") for one in found] == [None, True]
    assert found[1]["offset"] == 2


def test_rubbish_is_told_in_valid_json_without_a_control_character() -> None:
    (found,) = objects(batch(b'say "hi" \xff\x1b[2J\x00\x7f\xc2\x9b\\ \r\n', file="a\x1b\n"))
    assert found["message"] == 'say "hi" \ufffd\x1b[2J\x00\x7f\x9b\\ \r'
    assert found["file"] == "a\x1b\n"


@given(st.lists(st.binary().map(lambda line: line.replace(b"\n", b"")), min_size=1))
def test_every_line_is_one_object_whatever_is_in_it(lines: list[bytes]) -> None:
    block = b"".join(line + b"\n" for line in lines)
    out = io.BytesIO()
    JsonlSink(out).write(batch(block))
    assert all(byte >= 0x20 and byte != 0x7F for byte in out.getvalue().replace(b"\n", b""))
    messages = [json.loads(line)["message"] for line in out.getvalue().split(b"\n")[:-1]]
    assert messages == [line.decode(errors="replace") for line in lines]


def test_a_pipe_whose_reader_is_gone_is_noticed_without_writing() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as stream:
        assert not reader_is_gone(stream)
        os.close(read_end)
        assert reader_is_gone(stream)

"""Whole lines out of chunks that are cut anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rayfleet.log.lines import MAX_LINE_BYTES, LineSplitter


@given(st.lists(st.text(alphabet="ab\n", max_size=6).map(str.encode)))
def test_only_whole_lines_come_out_and_no_byte_is_lost(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    pieces = [splitter.feed(chunk) for chunk in chunks]
    assert all(not piece or piece.endswith(b"\n") for piece in pieces)
    sent = b"".join(chunks)
    expected = sent if not sent or sent.endswith(b"\n") else sent + b"\n"
    assert b"".join(pieces) + splitter.rest() == expected


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    splitter = LineSplitter()
    given_out = sum(len(splitter.feed(b"a" * 65536)) for _ in range(40))
    assert given_out > MAX_LINE_BYTES

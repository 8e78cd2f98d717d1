"""Whole lines out of a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.log.remote.cursor import Track, from_cursor
from rayfleet.log.remote.reader import (
    HOLD_SECONDS,
    LONGEST,
    Rewritten,
    read,
    since_start,
    tail_start,
)

STAMP = b"2026-11-21 01:00:00,000\tINFO x.py:1 -- "


@contextmanager
def opened(content: bytes) -> Iterator[int]:
    fd = os.memfd_create("log")
    try:
        os.write(fd, content)
        yield fd
    finally:
        os.close(fd)


def track() -> Track:
    return Track("/logs/x.log", 1, 2, "session_1")


def everything(fd: int, want: int, *, final: bool = False) -> list[bytes]:
    """What is read of a file until nothing comes any more, however long one waits."""
    found, here = [], track()
    while piece := (
        read(here, fd, want, final=final, now=0.0)
        or (here.hold and read(here, fd, want, final=final, now=here.hold))
    ):
        here.advance(piece.block, piece.end)
        found.append(piece.lines)
    return found


lines = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"") + b"\n"))


@given(lines, st.binary(max_size=20), st.integers(1, 100))
def test_whatever_the_chunks_all_whole_lines_come(
    content: list[bytes], rest: bytes, want: int
) -> None:
    rest = rest.replace(b"\n", b"")
    with opened(b"".join(content) + rest) as fd:
        found = everything(fd, want)
        assert b"".join(found) == b"".join(content)
        assert all(piece.endswith(b"\n") for piece in found)
        last = rest + b"\n" if rest else b""
        assert b"".join(everything(fd, want, final=True)) == b"".join(content) + last


def test_a_chunk_ends_where_a_record_begins() -> None:
    record = STAMP + b"boom\n  a frame\n  another\n"
    with opened(record * 10) as fd:
        found = everything(fd, len(record) + 60)
    assert {piece[: len(STAMP)] for piece in found} == {STAMP}
    assert b"".join(found) == record * 10


def test_a_huge_line_comes_in_pieces_that_break_no_character() -> None:
    line = "\N{SNOWMAN}".encode() * (3 * LONGEST // 3 + 100_000)
    with opened(STAMP + b"before\n" + line + b"\nafter\n") as fd:
        here, found, cuts = track(), [], []
        while piece := read(here, fd, 64 * 1024, final=False, now=0.0):
            here.advance(piece.block, piece.end)
            found.append(piece.lines)
            cuts.append(piece.cut)
    assert max(map(len, found)) <= LONGEST + 1
    pieces = [piece for piece, cut in zip(found, cuts, strict=True) if cut]
    assert len(pieces) == 3
    assert all(piece[:-1].decode() for piece in pieces)
    whole = b"".join(p[:-1] if cut else p for p, cut in zip(found, cuts, strict=True))
    assert whole == STAMP + b"before\n" + line + b"\nafter\n"


def test_rubbish_without_newlines_is_no_endless_line() -> None:
    with opened(b"\xbf" * (LONGEST + 10)) as fd:
        assert [len(piece) for piece in everything(fd, 1024, final=True)] == [LONGEST + 1, 11]


def test_an_unfinished_traceback_is_held_for_a_moment() -> None:
    begun = STAMP + b"failed\nTraceback (most recent call last):\n  File x\n"
    with opened(STAMP + b"before\n" + begun) as fd:
        here = track()
        piece = read(here, fd, 1024, final=False, now=10.0)
        assert piece is not None
        assert piece.lines == STAMP + b"before\n"
        here.advance(piece.block, piece.end)
        assert read(here, fd, 1024, final=False, now=10.0) is None
        assert here.hold == 10.0 + HOLD_SECONDS
        os.write(fd, b"ValueError: no\n")
        piece = read(here, fd, 1024, final=False, now=10.1)
        assert piece is not None
        assert piece.lines == begun + b"ValueError: no\n"
        assert here.hold == 0.0


def test_a_traceback_that_is_never_finished_comes_after_a_moment() -> None:
    begun = STAMP + b"failed\nTraceback (most recent call last):\n  File x\n"
    with opened(begun) as fd:
        here = track()
        assert read(here, fd, 1024, final=False, now=10.0) is None
        piece = read(here, fd, 1024, final=False, now=here.hold)
        assert piece is not None
        assert piece.lines == begun


def test_what_was_read_is_looked_at_again_before_more_is_read() -> None:
    with opened(b"one\ntwo\n") as fd:
        here = track()
        here.place(fd, 8)
        os.pwrite(fd, b"new\nfile\nand more\n", 0)
        with pytest.raises(Rewritten):
            read(here, fd, 1024, final=False, now=0.0)
        os.ftruncate(fd, 3)
        with pytest.raises(Rewritten):
            read(here, fd, 1024, final=False, now=0.0)


@given(st.lists(st.integers(0, 90_000), max_size=12), st.integers(0, 9), st.integers(0, 14))
def test_the_tail_is_what_tail_shows(sizes: list[int], rest: int, count: int) -> None:
    content = b"".join(b"x" * size + b"\n" for size in sizes) + b"y" * rest
    # A begun line is one, and is never cut off.
    expected = content.splitlines(keepends=True)
    wanted = max(count, 1) if rest else count
    with opened(content) as fd:
        start, found = tail_start(fd, len(content), count)
    assert content[start:] == b"".join(expected[len(expected) - min(wanted, len(expected)) :])
    assert found == min(count, len(expected))


def test_since_starts_at_a_line_not_long_before_its_time() -> None:
    times = [f"2026-11-21 {n // 60:02}:{n % 60:02}:00,000" for n in range(1440)]
    content = "".join(f"{time}\tINFO line {'x' * 500}\n" for time in times).encode()
    with opened(content) as fd:
        for minute in (0, 1, 700, 1439):
            when = 1795219200 + minute * 60
            start = since_start(fd, len(content), float(when), 0)
            assert start == 0 or content[start - 1 : start] == b"\n"
            here = content.index(times[minute].encode())
            assert start <= here < start + 200_000


def test_a_cursor_that_makes_no_sense_is_refused() -> None:
    good = {"path": "/x", "session": "", "device": 1, "inode": 2, "offset": 300, "mark": [256, 7]}
    assert from_cursor(good).offset == 300
    for wrong in ({"offset": 3}, {"mark": [257, 7]}, {"mark": ["x"]}, {"inode": None}):
        with pytest.raises((ValueError, TypeError)):
            from_cursor({**good, **wrong})

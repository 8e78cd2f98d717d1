"""How far the files of a node were read."""

from __future__ import annotations

import pytest

from rayfleet.log.cursors import DONE_KEPT, Cursors
from rayfleet.log.frames import Data, Opened


def opened(number: int, inode: int, path: str = "/logs/monitor.log", *, offset: int = 0) -> Opened:
    return Opened(
        id=number,
        path=path,
        name="monitor.log",
        role="autoscaler",
        session="session_1",
        device=1,
        inode=inode,
        offset=offset,
        mark=(0, 0),
    )


def data(number: int, end: int, lines: bytes = b"line\n") -> Data:
    return Data(id=number, end=end, mark=(end, 0), cut=False, lines=lines)


def positions(cursors: Cursors) -> dict[int, tuple[int, bool]]:
    return {cursor.inode: (cursor.offset, cursor.done) for cursor in cursors.known()}


def test_a_file_has_a_cursor_as_soon_as_it_is_opened() -> None:
    cursors = Cursors()
    cursors.opened(opened(1, inode=7, offset=40))
    assert positions(cursors) == {7: (40, False)}
    cursors.moved(data(1, end=100))
    assert cursors.known()[0].request() == {
        "path": "/logs/monitor.log",
        "session": "session_1",
        "device": 1,
        "inode": 7,
        "offset": 100,
        "mark": (100, 0),
        "done": False,
    }


def test_positions_outlive_the_numbers_of_a_connection() -> None:
    cursors = Cursors()
    cursors.opened(opened(1, inode=7))
    cursors.opened(opened(2, inode=8))
    cursors.moved(data(1, end=100))
    cursors.moved(data(2, end=200))
    cursors.connected()
    with pytest.raises(KeyError):
        cursors.file(1)
    cursors.opened(opened(1, inode=8, path="/logs/monitor.log.1"))
    cursors.moved(data(1, end=250))
    assert positions(cursors) == {7: (100, False), 8: (250, False)}


def test_what_is_done_is_remembered_until_its_inode_is_another_file() -> None:
    cursors = Cursors()
    cursors.opened(opened(1, inode=7))
    cursors.moved(data(1, end=100))
    cursors.done(1)
    assert positions(cursors) == {7: (100, True)}
    cursors.opened(opened(2, inode=7))
    assert positions(cursors) == {7: (0, False)}
    cursors.moved(data(2, end=5))
    assert positions(cursors) == {7: (5, False)}


def test_an_empty_file_that_is_done_is_forgotten() -> None:
    cursors = Cursors()
    cursors.opened(opened(1, inode=7))
    cursors.moved(data(1, end=0, lines=b""))
    cursors.done(1)
    assert positions(cursors) == {}


def test_only_so_many_files_that_are_done_are_kept() -> None:
    cursors = Cursors()
    for inode in range(DONE_KEPT + 10):
        cursors.opened(opened(inode, inode=inode))
        cursors.moved(data(inode, end=1))
        if inode != 3:
            cursors.done(inode)
    kept = positions(cursors)
    assert len(kept) == DONE_KEPT + 1
    assert kept[3] == (1, False)
    assert 0 not in kept


def test_lines_begin_where_the_last_ones_ended_whatever_was_filtered_out() -> None:
    cursors = Cursors()
    cursors.opened(opened(1, inode=7, offset=95))
    assert cursors.start(data(1, end=200)) == 95
    cursors.moved(data(1, end=200))
    assert cursors.start(data(1, end=500)) == 200

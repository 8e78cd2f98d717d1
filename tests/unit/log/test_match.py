"""A run that is ended by what is read."""

from __future__ import annotations

import pytest

from rayfleet.errors import NotSeen, UnwantedLine
from rayfleet.log.match import Match
from rayfleet.log.output.sink import Enough
from tests.support.batches import CPP, DATED, TRACE, Kept, batch


def test_lines_that_match_nothing_are_handed_on_as_they_came() -> None:
    kept = Kept()
    match = Match(kept, fail_on="never", until=None)
    one = batch(DATED + TRACE)
    match.write(one)
    assert kept.batches == [one]


def test_the_record_that_was_waited_for_is_the_last_one_and_whole() -> None:
    kept = Kept()
    match = Match(kept, fail_on=None, until="Traceback")
    with pytest.raises(Enough):
        match.write(batch(DATED + TRACE + CPP, start=10))
    assert kept.lines == DATED + TRACE
    assert kept.batches[0].end == 10 + len(DATED + TRACE)
    match.check()


def test_an_unwanted_record_is_written_and_then_an_error_with_code_3() -> None:
    kept = Kept()
    with pytest.raises(UnwantedLine, match=r"eu.*monitor\.log") as caught:
        Match(kept, fail_on="slow", until="more").write(batch(DATED + CPP + b"more\n"))
    assert caught.value.code == 3
    assert kept.lines == DATED + CPP + b"more\n"


def test_whichever_comes_first_decides() -> None:
    kept = Kept()
    with pytest.raises(Enough):
        Match(kept, fail_on="slow", until="started").write(batch(DATED + CPP))
    assert kept.lines == DATED


def test_what_never_came_is_an_error_with_code_2() -> None:
    match = Match(Kept(), fail_on=None, until="ready")
    match.write(batch(DATED))
    with pytest.raises(NotSeen, match="'ready'") as caught:
        match.check()
    assert caught.value.code == 2


def test_without_an_end_to_wait_for_the_end_is_well() -> None:
    Match(Kept(), fail_on="x", until=None).check()


def test_an_expression_that_looks_around_is_asked_of_each_record() -> None:
    kept = Kept()
    with pytest.raises(Enough):
        Match(kept, fail_on=None, until=r"started\Z").write(batch(DATED + CPP))
    assert kept.lines == DATED


def test_what_is_left_of_a_cut_batch_is_not_cut() -> None:
    kept = Kept()
    with pytest.raises(Enough):
        Match(kept, fail_on=None, until="started").write(batch(DATED + CPP, cut=True))
    assert not kept.batches[0].cut

"""Lines of many files in the order of their times, within a window."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from rayfleet.log import merge
from rayfleet.log.merge import Merge
from rayfleet.log.output.sink import Batch
from tests.support.batches import TRACE, Kept, at, batch, head_of

EU, US = head_of("eu"), head_of("us")


class Run:
    """A merge of two heads with a clock that stands still until it is told."""

    def __init__(self, window: float = 2.0) -> None:
        self.now = 0.0
        self.kept = Kept()
        self.said: list[str] = []
        self.merge = Merge(
            self.kept,
            window=window,
            targets=[EU, US],
            say=self.said.append,
            clock=lambda: self.now,
        )

    def caught_up(self) -> None:
        self.merge.caught_up(EU)
        self.merge.caught_up(US)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.merge.idle()


def test_lines_of_two_heads_come_in_the_order_of_their_times() -> None:
    run = Run()
    run.caught_up()
    run.merge.write(batch(at(1) + at(3), "eu"))
    run.merge.write(batch(at(2) + at(4), "us"))
    assert run.kept.lines == b""
    run.wait(2.0)
    assert run.kept.lines == at(1) + at(2) + at(3) + at(4)
    assert [one.cluster for one in run.kept.batches] == ["eu", "us", "eu", "us"]


def test_a_record_waits_for_its_window_and_takes_all_that_is_older_with_it() -> None:
    run = Run()
    run.caught_up()
    run.merge.write(batch(at(5), "eu"))
    run.wait(1.5)
    run.merge.write(batch(at(4) + at(6), "us"))
    run.wait(0.5)
    assert run.kept.lines == at(4) + at(5)
    run.wait(1.5)
    assert run.kept.lines == at(4) + at(5) + at(6)


def test_a_head_that_always_lags_does_not_hold_up_the_others() -> None:
    run = Run(window=1.0)
    run.caught_up()
    run.merge.write(batch(at(10), "eu"))
    for second in range(4):
        run.merge.write(batch(at(second), "us"))
        run.wait(0.25)
    assert at(10) in run.kept.lines


def test_what_comes_too_late_follows_and_is_counted() -> None:
    run = Run()
    run.caught_up()
    run.merge.write(batch(at(5), "eu"))
    run.wait(2)
    run.merge.write(batch(at(4), "us"))
    run.merge.close()
    assert run.kept.lines == at(5) + at(4)
    assert run.said == ["1 record came too late to be put in order; a longer --merge waits longer"]


def test_the_first_lines_of_all_heads_are_awaited() -> None:
    run = Run(window=1.0)
    run.merge.write(batch(at(5), "eu"))
    run.merge.caught_up(EU)
    run.wait(5)
    assert run.kept.lines == b""
    run.merge.write(batch(at(4), "us"))
    run.merge.caught_up(US)
    run.wait(1)
    assert run.kept.lines == at(4) + at(5)


def test_a_head_that_does_not_answer_is_awaited_for_a_while_only() -> None:
    run = Run()
    run.merge.write(batch(at(5), "eu"))
    run.wait(merge.PATIENCE_SECONDS)
    assert run.kept.lines == at(5)


def test_a_head_that_ended_is_not_awaited() -> None:
    run = Run(window=1.0)
    run.merge.write(batch(at(5), "eu"))
    run.merge.caught_up(EU)
    run.merge.ended(US)
    run.wait(1)
    assert run.kept.lines == at(5)
    assert run.kept.told == ["caught up eu", "ended us", "idle"]


def test_the_order_within_a_file_is_kept_even_where_its_times_go_back() -> None:
    run = Run()
    run.merge.write(batch(at(5) + at(1), "eu"))
    run.merge.write(batch(at(3), "us"))
    run.merge.close()
    assert run.kept.lines == at(3) + at(5) + at(1)
    assert run.said == []


def test_a_traceback_and_lines_without_a_time_stay_behind_their_record() -> None:
    run = Run()
    run.merge.write(batch(at(1) + TRACE, "eu"))
    run.merge.write(batch(at(2), "us"))
    run.merge.write(batch(b"more\n", "eu"))
    run.merge.close()
    assert run.kept.lines == at(1) + TRACE + b"more\n" + at(2)


def test_parts_of_a_batch_keep_their_offsets() -> None:
    run = Run()
    run.merge.write(batch(at(1) + at(3), "eu", start=100))
    run.merge.write(batch(at(2), "us"))
    run.merge.close()
    size = len(at(1))
    assert [(one.start, one.end) for one in run.kept.batches] == [
        (100, 100 + size),
        (0, size),
        (100 + size, 100 + 2 * size),
    ]


def test_what_is_held_is_bounded_in_bytes() -> None:
    run = Run(window=1000.0)
    large = at(1, "x" * 1024 * 1024)
    for _ in range(80):
        run.merge.write(batch(large, "eu"))
    held = 80 * len(large) - len(run.kept.lines)
    assert held <= merge.MAX_HELD_BYTES


@given(
    st.lists(
        st.tuples(st.sampled_from(["eu", "us", "asia"]), st.integers(0, 19), st.integers(0, 3)),
        max_size=40,
    )
)
def test_nothing_is_lost_and_each_file_stays_in_order(moves: list[tuple[str, int, int]]) -> None:
    run = Run()
    written: dict[str, list[bytes]] = defaultdict(list)
    for number, (cluster, second, pause) in enumerate(moves):
        line = at(second, str(number))
        written[cluster].append(line)
        run.merge.write(batch(line, cluster))
        run.wait(pause)
    run.merge.close()
    found: dict[str, list[bytes]] = defaultdict(list)
    for one in run.kept.batches:
        found[one.cluster] += one.lines.splitlines(keepends=True)
    assert found == written


def test_neighbours_of_one_file_are_handed_on_together() -> None:
    run = Run()
    run.merge.write(batch(at(1) + at(2) + at(3), "eu"))
    run.merge.close()
    whole: list[Batch] = run.kept.batches
    assert [one.lines for one in whole] == [at(1) + at(2) + at(3)]

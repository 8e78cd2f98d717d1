"""What waits to be written: bounded, fair, and counted when it is dropped."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from rayfleet.cluster.heads import Target
from rayfleet.log.outbox import Closed, Outbox
from rayfleet.waiting import wait_until

A, B = (Target(cluster=name, region="r", node="head", name=name) for name in "ab")


@dataclass(frozen=True)
class Thing:
    name: str
    size: int = 10
    lines: int = 1


def taken(outbox: Outbox[Thing]) -> list[str]:
    found = []
    while each := outbox.take(0):
        found.append(each[1].name)
    return found


def putting(outbox: Outbox[Thing], target: Target, *things: Thing) -> threading.Thread:
    def put() -> None:
        for thing in things:
            outbox.put(target, thing)

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    return thread


def test_each_node_has_its_turn_and_keeps_its_order() -> None:
    outbox = Outbox[Thing]([A, B])
    for number in range(3):
        outbox.put(A, Thing(f"a{number}"))
    outbox.put(B, Thing("b0"))
    assert taken(outbox) == ["a0", "b0", "a1", "a2"]
    assert outbox.take(0.01) is None


def test_a_full_share_stops_its_node_only() -> None:
    outbox = Outbox[Thing]([A, B], limit=60)
    thread = putting(outbox, A, *(Thing(f"a{number}") for number in range(5)))
    wait_until(lambda: len(outbox._queues[A].items) == 3, what="a full share", timeout=10)
    outbox.put(B, Thing("b0"))
    assert thread.is_alive()
    assert outbox.take(0) == (A, Thing("a0"))
    wait_until(lambda: len(outbox._queues[A].items) == 3, what="the next one", timeout=10)
    assert outbox.take(0) == (B, Thing("b0"))
    while thread.is_alive():
        outbox.take(0.01)
    thread.join()


def test_what_is_larger_than_a_share_has_room_alone_and_news_never_waits() -> None:
    outbox = Outbox[Thing]([A], limit=60)
    outbox.put(A, Thing("huge", size=1000))
    outbox.put(A, Thing("news", size=0, lines=0))
    thread = putting(outbox, A, Thing("next"))
    assert outbox.take(1) == (A, Thing("huge", size=1000))
    thread.join(timeout=10)
    assert taken(outbox) == ["news", "next"]


def test_who_waits_for_room_is_told_that_nobody_takes_any_more() -> None:
    outbox = Outbox[Thing]([A], limit=10)
    outbox.put(A, Thing("first"))
    raised: list[BaseException] = []

    def put() -> None:
        try:
            outbox.put(A, Thing("second"))
        except Closed as error:
            raised.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    outbox.close()
    thread.join(timeout=10)
    assert len(raised) == 1
    with pytest.raises(Closed):
        outbox.put(A, Thing("third"))


def test_with_drop_the_oldest_lines_go_and_are_counted_but_no_news() -> None:
    outbox = Outbox[Thing]([A, B], drop=True, limit=60)
    outbox.put(A, Thing("news", size=5, lines=0))
    for number in range(10):
        outbox.put(A, Thing(f"a{number}", lines=2))
    outbox.put(B, Thing("b0"))
    assert outbox.dropped() == {A: 16}
    assert outbox.dropped() == {}
    assert taken(outbox) == ["news", "b0", "a8", "a9"]


def test_with_drop_a_node_has_its_turn_once_although_all_of_it_was_dropped() -> None:
    outbox = Outbox[Thing]([A, B], drop=True, limit=40)
    outbox.put(A, Thing("a0"))
    outbox.put(A, Thing("a1", size=20))
    outbox.put(B, Thing("b0"))
    assert outbox.dropped() == {A: 1}
    assert taken(outbox) == ["a1", "b0"]


def test_a_node_that_joins_takes_a_share_and_gives_it_back() -> None:
    outbox = Outbox[Thing]([A], limit=60)
    putting(outbox, A, *(Thing(str(n)) for n in range(6))).join(10)
    outbox.add(B)
    waiting = putting(outbox, A, Thing("late"))
    outbox.put(B, Thing("b"))
    assert [outbox.take(0) for _ in range(2)] == [(A, Thing("0")), (B, Thing("b"))]
    assert waiting.is_alive()
    # Half of the room is taken by the five that are left; all of it is theirs again.
    outbox.remove(B)
    waiting.join(10)
    assert not waiting.is_alive()
    assert taken(outbox) == ["1", "2", "3", "4", "5", "late"]

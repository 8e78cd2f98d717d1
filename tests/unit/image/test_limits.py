"""How many uploads are in flight at once."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from rayfleet.image.interruption import Interrupted
from rayfleet.image.oci.limits import Limits

HOSTS = ("a:1", "b:1", "c:1")


def test_no_more_than_the_limits_are_in_flight_and_all_get_their_turn() -> None:
    limits = Limits(per_registry=2, overall=3)
    lock = threading.Lock()
    busy: Counter[str] = Counter()
    most: Counter[str] = Counter()
    done: Counter[str] = Counter()
    # Each turn ends only when another thread wants one, so that there is a crowd.
    crowd = threading.Event()

    def work(host: str) -> None:
        for _ in range(5):
            with limits.turn(host):
                with lock:
                    busy[host] += 1
                    most[host] = max(most[host], busy[host])
                    most["all"] = max(most["all"], busy.total())
                    if busy.total() == limits.overall:
                        crowd.set()
                assert crowd.wait(60)
                with lock:
                    busy[host] -= 1
                    done[host] += 1

    threads = [threading.Thread(target=work, args=(host,)) for host in HOSTS for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done == dict.fromkeys(HOSTS, 20)
    assert most["all"] == 3
    assert all(most[host] <= 2 for host in HOSTS)


def test_waiting_for_a_turn_ends_when_the_operator_interrupts() -> None:
    limits, stop = Limits(per_registry=1, overall=2), threading.Event()
    stop.set()
    with limits.turn("a:1", stop):
        with pytest.raises(Interrupted), limits.turn("a:1", stop):
            raise AssertionError("the registry is full")
        with (
            limits.turn("b:1", stop),  # another one is not
            pytest.raises(Interrupted),
            limits.turn("c:1", stop),
        ):
            raise AssertionError("there are as many as there may be")


def test_a_turn_ends_with_an_error_too() -> None:
    limits = Limits(per_registry=1, overall=1)

    def fail() -> None:
        with limits.turn("a:1"):
            raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            fail()

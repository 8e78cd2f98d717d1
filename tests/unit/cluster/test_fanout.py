"""The fan-out: bounded in width and in time."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from rayfleet.cluster.fanout import fan_out
from rayfleet.errors import ToolFailed, Unreachable


def test_results_and_errors_are_kept_by_name_in_the_order_of_the_jobs() -> None:
    def fail() -> str:
        raise ToolFailed("it is broken")

    results = fan_out({"b": lambda: "fine", "a": fail}, limit=2, timeout=10, what="the head")
    assert list(results) == ["b", "a"]
    assert results["b"] == "fine"
    assert isinstance(results["a"], ToolFailed)


def test_a_job_that_hangs_costs_the_others_at_most_its_timeout() -> None:
    never = threading.Event()
    jobs = {"dead": never.wait, **{f"live{n}": (lambda: True) for n in range(5)}}
    start = time.monotonic()
    results = fan_out(jobs, limit=1, timeout=2.0, what="the head")
    never.set()
    assert time.monotonic() - start < 4.0
    assert isinstance(results.pop("dead"), Unreachable)
    assert set(results.values()) == {True}


def test_no_more_than_the_limit_run_at_once_and_the_limit_is_used() -> None:
    lock, together = threading.Lock(), threading.Barrier(3)
    running: list[str] = []
    most = 0

    def work(name: str) -> None:
        nonlocal most
        with lock:
            running.append(name)
            most = max(most, len(running))
        together.wait(timeout=10)
        with lock:
            running.remove(name)

    fan_out({name: partial(work, name) for name in "abcdef"}, limit=3, timeout=20, what="the head")
    assert most == 3


def test_a_defect_is_raised_and_not_reported_as_a_head() -> None:
    with pytest.raises(ZeroDivisionError):
        fan_out({"a": lambda: 1 // 0}, limit=1, timeout=10, what="the head")

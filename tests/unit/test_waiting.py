"""Waits end: with what was waited for, or with an error that names it."""

from __future__ import annotations

import pytest

from rayfleet.waiting import DeadlineExceeded, wait_until


class FakeClock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_first_truthy_answer_is_returned() -> None:
    clock, answers = FakeClock(), iter([None, None, "there"])
    found = wait_until(lambda: next(answers), what="it", timeout=10, interval=2, clock=clock)
    assert (found, clock.now) == ("there", 4)


def test_past_the_deadline_the_error_says_what_and_why() -> None:
    clock = FakeClock()
    with pytest.raises(DeadlineExceeded, match=r"waited 10 s for the head: it sleeps") as raised:
        wait_until(
            lambda: None,
            what="the head",
            timeout=10,
            reason=lambda: "it sleeps",
            next_step="wake it",
            clock=clock,
        )
    assert raised.value.code == 4
    assert "next: wake it" in str(raised.value)
    assert 10 <= clock.now < 11

"""What is tried again, when, and how often."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.image.interruption import Interrupted
from rayfleet.image.oci.patience import Reply, Retries, Transient, persist, retry_after

NOW = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)
AT_ONCE = Retries(attempts=3, first_wait=0, longest_wait=0)


def reply(status: int = 503, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, reason="", headers=named, data=b"", host="h")


def test_waits_double_up_to_the_longest_and_are_never_all_alike() -> None:
    retries = Retries(first_wait=1, longest_wait=5)
    for attempt, most in ((1, 1), (2, 2), (3, 4), (4, 5), (9, 5), (5000, 5)):
        waits = [retries.wait(attempt) for _ in range(20)]
        assert all(most / 2 <= wait <= most for wait in waits)
        assert len(set(waits)) > 1


def test_a_server_may_ask_for_a_wait_but_not_for_any() -> None:
    retries = Retries(first_wait=1, longest_retry_after=30)
    assert 3 <= retries.wait(1, 3) <= 4
    assert 30 <= retries.wait(1, 86400) <= 31
    assert 0 <= Retries(first_wait=0).wait(1, 0) <= 0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        (" 17 ", 17),
        (format_datetime(NOW.replace(minute=2), usegmt=True), 120),
        (format_datetime(NOW.replace(hour=9), usegmt=True), 0),
        ("Sat, 21 Nov 2026 10:00:05 -0000", 5),
        ("", None),
        ("soon", None),
        ("-3", None),
        ("1.5", None),
        ("²", None),
        ("Sat, 99 Nov 2026 10:00:05 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, seconds: float | None) -> None:
    assert retry_after(header, now=NOW) == seconds


@given(st.one_of(st.text(), st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ [\d:]+ [+-]?\w+")))
def test_no_retry_after_is_too_odd(header: str) -> None:
    found = retry_after(header, now=NOW)
    assert found is None or found >= 0


def test_work_is_begun_again_until_it_is_done() -> None:
    attempts: list[int] = []

    def work(attempt: int) -> str:
        attempts.append(attempt)
        if attempt < 3:
            raise Transient("not yet", reply(429, Retry_After="0"))
        return "done"

    assert persist(work, retries=AT_ONCE) == "done"
    assert attempts == [1, 2, 3]


def test_the_last_failure_counts() -> None:
    def work(attempt: int) -> None:
        raise Transient(f"failure {attempt}")

    with pytest.raises(Transient, match="failure 3"):
        persist(work, retries=AT_ONCE)


@pytest.mark.parametrize("attempts", [1, 0])
def test_there_is_always_one_attempt(attempts: int) -> None:
    seen: list[int] = []
    persist(seen.append, retries=Retries(attempts=attempts))
    assert len(seen) == 1


def test_other_errors_are_not_for_another_attempt() -> None:
    seen: list[int] = []

    def work(attempt: int) -> None:
        seen.append(attempt)
        raise ValueError

    with pytest.raises(ValueError):
        persist(work, retries=AT_ONCE)
    assert seen == [1]


def test_a_wait_ends_when_the_operator_interrupts() -> None:
    stop = threading.Event()

    def work(attempt: int) -> None:
        stop.set()
        raise Transient("wait for an hour", reply(Retry_After="3600"))

    with pytest.raises(Interrupted):
        persist(work, retries=Retries(longest_retry_after=3600), stop=stop)

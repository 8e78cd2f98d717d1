"""Work for every region at once, and what is said when some of it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rayfleet.errors import PrerequisiteMissing, ToolFailed, Unreachable
from rayfleet.image.fanout import Outcome, each_region, failure_lines
from rayfleet.image.oci.credentials import Credentials
from rayfleet.image.oci.registries import Registries
from rayfleet.image.publish.standalone import check_registries

WAIT_SECONDS = 10.0


def test_a_failure_stops_only_its_own_region() -> None:
    def work(region: str, _: threading.Event) -> str:
        if region == "b":
            raise ToolFailed("no", why="because")
        return region.upper()

    outcomes = each_region(["a", "b", "cc"], work, limit=2)

    assert [each.value for each in outcomes] == ["A", None, "CC"]
    assert failure_lines(outcomes, done=lambda value: f"got {value}") == [
        "a   got A",
        "b   failed: no: because",
        "cc  got CC",
    ]


def test_no_more_regions_than_the_limit_are_worked_on_at_once() -> None:
    together = threading.Barrier(2, timeout=WAIT_SECONDS)
    running, most, lock = 0, 0, threading.Lock()

    def work(_: str, __: threading.Event) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1

    each_region("abcdef", work, limit=2)
    assert most == 2


def test_a_name_that_comes_twice_is_worked_on_once() -> None:
    done: list[str] = []
    # In a thread, so that a wait without an end is a failure here.
    ended: list[tuple[Outcome[None], ...]] = []
    run = threading.Thread(
        target=lambda: ended.append(
            each_region(["a", "b", "a"], lambda name, _: done.append(name), limit=1)
        ),
        daemon=True,
    )
    run.start()
    run.join(WAIT_SECONDS)
    assert [[each.region for each in outcomes] for outcomes in ended] == [["a", "b"]]
    assert done == ["a", "b"]


def test_an_interrupt_tells_the_other_regions_to_stop() -> None:
    begun, told = threading.Event(), threading.Event()

    def work(region: str, stop: threading.Event) -> None:
        if region == "a":
            assert begun.wait(WAIT_SECONDS)
            raise KeyboardInterrupt
        begun.set()
        if stop.wait(WAIT_SECONDS):
            told.set()

    with pytest.raises(KeyboardInterrupt):
        each_region("ab", work, limit=2)
    assert told.is_set()


def test_one_cause_for_all_regions_is_said_once() -> None:
    def login(host: str) -> Credentials | None:
        raise PrerequisiteMissing("no Google credentials", next_step="gcloud auth login")

    destinations = {region: f"{region}-docker.pkg.dev/p/r/i" for region in ("a", "b")}
    with pytest.raises(PrerequisiteMissing) as missing:
        check_registries(destinations, logins(login), next_step="invoke doctor")
    assert missing.value.text() == "error: no Google credentials\n  next: gcloud auth login"


def test_a_registry_that_is_down_decides_the_exit_code() -> None:
    def login(host: str) -> Credentials | None:
        raise Unreachable("down") if host == "a" else ToolFailed("refused")

    with pytest.raises(Unreachable) as mixed:
        check_registries(
            {"one": "a/p/r/i", "two": "b/p/r/i"}, logins(login), next_step="invoke doctor"
        )
    assert "one  failed: down" in mixed.value.text()
    assert "two  failed: refused" in mixed.value.text()
    assert mixed.value.next_step == "invoke doctor"


def logins(login: Callable[[str], Credentials | None]) -> Registries:
    return Registries(lambda host: lambda _: login(host))

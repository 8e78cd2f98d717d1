"""Stopping jobs: only what has been seen to end counts as stopped."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from rayfleet.console import Console
from rayfleet.errors import RayfleetError, UsageError
from rayfleet.job.model import Job, JobLost, JobTimedOut, NotStoppable, UnknownJob, parse_job
from rayfleet.job.stop import stop_jobs
from tests.unit.job.canned import FakeClock, row


@dataclass
class FakeJob:
    """A job whose status after each second is in ``states``; the last one stays."""

    states: Sequence[str]
    supervised_from: float = 0.0
    kind: str = "SUBMISSION"
    asked: list[float] = field(default_factory=list)


@dataclass
class FakeHead:
    """A head that knows some jobs."""

    jobs: dict[str, FakeJob]
    clock: FakeClock = field(default_factory=FakeClock)
    cluster: str = "c1"

    def get(self, job_id: str) -> Job:
        """The job as it is now."""
        job = self.jobs.get(job_id)
        status = job.states[min(int(self.clock.now), len(job.states) - 1)] if job else "GONE"
        if job is None or status == "GONE":
            raise UnknownJob(f"c1 knows no job {job_id}")
        return parse_job(row(submission_id=job_id, status=status, type=job.kind))

    def get_known(self, job_id: str) -> Job:
        """The job as it is now, which was there before."""
        try:
            return self.get(job_id)
        except UnknownJob as error:
            raise JobLost(f"c1 has lost the job {job_id}") from error

    def stop(self, job_id: str) -> bool:
        """Take the request, if there is somebody to take it."""
        self.get(job_id)
        self.jobs[job_id].asked.append(self.clock.now)
        return self.clock.now >= self.jobs[job_id].supervised_from


def stop(
    head: FakeHead, *job_ids: str, timeout: float = 5.0, as_json: bool = False
) -> tuple[Console, RayfleetError | None]:
    console = Console(out=io.StringIO(), err=io.StringIO())
    try:
        stop_jobs(
            head, job_ids, timeout=timeout, console=console, as_json=as_json, clock=head.clock
        )
    except RayfleetError as error:
        return console, error
    return console, None


def told(console: Console) -> str:
    return console.err.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_job_counts_as_stopped_once_it_has_been_seen_to_end() -> None:
    head = FakeHead({"a": FakeJob(["RUNNING", "RUNNING", "STOPPED"])})
    console, error = stop(head, "a", "a")
    assert error is None
    assert told(console) == "c1: a stopped\n"
    assert head.clock.now == 2.0
    assert head.jobs["a"].asked == [0.0]


def test_a_pending_job_that_stays_pending_is_not_stoppable() -> None:
    """Ray answers ``stopped: true`` for it, and it waits on (research, 4.3)."""
    head = FakeHead({"a": FakeJob(["PENDING"])})
    console, error = stop(head, "a")
    assert isinstance(error, NotStoppable)
    assert error.code == 2
    assert "only if the job ever starts" in error.why
    assert error.next_step == "invoke jobs.stop --cluster c1 a"
    assert "still waits to start" in told(console)
    assert head.clock.now == 5.0


def test_a_pending_job_that_starts_in_time_is_stopped() -> None:
    head = FakeHead({"a": FakeJob(["PENDING", "PENDING", "STOPPED"])})
    assert stop(head, "a")[1] is None


def test_a_job_that_had_nobody_to_ask_is_asked_again() -> None:
    head = FakeHead({"a": FakeJob(["PENDING"] * 3 + ["STOPPED"], supervised_from=2.0)})
    assert stop(head, "a")[1] is None
    assert head.jobs["a"].asked == [0.0, 1.0, 2.0]


def test_a_job_that_does_not_end_has_timed_out() -> None:
    head = FakeHead({"a": FakeJob(["RUNNING"])})
    _, error = stop(head, "a")
    assert isinstance(error, JobTimedOut)
    assert error.code == 124


def test_jobs_that_ended_by_themselves_are_no_failure_and_are_told_apart() -> None:
    head = FakeHead({"a": FakeJob(["FAILED"]), "b": FakeJob(["RUNNING", "SUCCEEDED"])})
    console, error = stop(head, "a", "b", as_json=True)
    assert error is None
    assert told(console) == "c1: a had ended before as FAILED\nc1: b ended by itself as SUCCEEDED\n"
    assert head.jobs["a"].asked == []
    assert json.loads(console.out.getvalue()) == {  # type: ignore[attr-defined]
        "cluster": "c1",
        "jobs": [
            {"job": "a", "owner": "me@here", "status": "FAILED", "outcome": "had ended before"},
            {"job": "b", "owner": "me@here", "status": "SUCCEEDED", "outcome": "ended by itself"},
        ],
    }


@pytest.mark.parametrize("other", ["nonesuch", "driver"])
def test_nothing_is_stopped_when_one_of_them_cannot_be(other: str) -> None:
    head = FakeHead({"a": FakeJob(["RUNNING"]), "driver": FakeJob(["RUNNING"], kind="DRIVER")})
    _, error = stop(head, "a", other)
    assert isinstance(error, UsageError)
    assert other in error.what
    assert head.jobs["a"].asked == []


def test_a_head_that_forgets_a_job_meanwhile_has_lost_it() -> None:
    head = FakeHead({"a": FakeJob(["RUNNING", "GONE"])})
    _, error = stop(head, "a")
    assert isinstance(error, JobLost)
    assert error.code == 4


def test_every_job_that_was_not_stopped_is_named() -> None:
    head = FakeHead(
        {"a": FakeJob(["PENDING"]), "b": FakeJob(["RUNNING"]), "c": FakeJob(["PENDING"])}
    )
    _, error = stop(head, "a", "b", "c")
    assert isinstance(error, NotStoppable)
    assert "a, c" in error.what
    assert "b still runs 5 s after" in error.why


def test_a_dry_run_asks_no_job_to_stop() -> None:
    head = FakeHead({"a": FakeJob(["RUNNING"]), "b": FakeJob(["FAILED"])})
    console = Console(out=io.StringIO(), err=io.StringIO())
    stop_jobs(head, ["a", "b"], timeout=5.0, console=console, dry_run=True, clock=head.clock)
    assert told(console) == "c1: a would be stopped\nc1: b had ended before as FAILED\n"
    assert (head.jobs["a"].asked, head.clock.now) == ([], 0.0)
    with pytest.raises(UnknownJob):
        stop_jobs(head, ["a", "c"], timeout=5.0, console=console, dry_run=True, clock=head.clock)

"""How long restored jobs are watched, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayfleet.job.model import JobStatus
from rayfleet.job.restore.report import Outcome
from rayfleet.job.restore.watch import watch_starts
from tests.unit.job.restore.fake_head import FakeHead, job_row, saved_job


def test_it_ends_when_all_have_started() -> None:
    head = FakeHead(start_seconds=4.0)
    jobs = [saved_job("a"), saved_job("b")]
    for job in jobs:
        head.submit(job)
    found = watch_starts(jobs, head, seconds=60, clock=head.clock)
    assert {settled.reason for settled in found.values()} == {"RUNNING"}
    assert head.clock.now == pytest.approx(4.0)


def test_a_job_without_needs_that_stays_pending_is_watched_to_the_end() -> None:
    head = FakeHead(start_seconds=1000.0)
    job = saved_job("a")
    head.submit(job)
    found = watch_starts([job], head, seconds=20, clock=head.clock)
    assert head.clock.now == pytest.approx(20.0)
    assert found["a"].outcome is Outcome.RESTORED
    assert found["a"].reason == "PENDING, waits for its start"


def test_a_job_that_waited_for_resources_when_it_was_saved_is_not_waited_for() -> None:
    head = FakeHead()
    job = saved_job("a", status=JobStatus.PENDING, num_cpus=2.0)
    head.submit(job)
    found = watch_starts([job], head, seconds=60, clock=head.clock)
    assert head.clock.now == 0
    assert found["a"].reason == "PENDING, waits for its resources"


@pytest.mark.parametrize(
    "needs",
    [
        {"num_cpus": 1},
        {"num_gpus": 0.5},
        {"memory": 1},
        {"resources": {"TPU": 4}},
        {"label_selector": {"zone": "b"}},
    ],
)
def test_a_job_that_ran_and_now_waits_for_its_needs_is_watched_for_ten_seconds(
    needs: dict[str, object],
) -> None:
    head = FakeHead(start_seconds=1000.0)
    job = saved_job("a", **needs)
    head.submit(job)
    found = watch_starts([job], head, seconds=60, clock=head.clock)
    assert head.clock.now == pytest.approx(10.0)
    assert found["a"].reason == "PENDING, waits for its resources"


def test_a_job_that_ends_at_once_was_restored() -> None:
    head = FakeHead()
    head.rows["a"] = job_row("a", JobStatus.SUCCEEDED)
    head.rows["b"] = job_row("b", JobStatus.FAILED, error_type="JOB_ENTRYPOINT_COMMAND_ERROR")
    found = watch_starts([saved_job("a"), saved_job("b")], head, seconds=60, clock=head.clock)
    assert [found[name].outcome for name in "ab"] == [Outcome.RESTORED] * 2
    assert [found[name].reason for name in "ab"] == ["SUCCEEDED since", "FAILED since"]


def test_a_job_that_the_head_forgets_is_a_failure() -> None:
    head = FakeHead()
    found = watch_starts([saved_job("a")], head, seconds=5, clock=head.clock)
    assert found["a"].outcome is Outcome.FAILED
    assert found["a"].reason == "the head took it and has forgotten it"


def test_a_failure_without_a_message_has_a_reason_nevertheless() -> None:
    head = FakeHead()
    head.rows["a"] = replace(
        job_row("a", JobStatus.FAILED, error_type="JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"), message=" "
    )
    found = watch_starts([saved_job("a")], head, seconds=5, clock=head.clock)
    assert found["a"].reason == "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE: no explanation"

"""What a restore does about one job, whatever the head says of it."""

from __future__ import annotations

import pytest

from rayfleet.job.model import LOST_WITH_HEAD, JobStatus
from rayfleet.job.restore.decide import NEVER_RAN, Action, Settled, decide
from rayfleet.job.restore.report import Outcome
from tests.unit.job.restore.fake_head import EPOCH, job_row, saved_job

JOB = saved_job("a")
FAILED = JobStatus.FAILED
ALL_ERROR_TYPES = sorted(
    NEVER_RAN
    | LOST_WITH_HEAD
    | {"", "JOB_ENTRYPOINT_COMMAND_ERROR", "JOB_ENTRYPOINT_COMMAND_START_ERROR"}
)


def test_these_are_the_error_types_that_ray_has() -> None:
    from ray.dashboard.modules.job.common import JobErrorType

    assert {kind.value for kind in JobErrorType} | {""} == set(ALL_ERROR_TYPES)


def test_a_job_that_the_head_does_not_know_is_submitted() -> None:
    assert decide(JOB, None) is Action.SUBMIT


def test_a_job_that_a_later_backup_saw_ended_is_not_run_again() -> None:
    settled = decide(JOB, None, ended=JobStatus.SUCCEEDED)
    assert settled == Settled(outcome=Outcome.ENDED, reason="SUCCEEDED, says a later backup")


@pytest.mark.parametrize("started", [EPOCH, EPOCH + 1])
@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.RUNNING])
def test_a_job_that_has_not_ended_is_already_there_in_whichever_life(
    started: int, status: JobStatus
) -> None:
    settled = decide(JOB, job_row("a", status, started=started), ended=JobStatus.FAILED)
    assert settled == Settled(outcome=Outcome.ALREADY_THERE, reason=status.value)


@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.STOPPED, FAILED])
def test_a_job_that_ended_in_its_first_life_ended_by_itself(status: JobStatus) -> None:
    settled = decide(JOB, job_row("a", status, error_type="JOB_ENTRYPOINT_COMMAND_ERROR"))
    assert isinstance(settled, Settled)
    assert settled.outcome is Outcome.ENDED
    assert settled.reason.startswith(status.value)


@pytest.mark.parametrize("error_type", ALL_ERROR_TYPES)
def test_a_job_of_a_head_that_kept_its_records_is_replaced_if_the_cluster_dropped_it(
    error_type: str,
) -> None:
    decision = decide(JOB, job_row("a", FAILED, error_type=error_type))
    assert (decision is Action.REPLACE) == (error_type in LOST_WITH_HEAD)


@pytest.mark.parametrize("error_type", ALL_ERROR_TYPES)
def test_a_job_that_was_restored_before_is_replaced_only_if_it_never_ran(error_type: str) -> None:
    decision = decide(JOB, job_row("a", FAILED, started=EPOCH + 1, error_type=error_type))
    if error_type in NEVER_RAN:
        assert decision is Action.REPLACE
    else:
        assert isinstance(decision, Settled)
        assert decision.outcome is Outcome.ALREADY_THERE
        assert decision.reason.startswith("submitted before; FAILED")


@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.STOPPED])
def test_a_restored_job_that_has_ended_since_is_not_run_again(status: JobStatus) -> None:
    # The error type of another ending is no reason either.
    row = job_row("a", status, started=EPOCH + 1, error_type="RUNTIME_ENV_SETUP_FAILURE")
    decision = decide(JOB, row)
    assert isinstance(decision, Settled)
    assert decision.outcome is Outcome.ALREADY_THERE


def test_a_job_that_was_not_saved_whole_is_neither_submitted_nor_deleted() -> None:
    job = saved_job("a", missing=("its label selector",))
    dead = job_row("a", FAILED, error_type="JOB_SUPERVISOR_ACTOR_DIED")
    for decision in (decide(job, None), decide(job, dead)):
        assert decision == Settled(
            outcome=Outcome.NOT_RESTORABLE, reason="not saved: its label selector"
        )
    assert decide(job, job_row("a", JobStatus.RUNNING)) == Settled(
        outcome=Outcome.ALREADY_THERE, reason="RUNNING"
    )


@pytest.mark.parametrize("emptied", [False, True])
def test_a_job_that_we_stopped_is_replaced_only_in_the_life_in_which_we_did(
    emptied: bool,
) -> None:
    ours = decide(JOB, job_row("a", JobStatus.STOPPED), stopped=True, emptied=emptied)
    assert ours is Action.REPLACE
    since = job_row("a", JobStatus.STOPPED, started=EPOCH + 1)
    decision = decide(JOB, since, stopped=True, emptied=emptied)
    assert isinstance(decision, Settled)
    assert decision.outcome is Outcome.ALREADY_THERE


@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, FAILED])
def test_a_job_that_was_asked_to_stop_and_ended_otherwise_is_not_run_again(
    status: JobStatus,
) -> None:
    decision = decide(JOB, job_row("a", status), stopped=True, emptied=True)
    assert isinstance(decision, Settled)
    assert decision.outcome is Outcome.ENDED


@pytest.mark.parametrize("error_type", ALL_ERROR_TYPES)
@pytest.mark.parametrize("started", [EPOCH, EPOCH + 1])
def test_after_the_cluster_was_emptied_whatever_it_drops_is_submitted_again(
    error_type: str, started: int
) -> None:
    row = job_row("a", FAILED, started=started, error_type=error_type)
    again = LOST_WITH_HEAD if started == EPOCH else LOST_WITH_HEAD | NEVER_RAN
    assert (decide(JOB, row, emptied=True) is Action.REPLACE) == (error_type in again)


@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.RUNNING])
def test_after_the_cluster_was_emptied_a_life_of_before_is_only_a_record(
    status: JobStatus,
) -> None:
    decision = decide(JOB, job_row("a", status), emptied=True)
    assert isinstance(decision, Settled)
    assert decision.outcome is Outcome.FAILED
    assert decision.reason.startswith(f"{status} is only a record")
    there = decide(JOB, job_row("a", status, started=EPOCH + 1), emptied=True)
    assert there == Settled(outcome=Outcome.ALREADY_THERE, reason=status.value)

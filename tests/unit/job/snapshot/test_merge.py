"""One backup out of two looks: everything that is still owed is in the newest one."""

from __future__ import annotations

from datetime import timedelta

from rayfleet.job.model import JobStatus
from rayfleet.job.snapshot.merge import carried_over, without
from rayfleet.job.vault.model import SavedPackage
from tests.unit.job.vault.examples import TAKEN, backup, job

STOPPED, FAILED = JobStatus.STOPPED, JobStatus.FAILED
A, B = (SavedPackage(uri=f"gcs://{name}.zip", sha256=name * 64, size=1) for name in ("a", "b"))


def names(*jobs: object) -> list[str]:
    return [one.submission_id for one in jobs]  # type: ignore[attr-defined]


def test_what_has_not_ended_by_itself_is_carried_over_in_the_order_of_its_start() -> None:
    base = backup(job("a", started=1), job("ended", started=2), job("theirs", started=3))
    later = backup(
        job("late", started=9),
        ended={"a": STOPPED, "ended": FAILED, "theirs": STOPPED, "old": FAILED},
    )
    found = carried_over(base, later, stopped={"a", "ended"})
    assert names(*found.jobs) == ["a", "late"]
    assert found.ended == {"ended": FAILED, "theirs": STOPPED, "old": FAILED}
    assert (found.session, found.taken, found.id) == (later.session, later.taken, "")


def test_a_job_that_is_alive_in_both_is_as_the_later_look_saw_it() -> None:
    base = backup(job("a", started=1, status=JobStatus.PENDING))
    later = backup(job("a", started=5, metadata={"life": "2"}))
    assert carried_over(base, later).jobs == later.jobs


def test_packages_are_those_that_the_jobs_need() -> None:
    with_a = job("a", runtime_env={"working_dir": A.uri})
    with_b = job("b", runtime_env={"working_dir": B.uri}, started=2)
    base = backup(with_a, packages=(A,))
    later = backup(with_b, packages=(B,))
    assert carried_over(base, later).packages == (B, A)
    ended = backup(with_b, packages=(B,), ended={"a": FAILED})
    assert carried_over(base, ended).packages == (B,)
    assert carried_over(base, ended).complete


def test_a_backup_without_what_has_ended_is_a_new_one_without_an_id() -> None:
    base = backup(job("a"), job("b"), ended={"x": FAILED}, id="east-1", packages=(A,))
    found = without(base, {"b": JobStatus.SUCCEEDED}, TAKEN + timedelta(seconds=1))
    assert names(*found.jobs) == ["a"]
    assert found.ended == {"x": FAILED, "b": JobStatus.SUCCEEDED}
    assert (found.id, found.taken, found.packages) == ("", TAKEN + timedelta(seconds=1), ())

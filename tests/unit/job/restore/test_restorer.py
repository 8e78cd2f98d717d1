"""Every job of a backup comes back once, whatever breaks, and however often it is run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from rayfleet.errors import ToolFailed, Unreachable, UsageError
from rayfleet.job.dashboard import Unauthorized
from rayfleet.job.model import JobKind, JobStatus
from rayfleet.job.restore.packages import bring_packages
from rayfleet.job.restore.report import Outcome, Report
from rayfleet.job.restore.restorer import plan_restore, restore
from rayfleet.job.vault.model import Backup, LostKind, Unrestorable
from rayfleet.job.vault.store import Vault
from tests.unit.job.canned import FakeClock
from tests.unit.job.restore.fake_head import (
    EPOCH,
    FakeHead,
    Killed,
    job_row,
    keep_backup,
    saved_job,
    uris_of,
)

DIR, MODULE, OTHER = "gcs://_ray_pkg_dir.zip", "gcs://module-1.0-py3-none-any.whl", "gcs://o.zip"
CONTENTS = {DIR: b"zip of a folder", MODULE: b"a wheel", OTHER: b"another zip"}
PLAIN = saved_job("plain", started=EPOCH + 1, metadata={"owner": "ann@x"})
WITH_FILES = saved_job(
    "files",
    started=EPOCH + 2,
    runtime_env={"working_dir": DIR, "py_modules": [MODULE], "env_vars": {"KEY": "hunter2"}},
)
WAITS = saved_job(
    "waits", started=EPOCH + 3, status=JobStatus.PENDING, num_cpus=8, metadata={"owner": "bob@y"}
)
OTHERS = saved_job("other", started=EPOCH + 4, runtime_env={"working_dir": OTHER})
ALL = (PLAIN, WITH_FILES, WAITS, OTHERS)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "vault")


@pytest.fixture
def backup(vault: Vault) -> Backup:
    return keep_backup(vault, *ALL, contents=CONTENTS)


def run(head: FakeHead, vault: Vault, backup: Backup, *only: str) -> tuple[Report, list[str]]:
    lines: list[str] = []
    report = restore(head, vault, backup, only=only, narrate=lines.append, clock=head.clock)
    return report, lines


def outcomes(report: Report) -> dict[str, Outcome]:
    return {job.job_id: job.outcome for job in report.jobs}


def test_jobs_come_back_in_order_with_every_field_after_their_packages(
    vault: Vault, backup: Backup
) -> None:
    head = FakeHead()
    report, lines = run(head, vault, backup)
    assert [job.outcome for job in report.jobs] == [Outcome.RESTORED] * 4
    assert [job.reason for job in report.jobs] == [
        "RUNNING",
        "RUNNING",
        "PENDING, waits for its resources",
        "RUNNING",
    ]
    assert head.bodies == [job.document() for job in ALL]
    assert head.packages == {uri.removeprefix("gcs://"): raw for uri, raw in CONTENTS.items()}
    first = next(n for n, call in enumerate(head.calls) if call.startswith("submit"))
    assert not [call for call in head.calls[first:] if call.startswith("upload")]
    assert lines == [
        *(f"package {uri} put" for uri in (DIR, MODULE, OTHER)),
        "packages proved",
        *(f"restored {job.submission_id}" for job in ALL),
        "watching the start of 4",
    ]
    report.raise_failures()


def test_a_second_run_finds_everything_there(vault: Vault, backup: Backup) -> None:
    head = FakeHead()
    run(head, vault, backup)
    calls = len(head.calls)
    report, lines = run(head, vault, backup)
    assert [job.outcome for job in report.jobs] == [Outcome.ALREADY_THERE] * 4
    assert head.calls[calls:] == ["list"]
    assert lines == [f"already there {job.submission_id}" for job in ALL]
    report.raise_failures()


@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("kept", [False, True], ids=["empty head", "head with its records"])
def test_a_run_killed_at_any_call_is_finished_by_the_next_one(
    vault: Vault, backup: Backup, *, late: bool, kept: bool
) -> None:
    def prepared() -> FakeHead:
        head = FakeHead(cut_late=late)
        if kept:
            # Such a head has a dead job under the id of one, and the packages.
            head.rows["plain"] = job_row(
                "plain",
                JobStatus.FAILED,
                started=PLAIN.started,
                error_type="JOB_SUPERVISOR_ACTOR_START_FAILURE",
                metadata=PLAIN.metadata,
            )
            head.packages["_ray_pkg_dir.zip"] = CONTENTS[DIR]
        return head

    whole = prepared()
    run(whole, vault, backup)
    assert len(whole.calls) > 10
    for step in range(1, len(whole.calls) + 1):
        head = prepared()
        head.cut_at = step
        with pytest.raises(Killed):
            run(head, vault, backup)
        # What comes up to the kill was never submitted without its packages.
        assert not head.fails
        report, _ = run(head, vault, backup)
        assert {job.outcome for job in report.jobs} <= {Outcome.RESTORED, Outcome.ALREADY_THERE}
        assert sorted(head.submitted) == sorted(whole.submitted), step
        assert sorted(head.rows) == sorted(whole.rows)
        assert head.packages == whole.packages
        assert not head.fails


@pytest.mark.parametrize("step", [1, 6, 9, 12])
def test_a_lost_connection_names_the_command_that_goes_on(
    vault: Vault, backup: Backup, step: int
) -> None:
    head = FakeHead(cut=Unreachable("c1: the Ray dashboard does not answer"), cut_at=step)
    with pytest.raises(Unreachable) as caught:
        run(head, vault, backup, *(job.submission_id for job in ALL))
    jobs = "--job plain --job files --job waits --job other"
    expected = f"invoke jobs.restore --cluster c1 --backup {backup.id} {jobs}"
    assert caught.value.next_step == expected
    report, _ = run(head, vault, backup)
    report.raise_failures()
    assert sorted(head.submitted) == ["files", "other", "plain", "waits"]


def test_a_package_that_the_vault_has_lost_fails_its_jobs_and_no_others(
    vault: Vault, backup: Backup
) -> None:
    damaged = next(package for package in backup.packages if package.uri == MODULE)
    (vault.root / "packages" / damaged.sha256).write_bytes(b"rotten")
    head = FakeHead()
    report, lines = run(head, vault, backup)
    found = {job.job_id: job for job in report.jobs}
    assert found["files"].outcome is Outcome.FAILED
    assert damaged.sha256[:12] in found["files"].reason
    assert head.submitted == ["plain", "waits", "other"]
    assert any(line.startswith("failed files: ") for line in lines)
    with pytest.raises(Exception, match="1 of 4 jobs were not restored") as caught:
        report.raise_failures()
    assert caught.value.code == 7  # type: ignore[attr-defined]


def test_a_package_that_the_head_refuses_fails_its_jobs_and_no_others(
    vault: Vault, backup: Backup
) -> None:
    head = FakeHead(refused={"o.zip": ToolFailed("c1: cannot upload o.zip", why="HTTP 413: big")})
    report, _ = run(head, vault, backup)
    assert outcomes(report)["other"] is Outcome.FAILED
    assert report.jobs[-1].reason == "c1: cannot upload o.zip: HTTP 413: big"
    assert head.submitted == ["plain", "files", "waits"]


def test_a_package_that_chokes_a_head_which_answers_otherwise_fails_its_jobs_only(
    vault: Vault, backup: Backup
) -> None:
    head = FakeHead(refused={"o.zip": Unreachable("c1: no answer")})
    report, _ = run(head, vault, backup)
    assert report.jobs[-1].outcome is Outcome.FAILED
    assert report.jobs[-1].reason == f"the head did not take {OTHER} in time"
    assert head.submitted == ["plain", "files", "waits"]


def test_a_job_whose_package_was_not_saved_is_not_restorable_unless_the_head_has_it(
    vault: Vault,
) -> None:
    backup = keep_backup(vault, PLAIN, WITH_FILES, contents={DIR: b"x"})
    head = FakeHead()
    report, _ = run(head, vault, backup)
    assert outcomes(report) == {"plain": Outcome.RESTORED, "files": Outcome.NOT_RESTORABLE}
    assert report.jobs[1].reason == f"the bytes of {MODULE} were not saved"
    assert head.submitted == ["plain"]
    head.packages[MODULE.removeprefix("gcs://")] = b"somebody submitted it again"
    report, _ = run(head, vault, backup)
    assert outcomes(report) == {"plain": Outcome.ALREADY_THERE, "files": Outcome.RESTORED}


def test_packages_are_kept_alive_when_submitting_takes_longer_than_their_pin(
    vault: Vault,
) -> None:
    jobs = [saved_job(f"j{n}", started=EPOCH + n) for n in range(6)]
    jobs.append(saved_job("last", started=EPOCH + 9, runtime_env={"working_dir": DIR}))
    backup = keep_backup(vault, *jobs, contents={DIR: b"x"})
    head = FakeHead(clock=FakeClock(now=5.0), call_seconds=110.0)
    report, _ = run(head, vault, backup)
    assert not head.fails
    assert head.submitted[-1] == "last"
    assert report.count(Outcome.RESTORED) == 7


def test_a_job_that_the_head_refuses_is_named_without_its_secrets_and_others_go_on(
    vault: Vault, backup: Backup
) -> None:
    refusal = ToolFailed("c1: cannot submit the job", why="HTTP 400: bad env {'KEY': 'hunter2'}")
    head = FakeHead(refused={"files": refusal})
    report, lines = run(head, vault, backup)
    assert outcomes(report)["files"] is Outcome.FAILED
    assert "HTTP 400: bad env" in report.jobs[1].reason
    assert "hunter2" not in report.jobs[1].reason + "".join(lines)
    assert head.submitted == ["plain", "waits", "other"]


def test_a_refused_token_ends_the_run(vault: Vault, backup: Backup) -> None:
    head = FakeHead(refused={"plain": Unauthorized("c1: the head refuses us")})
    with pytest.raises(Unauthorized):
        run(head, vault, backup)
    assert head.submitted == []


def test_an_id_that_another_job_took_meanwhile_is_a_failure_and_not_a_copy(
    vault: Vault, backup: Backup
) -> None:
    head = FakeHead()

    def somebody_else() -> None:
        head.rows["plain"] = job_row("plain", JobStatus.RUNNING, entrypoint="other")

    head.on_submit = somebody_else
    report, _ = run(head, vault, backup, "plain")
    assert [(job.outcome, job.reason) for job in report.jobs] == [
        (Outcome.FAILED, "c1 has another job of the id plain")
    ]
    assert head.submitted == []


def test_a_job_that_cannot_start_is_failed_with_the_reason(vault: Vault, backup: Backup) -> None:
    message = "runtime_env setup failed: no wheel for KEY=hunter2\nTraceback"
    head = FakeHead(fails={"files": ("RUNTIME_ENV_SETUP_FAILURE", message)})
    report, lines = run(head, vault, backup)
    failed = report.jobs[1]
    assert failed.outcome is Outcome.FAILED
    assert failed.reason.startswith("RUNTIME_ENV_SETUP_FAILURE: runtime_env setup failed: no wheel")
    assert "10 minutes" in failed.reason
    assert "hunter2" not in failed.reason
    assert lines[-1] == f"failed files: {failed.reason}"
    # The next run replaces what never ran, once.
    head.fails.clear()
    head.rows["files"] = replace(
        head.rows["files"], status=JobStatus.FAILED, error_type="RUNTIME_ENV_SETUP_FAILURE"
    )
    again, _ = run(head, vault, backup)
    assert outcomes(again)["files"] is Outcome.RESTORED
    assert head.submitted.count("files") == 2
    assert head.submitted.count("plain") == 1


def test_submits_are_paced(vault: Vault) -> None:
    backup = keep_backup(vault, *(saved_job(f"j{n}", started=EPOCH + n) for n in range(20)))
    head = FakeHead()
    times: list[float] = []
    head.on_submit = lambda: times.append(head.clock.now)
    restore(head, vault, backup, per_second=4.0, clock=head.clock)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([0.25] * 19)


def test_jobs_that_wait_for_resources_are_not_paced(vault: Vault) -> None:
    waiting = {"status": JobStatus.PENDING, "resources": {"slice": 1.0}}
    backup = keep_backup(
        vault,
        saved_job("runs", started=EPOCH),
        *(saved_job(f"j{n}", started=EPOCH + 1 + n, **waiting) for n in range(50)),
    )
    head = FakeHead()
    times: list[float] = []
    head.on_submit = lambda: times.append(head.clock.now)
    restore(head, vault, backup, per_second=4.0, watch=0.0, clock=head.clock)
    assert times == pytest.approx([0.0] + [0.25] * 50)


def test_a_slow_head_is_not_waited_for_twice(vault: Vault) -> None:
    backup = keep_backup(vault, *(saved_job(f"j{n}", started=EPOCH + n) for n in range(5)))
    head = FakeHead(call_seconds=1.0)
    times: list[float] = []
    head.on_submit = lambda: times.append(head.clock.now)
    restore(head, vault, backup, per_second=2.0, clock=head.clock)
    assert [round(later - times[0], 3) for later in times] == [0, 1, 2, 3, 4]


def test_jobs_that_a_head_with_records_calls_running_are_checked_before_they_are_believed(
    vault: Vault, backup: Backup
) -> None:
    head = FakeHead()
    for job in (PLAIN, WITH_FILES):
        head.rows[job.submission_id] = job_row(
            job.submission_id, JobStatus.RUNNING, started=job.started, metadata=job.metadata
        )

    def look() -> None:
        head.rows["files"] = replace(
            head.rows["files"],
            status=JobStatus.FAILED,
            error_type="JOB_SUPERVISOR_ACTOR_START_FAILURE",
        )
        head.on_submit = lambda: None

    head.on_submit = look
    report, lines = run(head, vault, backup)
    assert lines[0] == "checking what the head says runs: 2"
    assert outcomes(report) == {
        "plain": Outcome.ALREADY_THERE,
        "files": Outcome.RESTORED,
        "waits": Outcome.RESTORED,
        "other": Outcome.RESTORED,
    }
    assert head.submitted == ["files", "waits", "other"]
    assert "delete files" in head.calls


def test_jobs_that_ended_by_a_later_backup_are_not_run_again(vault: Vault, backup: Backup) -> None:
    later = datetime(2026, 11, 22, tzinfo=UTC)
    keep_backup(vault, taken=later, ended={"plain": JobStatus.SUCCEEDED})
    head = FakeHead()
    report, lines = run(head, vault, backup)
    assert report.jobs[0].outcome is Outcome.ENDED
    assert report.jobs[0].reason == "SUCCEEDED, says a later backup"
    assert "ended by itself plain" in lines
    assert "plain" not in head.submitted


def test_only_named_jobs_and_their_packages_go(vault: Vault, backup: Backup) -> None:
    head = FakeHead()
    report, _ = run(head, vault, backup, "other")
    assert outcomes(report) == {"other": Outcome.RESTORED}
    assert list(head.packages) == ["o.zip"]


def test_infrastructure_and_what_nobody_can_give_back_are_listed_and_left(vault: Vault) -> None:
    cleanup = saved_job("cleanup-1", infrastructure=True, runtime_env={"working_dir": DIR})
    driver = Unrestorable(kind=LostKind.DRIVER, name="02000000", detail="python x.py")
    backup = keep_backup(vault, cleanup, PLAIN, unrestorable=(driver,))
    head = FakeHead()
    report, _ = run(head, vault, backup)
    assert outcomes(report) == {"plain": Outcome.RESTORED}
    assert report.infrastructure == ("cleanup-1",)
    assert report.unrestorable == (driver,)
    assert head.submitted == ["plain"]
    assert not head.packages
    report.raise_failures()


@pytest.mark.parametrize(
    ("name", "why"),
    [("nobody", "nobody is not in it"), ("cleanup-1", "cleanup-1 belongs to the infrastructure")],
)
def test_a_job_that_the_backup_does_not_give_back_is_refused_before_anything_happens(
    vault: Vault, name: str, why: str
) -> None:
    backup = keep_backup(vault, PLAIN, saved_job("cleanup-1", infrastructure=True))
    head = FakeHead()
    with pytest.raises(UsageError) as caught:
        run(head, vault, backup, "plain", name)
    assert caught.value.why == why
    assert head.calls == []


def test_a_driver_of_the_same_name_is_no_job_of_ours(vault: Vault) -> None:
    backup = keep_backup(vault, PLAIN)
    head = FakeHead()
    row = job_row("plain", JobStatus.RUNNING)
    head.rows["driver"] = replace(row, kind=JobKind.DRIVER, submission_id="", job_id="plain")
    report, _ = run(head, vault, backup)
    assert outcomes(report) == {"plain": Outcome.RESTORED}


def test_an_empty_backup_touches_nothing(vault: Vault) -> None:
    head = FakeHead()
    report, lines = run(head, vault, keep_backup(vault))
    assert (report.jobs, lines, head.calls) == ((), [], ["list"])
    assert report.summary().startswith("c1: no jobs to restore")


def test_no_job_is_ever_submitted_before_all_of_its_packages(vault: Vault, backup: Backup) -> None:
    head = FakeHead()
    run(head, vault, backup)
    for job in ALL:
        body = job.document()
        submit = head.calls.index(f"submit {job.submission_id}")
        for uri in uris_of(body):
            assert f"has {uri.removeprefix('gcs://')}" in head.calls[:submit]


def test_jobs_that_are_there_are_watched_too_after_the_cluster_was_emptied(
    vault: Vault, backup: Backup
) -> None:
    head = FakeHead()
    restore(head, vault, backup, emptied=True, watch=0.0, clock=head.clock)
    report = restore(head, vault, backup, emptied=True, clock=head.clock)
    assert [job.outcome for job in report.jobs] == [Outcome.RESTORED] * 4
    assert [job.reason for job in report.jobs] == [
        "RUNNING",
        "RUNNING",
        "PENDING, waits for its resources",
        "RUNNING",
    ]
    assert head.submitted == [job.submission_id for job in ALL]


def test_what_a_later_backup_of_the_same_head_calls_stopped_was_stopped_by_us(
    vault: Vault,
) -> None:
    made = keep_backup(vault, PLAIN, saved_job("theirs"))
    ended = {"plain": JobStatus.STOPPED, "theirs": JobStatus.STOPPED}
    keep_backup(vault, ended=ended, taken=datetime(2026, 11, 22, tzinfo=UTC))
    head = FakeHead()
    report = restore(head, vault, made, stopped={"plain"}, clock=head.clock)
    assert outcomes(report) == {"plain": Outcome.RESTORED, "theirs": Outcome.ENDED}


def test_who_names_jobs_that_were_stopped_gets_them_back_and_the_command_too(vault: Vault) -> None:
    """As ``jobs.restore --stopped --job plain`` does."""
    made = keep_backup(vault, PLAIN, saved_job("other"))
    head = FakeHead()
    head.rows["plain"] = job_row("plain", JobStatus.STOPPED, started=EPOCH + 1)
    left = restore(head, vault, made, only=["plain"], clock=head.clock)
    assert outcomes(left) == {"plain": Outcome.ENDED}
    assert "--stopped" not in left.command
    plan = plan_restore(head, vault, made, only=["plain"], stopped=["plain"])
    assert outcomes(plan) == {"plain": Outcome.PLANNED}
    report = restore(head, vault, made, only=["plain"], stopped=["plain"], clock=head.clock)
    assert outcomes(report) == {"plain": Outcome.RESTORED}
    assert report.command.endswith(f" --backup {made.id} --stopped --job plain")


def test_packages_alone_are_brought_and_problems_are_named(vault: Vault, backup: Backup) -> None:
    head = FakeHead()
    head.refused["o.zip"] = ToolFailed("c1: cannot upload o.zip", why="too large")
    uris = [DIR, OTHER, DIR, "gcs://unknown.zip"]
    problems = bring_packages(
        head, vault, backup, uris, narrate=lambda text: None, clock=head.clock
    )
    assert set(head.packages) == {"_ray_pkg_dir.zip"}
    assert problems == (
        f"{OTHER}: c1: cannot upload o.zip: too large",
        "gcs://unknown.zip: the bytes of gcs://unknown.zip were not saved",
    )
    assert head.submitted == []


def test_a_plan_says_what_would_become_of_each_job_and_changes_nothing(
    vault: Vault, backup: Backup
) -> None:
    head = FakeHead()
    lost = job_row(
        "plain", JobStatus.FAILED, started=PLAIN.started, error_type="JOB_SUPERVISOR_ACTOR_DIED"
    )
    head.rows = {
        "plain": lost,
        "waits": job_row("waits", JobStatus.RUNNING, started=WAITS.started + 1),
    }
    report = plan_restore(head, vault, backup)
    assert [(job.job_id, job.outcome, job.reason) for job in report.jobs] == [
        ("plain", Outcome.PLANNED, "the head has a lost job under its id"),
        ("files", Outcome.PLANNED, ""),
        ("waits", Outcome.ALREADY_THERE, "RUNNING"),
        ("other", Outcome.PLANNED, ""),
    ]
    assert (head.calls, head.bodies, head.packages) == (["list"], [], {})
    assert report.summary() == f"c1: 3 would be restored, 1 already there (from {backup.id})"
    assert [job.job_id for job in plan_restore(head, vault, backup, only=["files"]).jobs] == [
        "files"
    ]
    with pytest.raises(UsageError, match="nothing is not in it"):
        plan_restore(head, vault, backup, only=["nothing"])
    assert outcomes(run(head, vault, backup)[0])["files"] is Outcome.RESTORED

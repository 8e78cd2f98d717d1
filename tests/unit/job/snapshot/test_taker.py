"""A backup while the cluster goes on living."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rayfleet.errors import RayfleetError, ToolFailed, Unreachable
from rayfleet.job.model import Job, JobKind, JobStatus, UnreadableJob
from rayfleet.job.snapshot.parse import NO_SELECTOR
from rayfleet.job.snapshot.taker import MORE_ROUNDS, ONLY_LISTED, take_backup
from rayfleet.job.vault.model import Backup, LostKind, Unrestorable
from rayfleet.job.vault.store import Vault
from tests.unit.job.canned import FakeClock
from tests.unit.job.snapshot.scripted import ScriptedSource, job, seen

NOW = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)
PACKAGES = {"a.zip": b"a" * 2_000, "b.zip": b"b", "c.zip": b"c"}


def is_cron(name: str, metadata: Mapping[str, str] | None) -> bool:
    return name.startswith("cron")


class Taken:
    """A backup, what was narrated and the vault that has it."""

    def __init__(self, root: Path, source: ScriptedSource) -> None:
        self.vault = Vault(root / "vault")
        self.source = source
        self.said: list[str] = []
        self.clock = FakeClock()
        self.lists: Sequence[Sequence[Job] | RayfleetError] = ((),)
        self.listed = 0

    def dashboard(self) -> Sequence[Job]:
        """The next of the lists, the last one for ever, or the error in its place."""
        found = self.lists[min(self.listed, len(self.lists) - 1)]
        self.listed += 1
        if isinstance(found, RayfleetError):
            raise found
        return found

    def take(self, *, once: bool = False) -> Backup:
        return take_backup(
            self.source,
            self.vault,
            cluster="us-east5",
            identity="marin-us-east5",
            infrastructure=is_cron,
            dashboard=self.dashboard,
            narrate=self.said.append,
            clock=self.clock,
            once=once,
            now=lambda: NOW,
        )


def taking(root: Path, *looks: object, **packages: bytes) -> Taken:
    content = packages or PACKAGES
    return Taken(root, ScriptedSource(looks, dict(content)))  # type: ignore[arg-type]


def test_one_look_is_enough_for_who_looks_himself_unless_something_is_missing(
    tmp_path: Path,
) -> None:
    late = seen(job("one", "a.zip"), job("late", "b.zip"))
    taken = taking(tmp_path / "whole", seen(job("one", "a.zip")), late)
    assert [saved.submission_id for saved in taken.take(once=True).jobs] == ["one"]
    unready = seen(job("one", "a.zip", missing=(NO_SELECTOR,)))
    taken = taking(tmp_path / "unready", unready, late)
    backup = taken.take(once=True)
    assert backup.complete
    assert [saved.submission_id for saved in backup.jobs] == ["one", "late"]


def test_everything_that_was_seen_is_in_the_vault(tmp_path: Path) -> None:
    jobs = (job("one", "a.zip", "b.zip"), job("two", "b.zip", metadata={"owner": "me"}))
    lost = Unrestorable(kind=LostKind.DRIVER, name="01")
    look = seen(*jobs, ended={"old": JobStatus.FAILED}, unrestorable=(lost,))
    taken = taking(tmp_path, look)
    backup = taken.take()
    assert backup.complete
    assert taken.vault.load(backup.id) == backup == taken.vault.latest("us-east5")
    assert (backup.jobs, backup.ended, backup.unrestorable) == (jobs, look.ended, (lost,))
    assert (backup.session, backup.ray_version, backup.taken) == ("session_1", "2.60.0", NOW)
    assert (backup.cluster, backup.identity) == ("us-east5", "marin-us-east5")
    held = {one.name: taken.vault.package(one.sha256).read_bytes() for one in backup.packages}
    assert held == {"a.zip": PACKAGES["a.zip"], "b.zip": PACKAGES["b.zip"]}


def test_each_step_is_narrated_in_order(tmp_path: Path) -> None:
    taken = taking(tmp_path, seen(job("one", "a.zip"), job("two", "b.zip")))
    taken.take()
    assert taken.said == [
        "2 jobs have not ended",
        "saved gcs://a.zip (2 kB)",
        "saved gcs://b.zip (1 B)",
        "written",
        "verified",
    ]


def test_a_package_of_several_jobs_is_fetched_once(tmp_path: Path) -> None:
    jobs = (job("one", "a.zip"), job("two", "a.zip"))
    taken = taking(tmp_path, seen(*jobs), seen(*jobs, job("three", "a.zip", "b.zip")))
    backup = taken.take()
    assert taken.source.fetched == [("gcs://a.zip",), ("gcs://b.zip",)]
    assert [one.name for one in backup.packages] == ["a.zip", "b.zip"]


def test_a_cluster_without_jobs_makes_a_backup_without_jobs(tmp_path: Path) -> None:
    taken = taking(tmp_path, seen())
    backup = taken.take()
    assert (backup.jobs, backup.packages, backup.complete) == ((), (), True)
    assert taken.said == ["0 jobs have not ended", "written", "verified"]


def test_jobs_that_could_not_be_listed_leave_no_backup(tmp_path: Path) -> None:
    for looks in ([Unreachable("gone")], [seen(job("one", "a.zip")), Unreachable("gone")]):
        taken = taking(tmp_path, *looks)
        with pytest.raises(Unreachable, match="gone"):
            taken.take()
        assert taken.vault.backups() == ()


def test_a_job_that_came_meanwhile_is_saved_with_its_package(tmp_path: Path) -> None:
    one, late, later = job("one", "a.zip"), job("late", "b.zip"), job("later", "c.zip")
    taken = taking(tmp_path, seen(one), seen(one, late), seen(one, late, later))
    backup = taken.take()
    assert [each.submission_id for each in backup.jobs] == ["one", "late", "later"]
    assert backup.complete
    assert taken.source.looked == 4


def test_jobs_that_never_stop_coming_end_in_an_incomplete_backup(tmp_path: Path) -> None:
    looks = [seen(*(job(f"j{n}", f"{n}.zip") for n in range(count))) for count in range(1, 10)]
    taken = Taken(tmp_path, ScriptedSource(looks, {f"{n}.zip": b"x" for n in range(10)}))
    backup = taken.take()
    assert taken.source.looked == 2 + MORE_ROUNDS
    assert backup.missing == ("j4: the bytes of gcs://4.zip",)
    with pytest.raises(Exception, match="no complete backup"):
        taken.vault.latest("us-east5")


def test_a_job_that_ended_meanwhile_is_not_saved_and_its_package_is_not_missed(
    tmp_path: Path,
) -> None:
    """A package is gone about a second after its job has ended."""
    stays, ends = job("stays", "a.zip"), job("ends", "gone.zip")
    after = seen(stays, ended={"ends": JobStatus.SUCCEEDED})
    backup = taking(tmp_path, seen(stays, ends), after).take()
    assert backup.jobs == (stays,)
    assert backup.ended == {"ends": JobStatus.SUCCEEDED}
    assert backup.complete


def test_a_package_of_a_job_that_ended_is_not_named_by_the_backup(tmp_path: Path) -> None:
    stays, ends = job("stays", "a.zip"), job("ends", "b.zip")
    after = seen(stays, ended={"ends": JobStatus.FAILED})
    backup = taking(tmp_path, seen(stays, ends), after).take()
    assert [one.name for one in backup.packages] == ["a.zip"]


def test_an_id_that_was_used_again_meanwhile_is_a_new_job(tmp_path: Path) -> None:
    first, second = job("same", "a.zip", started=1), job("same", "b.zip", started=2)
    taken = taking(tmp_path, seen(first), seen(second))
    backup = taken.take()
    assert backup.jobs == (second,)
    assert backup.complete
    assert taken.source.looked == 3


def test_a_package_that_is_gone_while_its_job_waits_is_missing(tmp_path: Path) -> None:
    backup = taking(tmp_path, seen(job("waits", "a.zip", "gone.zip"))).take()
    assert backup.missing == ("waits: the bytes of gcs://gone.zip",)
    assert [one.name for one in backup.packages] == ["a.zip"]


def test_a_job_that_ray_is_just_starting_is_looked_at_again(tmp_path: Path) -> None:
    new = job("new", missing=(NO_SELECTOR,))
    started = job("new", label_selector={"zone": "a"})
    taken = taking(tmp_path, seen(new), seen(new), seen(started))
    backup = taken.take()
    assert backup.jobs == (started,)
    assert backup.complete
    assert taken.clock.slept == [1.0, 1.0]


def test_a_job_that_ray_never_starts_is_saved_as_incomplete(tmp_path: Path) -> None:
    backup = taking(tmp_path, seen(job("new", missing=(NO_SELECTOR,)))).take()
    assert backup.missing == ("new: its label selector",)


def test_jobs_of_the_infrastructure_are_marked_and_their_packages_left(tmp_path: Path) -> None:
    taken = taking(tmp_path, seen(job("cron-1", "gone.zip"), job("one", "a.zip")))
    backup = taken.take()
    assert [each.infrastructure for each in backup.jobs] == [True, False]
    assert backup.complete
    assert taken.source.fetched == [("gcs://a.zip",)]


def test_a_head_that_was_replaced_meanwhile_is_looked_at_from_the_start(tmp_path: Path) -> None:
    old, new = job("old", "a.zip"), job("new", "a.zip")
    looks = (seen(old), seen(new, session="session_2"))
    taken = taking(tmp_path, *looks)
    backup = taken.take()
    assert (backup.session, backup.jobs) == ("session_2", (new,))
    # A URI says nothing about its bytes: what the old head had is not what the new one has.
    assert taken.source.fetched == [("gcs://a.zip",), ("gcs://a.zip",)]


def test_a_head_that_is_replaced_again_and_again_is_an_error(tmp_path: Path) -> None:
    looks = [seen(job("one"), session=f"session_{n}") for n in range(4)]
    taken = taking(tmp_path, *looks)
    with pytest.raises(ToolFailed, match="replaced again and again"):
        taken.take()
    assert taken.vault.backups() == ()


def test_the_packages_of_a_run_that_failed_are_not_left_behind(tmp_path: Path) -> None:
    taken = taking(tmp_path, seen(job("one", "a.zip")), Unreachable("gone"))
    with pytest.raises(Unreachable):
        taken.take()
    assert list((tmp_path / "vault" / "incoming").iterdir()) == []


def row(name: str, status: JobStatus = JobStatus.RUNNING) -> Job:
    """A job as the dashboard lists it."""
    return Job(
        submission_id=name,
        job_id="",
        kind=JobKind.SUBMISSION,
        status=status,
        entrypoint=f"python {name}.py",
        started=1_763_730_000_001,
        metadata={"owner": "me"},
    )


@pytest.mark.parametrize("once", [False, True])
def test_a_job_that_only_the_dashboard_lists_makes_the_backup_incomplete(
    tmp_path: Path, once: bool
) -> None:
    """Where this Ray keeps its jobs elsewhere, its store looks empty."""
    taken = taking(tmp_path, seen(job("one", "a.zip")))
    taken.lists = ((row("one"), row("two"), row("cron-1"), row("old", JobStatus.FAILED)),)
    backup = taken.take(once=once)
    assert backup.missing == (f"two: {ONLY_LISTED}",)
    two = next(saved for saved in backup.jobs if saved.submission_id == "two")
    assert (two.owner, two.entrypoint, two.started) == ("me", "python two.py", row("two").started)
    assert taken.vault.load(backup.id) == backup
    with pytest.raises(Exception, match="no complete backup"):
        taken.vault.latest("us-east5")


def test_a_job_that_ended_or_went_between_the_list_and_the_look_is_not_missing(
    tmp_path: Path,
) -> None:
    """The list is the older of the two; who has ended may be deleted, and is looked for again."""
    taken = taking(tmp_path, seen(ended={"ended": JobStatus.SUCCEEDED}))
    taken.lists = ((row("ended"), row("deleted")), (row("ended", JobStatus.SUCCEEDED),))
    backup = taken.take(once=True)
    assert (backup.jobs, backup.complete) == ((), True)


def test_drivers_of_the_dashboard_are_no_jobs_to_save(tmp_path: Path) -> None:
    taken = taking(tmp_path, seen())
    taken.lists = ((replace(row(""), job_id="01", kind=JobKind.DRIVER),),)
    assert taken.take().complete


def test_a_dashboard_that_does_not_answer_is_told_once_and_keeps_no_job_from_being_saved(
    tmp_path: Path,
) -> None:
    taken = taking(tmp_path, seen(job("one", "a.zip")))
    taken.lists = (Unreachable("no answer", why="timed out"), ToolFailed("no second question"))
    backup = taken.take()
    assert backup.complete
    assert taken.listed == 1
    assert taken.said[0] == (
        "the dashboard does not list the jobs, so nobody checks that none is missing: timed out"
    )


def test_a_dashboard_whose_list_nobody_understands_is_an_error(tmp_path: Path) -> None:
    taken = taking(tmp_path, seen(job("one", "a.zip")))
    taken.lists = (UnreadableJob("cannot read a job of the jobs API"),)
    with pytest.raises(ToolFailed, match="cannot read a job"):
        taken.take()
    assert taken.vault.backups() == ()

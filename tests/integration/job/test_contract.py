"""The heads in memory that stand for Ray in unit tests, and a real one: all do the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from rayfleet.errors import ToolFailed
from rayfleet.job.client import JobClient
from rayfleet.job.model import Job, JobExists, JobKind, JobStatus, UnknownJob
from rayfleet.job.package import Package
from rayfleet.job.restore.decide import NEVER_RAN, Action, decide
from rayfleet.job.snapshot import reader
from rayfleet.job.snapshot.locate import find
from rayfleet.job.snapshot.parse import parse_look
from rayfleet.job.snapshot.source import Look
from rayfleet.job.vault.model import SavedJob
from rayfleet.waiting import Clock, SystemClock, wait_until
from tests.support.fake_dashboard import FakeDashboard
from tests.support.ray_head import LocalRayHead
from tests.support.rollout_world import World
from tests.unit.job.restore.fake_head import FakeHead, saved_job

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

T = TypeVar("T")

FOREVER = "sleep 600"


@dataclass
class Head:
    """One of them. ``jobs`` is what production has a JobClient for, ``look`` what it reads out of
    Ray's store; ``clock`` is the head's."""

    jobs: Any
    clock: Clock = field(default_factory=SystemClock)
    look: Callable[[], Look] | None = None
    names: list[str] = field(default_factory=list)

    def job(self, **changes: Any) -> SavedJob:
        """A job under an id that this head has never seen, which runs until it is stopped."""
        name = f"contract-{uuid4().hex[:8]}"
        self.names.append(name)
        given = {"entrypoint": FOREVER, "metadata": {"owner": "me"}}
        return saved_job(name, **(given | changes))

    def row(self, job: SavedJob) -> Job | None:
        """What the head lists of ``job``."""
        rows: tuple[Job, ...] = self.jobs.list()
        return next((row for row in rows if row.submission_id == job.submission_id), None)

    def until(self, job: SavedJob, *statuses: JobStatus) -> Job:
        """``job`` once the head lists it in one of these states."""

        def probe() -> Job | None:
            row = self.row(job)
            return row if row is not None and row.status in statuses else None

        return self.wait(probe, f"{job.submission_id} to be {statuses}")

    def wait(self, probe: Callable[[], T | None], what: str) -> T:
        found = wait_until(probe, what=what, timeout=180, clock=self.clock)
        assert found is not None
        return found


@contextmanager
def opened(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Head]:
    """One of them; what was submitted to the real one is stopped at the end."""
    if kind == "FakeHead":
        fake = FakeHead()
        yield Head(fake, fake.clock)
    elif kind == "WorldHead":
        world = World(folder / "world")
        yield Head(world.head, world.clock, world.look)
    elif kind == "FakeDashboard":
        served = FakeDashboard(start_seconds=1.0)
        yield Head(JobClient(served, cluster="c1", clock=served.clock), served.clock)
    else:
        ray: LocalRayHead = request.getfixturevalue("ray_head")
        made = Head(ray.jobs(), look=partial(look_at, ray))
        yield made
        for name in made.names:
            with suppress(UnknownJob):
                made.jobs.stop(name)


@pytest.fixture(params=["FakeHead", "FakeDashboard", "WorldHead", "Ray"])
def head(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Head]:
    """Each in turn."""
    with opened(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=["FakeDashboard", "WorldHead", "Ray"])
def stopping(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Head]:
    """Those that can stop a job: FakeHead is for a restore, which stops none."""
    with opened(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=["WorldHead", "Ray"])
def storing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Head]:
    """Those of which a backup is taken."""
    with opened(request.param, request, tmp_path) as found:
        yield found


def look_at(ray: LocalRayHead) -> Look:
    """What the reader finds in the store of a real head, without SSH."""
    where = json.dumps(find(str(ray.port))._asdict())
    ran = subprocess.run(
        [sys.executable, str(Path(reader.__file__)), where, str(ray.port), "60", "look"],
        env=os.environ | {"RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        check=True,
    )
    header, _, rest = ran.stdout.partition(reader.MARK)[2].partition(b"\n")
    return parse_look(rest[: json.loads(header)["size"]])


def package(folder: Path, content: bytes = b"PK\x05\x06" + bytes(18)) -> Package:
    """An archive without files under a name that no head has seen."""
    path = folder / f"_ray_pkg_{uuid4().hex[:16]}.zip"
    path.write_bytes(content)
    return Package(name=path.name, path=path, size=len(content), files=0)


def test_a_job_is_listed_as_it_was_submitted_and_soon_runs(head: Head) -> None:
    job = head.job(metadata={"owner": "me", "note": ""})
    assert head.row(job) is None
    assert head.jobs.submit(job) == job.submission_id
    row = head.row(job)
    assert row is not None
    assert row.status in (JobStatus.PENDING, JobStatus.RUNNING)
    assert (row.kind, row.error_type) == (JobKind.SUBMISSION, "")
    assert (row.entrypoint, row.metadata) == (job.entrypoint, job.metadata)
    runs = head.until(job, JobStatus.RUNNING)
    assert runs.started == row.started > 0


def test_a_job_that_is_submitted_again_is_the_same_and_another_under_its_id_is_refused(
    head: Head,
) -> None:
    job = head.job()
    head.jobs.submit(job)
    first = head.row(job)
    assert first is not None
    assert head.jobs.submit(job) == job.submission_id
    again = head.row(job)
    assert again is not None
    assert again.started == first.started
    for other in (replace(job, entrypoint="true"), replace(job, metadata={"owner": "you"})):
        with pytest.raises(JobExists):
            head.jobs.submit(other)


def test_a_job_without_metadata_is_listed_with_none(head: Head) -> None:
    job = head.job(metadata=None)
    head.jobs.submit(job)
    head.jobs.submit(job)
    row = head.row(job)
    assert row is not None
    assert row.metadata == {}


def test_a_job_that_asks_for_more_than_there_is_waits(head: Head) -> None:
    waits, runs = head.job(num_cpus=64), head.job()
    head.jobs.submit(waits)
    head.jobs.submit(runs)
    head.until(runs, JobStatus.RUNNING)
    row = head.row(waits)
    assert row is not None
    assert row.status is JobStatus.PENDING


def test_a_job_whose_package_is_not_there_fails_before_it_runs(head: Head) -> None:
    job = head.job(runtime_env={"working_dir": f"gcs://_ray_pkg_{uuid4().hex[:16]}.zip"})
    head.jobs.submit(job)
    row = head.until(job, JobStatus.FAILED)
    assert row.error_type == "RUNTIME_ENV_SETUP_FAILURE"
    assert row.error_type in NEVER_RAN
    assert decide(job, row) is Action.REPLACE
    assert "_ray_pkg_" in row.message


def test_a_package_is_there_once_it_was_uploaded_and_a_job_can_run_in_it(
    head: Head, tmp_path: Path
) -> None:
    files = package(tmp_path)
    assert not head.jobs.has_package(files.name)
    assert head.jobs.upload(files) is True
    assert head.jobs.has_package(files.name)
    assert head.jobs.upload(files) is False
    job = head.job(runtime_env={"working_dir": f"gcs://{files.name}"})
    head.jobs.submit(job)
    head.until(job, JobStatus.RUNNING)


def test_only_a_job_that_has_ended_can_be_deleted_and_its_id_is_free_then(head: Head) -> None:
    uri = f"gcs://_ray_pkg_{uuid4().hex[:16]}.zip"
    job = head.job(runtime_env={"working_dir": uri})
    assert head.jobs.delete(job.submission_id) is False
    runs = head.job()
    head.jobs.submit(runs)
    head.until(runs, JobStatus.RUNNING)
    with pytest.raises(ToolFailed):
        head.jobs.delete(runs.submission_id)
    head.jobs.submit(job)
    first = head.until(job, JobStatus.FAILED)
    assert head.jobs.delete(job.submission_id) is True
    assert head.row(job) is None
    assert head.jobs.delete(job.submission_id) is False
    head.jobs.submit(replace(job, runtime_env=None))
    second = head.until(job, JobStatus.RUNNING)
    assert second.started > first.started


def test_a_job_that_was_stopped_is_listed_so_in_the_same_life(stopping: Head) -> None:
    head = stopping
    job = head.job()
    head.jobs.submit(job)
    runs = head.until(job, JobStatus.RUNNING)
    assert head.jobs.stop(job.submission_id) is True
    row = head.until(job, JobStatus.STOPPED)
    assert (row.started, row.error_type, row.ended) == (runs.started, "", True)


def test_a_job_that_waits_is_not_stopped(stopping: Head) -> None:
    head = stopping
    waits, runs = head.job(num_cpus=64), head.job()
    for job in (waits, runs):
        head.jobs.submit(job)
    head.until(runs, JobStatus.RUNNING)
    for job in (waits, runs):
        head.jobs.stop(job.submission_id)
    head.until(runs, JobStatus.STOPPED)
    row = head.row(waits)
    assert row is not None
    assert row.status is JobStatus.PENDING


def test_the_store_has_what_the_list_has(storing: Head) -> None:
    head = storing
    assert head.look is not None
    runs, waits, stopped = head.job(), head.job(num_cpus=64), head.job()
    fails = head.job(runtime_env={"working_dir": f"gcs://_ray_pkg_{uuid4().hex[:16]}.zip"})
    for job in (runs, waits, stopped, fails):
        head.jobs.submit(job)
    head.until(stopped, JobStatus.RUNNING)
    head.jobs.stop(stopped.submission_id)
    head.until(stopped, JobStatus.STOPPED)
    head.until(fails, JobStatus.FAILED)
    now = head.until(runs, JobStatus.RUNNING)
    look = head.look()
    found = {job.submission_id: job for job in look.jobs}
    assert found[waits.submission_id].status is JobStatus.PENDING
    kept = found[runs.submission_id]
    assert (kept.status, kept.started) == (JobStatus.RUNNING, now.started)
    assert (kept.entrypoint, kept.metadata) == (runs.entrypoint, runs.metadata)
    assert look.ended[stopped.submission_id] is JobStatus.STOPPED
    assert look.ended[fails.submission_id] is JobStatus.FAILED
    assert not {stopped.submission_id, fails.submission_id} & found.keys()
    assert sorted(look.jobs, key=lambda job: job.started) == list(look.jobs)


def test_who_is_unknown_cannot_be_stopped(stopping: Head) -> None:
    with pytest.raises(UnknownJob):
        stopping.jobs.stop(stopping.job().submission_id)

"""Jobs given back to a real Ray head, in every state that a head can be in."""

from __future__ import annotations

import io
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rayfleet.errors import ToolFailed
from rayfleet.job.model import Job, JobStatus
from rayfleet.job.restore.report import NotRestored, Report
from rayfleet.job.restore.restorer import restore
from rayfleet.job.snapshot.source import HeadSource
from rayfleet.job.snapshot.taker import take_backup
from rayfleet.job.vault.model import Backup, SavedJob
from rayfleet.job.vault.store import Vault
from rayfleet.waiting import wait_until
from tests.support.depth import deep
from tests.support.job_cluster import JobCluster
from tests.unit.job.restore.fake_head import keep_backup

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PYTHON = shlex.quote(sys.executable)
SECRET = "correct-horse-battery"
BORN = 1_700_000_000_000
FOLDER, FIRST, SECOND, BROKEN = (f"gcs://{name}.zip" for name in ("dir", "first", "second", "bad"))


def zipped(files: Mapping[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return stream.getvalue()


CONTENTS = {
    FOLDER: zipped({".gitignore": "*.log\n", "data.log": "ignored by git\n", "d/x": "1\n"}),
    FIRST: zipped({"first_module/__init__.py": "NAME = 'one'\n"}),
    SECOND: zipped({"second_module/__init__.py": "NAME = 'two'\n"}),
    BROKEN: b"this is no zip",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobCluster]:
    """A cluster whose head the tests may lose."""
    cluster = JobCluster(folder=tmp_path_factory.mktemp("sshd"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def keeping_cluster(tmp_path: Path) -> Iterator[JobCluster]:
    """A cluster whose head keeps its records over a restart, and gives up on starts early."""
    cluster = JobCluster(folder=tmp_path)
    with tempfile.TemporaryDirectory(prefix="rf") as store:
        cluster.ray.settings = {
            "RAY_gcs_storage": "rocksdb",
            "RAY_gcs_storage_path": store,
            "RAY_JOB_START_TIMEOUT_SECONDS": "60",
        }
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "vault")


def job(name: str, folder: Path, before: str = "true", **fields: Any) -> SavedJob:
    """A job that notes that it runs, and runs until its folder has a gate."""
    wait = f"while ! test -e {folder}/gate; do sleep 0.3; done"
    entrypoint = f"{before} && echo {name} >> {folder}/runs; {wait}"
    given: dict[str, Any] = {
        "submission_id": name,
        "status": JobStatus.RUNNING,
        "started": BORN,
        "entrypoint": entrypoint,
        # Ray keeps the zeros when nothing was asked for.
        "num_cpus": 0,
        "num_gpus": 0,
        "memory": 0,
    }
    return SavedJob(**(given | fields))


def many_kinds(folder: Path) -> tuple[SavedJob, ...]:
    """Jobs of many kinds, in the order of their start."""
    waits = {"status": JobStatus.PENDING}
    modules = "import first_module, second_module; print(first_module.NAME, second_module.NAME)"
    jobs = (
        job("plain", folder, before="""test 'a "b" $HOME' != x"""),
        job(
            "files",
            folder,
            before="grep -q git data.log && test -e .gitignore && test -e d/x",
            runtime_env={"working_dir": FOLDER},
        ),
        job(
            "modules",
            folder,
            before=f'{PYTHON} -c "{modules}"',
            runtime_env={"py_modules": [FIRST, SECOND], "working_dir": FOLDER},
        ),
        job(
            "secret",
            folder,
            before=f'test "$API_KEY" = {SECRET}',
            runtime_env={"env_vars": {"API_KEY": SECRET, "EMPTY": ""}},
            metadata={"owner": "ann@x", "ünï": "cödé", "empty": ""},
        ),
        job("fraction", folder, num_cpus=0.25, metadata={}),
        job("cpus", folder, num_cpus=64, **waits),
        job("memory", folder, memory=2**42, **waits),
        job("gpus", folder, num_gpus=0.5, **waits),
        job("custom", folder, resources={"TPU": 4, "half": 0.5}, **waits),
        job("label", folder, label_selector={"zone": "nowhere"}, **waits),
    )
    return tuple(replace(each, started=BORN + number) for number, each in enumerate(jobs))


def run(cluster: JobCluster, vault: Vault, backup: Backup, *only: str) -> tuple[Report, list[str]]:
    lines: list[str] = []
    report = restore(cluster.jobs(), vault, backup, only=only, per_second=2.0, narrate=lines.append)
    return report, lines


def backed_up(cluster: JobCluster, vault: Vault) -> Backup:
    with cluster.open_head() as head:
        return take_backup(
            HeadSource(head, dashboard_port=cluster.port),
            vault,
            cluster="us-east5",
            identity="x",
            infrastructure=lambda name, metadata: False,
            dashboard=cluster.jobs().list,
            narrate=lambda text: None,
        )


def lasting(jobs: Sequence[SavedJob]) -> list[SavedJob]:
    """The jobs without what a new life changes."""
    return [replace(each, started=0, status=JobStatus.PENDING) for each in jobs]


def outcomes(report: Report) -> dict[str, str]:
    return {each.job_id: each.outcome.value for each in report.jobs}


def lines_of(folder: Path) -> list[str]:
    path = folder / "runs"
    return sorted(path.read_text().split()) if path.exists() else []


def until_ran(cluster: JobCluster, folder: Path, *names: str) -> None:
    """Wait until exactly the jobs of these ``names``, sorted, have begun to run."""

    def reason() -> str:
        states = [f"{each.name} {each.status} {each.message}" for each in cluster.jobs().list()]
        return f"{lines_of(folder)} ran; {states}"

    wait_until(
        lambda: lines_of(folder) == list(names), what=f"runs: {names}", timeout=180, reason=reason
    )


def until(cluster: JobCluster, name: str, *statuses: JobStatus) -> Job:
    def probe() -> Job | None:
        found = cluster.jobs().get(name)
        return found if found.status in statuses else None

    return wait_until(probe, what=f"{name} {statuses}", timeout=180)


def finish(cluster: JobCluster, folder: Path, *names: str) -> None:
    (folder / "gate").touch()
    for name in names:
        until(cluster, name, JobStatus.SUCCEEDED)


@deep
def test_every_field_and_byte_of_many_kinds_of_jobs_survives_two_losses_of_the_head(
    cluster: JobCluster, vault: Vault, tmp_path: Path
) -> None:
    jobs = many_kinds(tmp_path)
    ran = sorted(each.submission_id for each in jobs if each.status is JobStatus.RUNNING)
    contents = {uri: CONTENTS[uri] for uri in (FOLDER, FIRST, SECOND)}
    made = keep_backup(vault, *jobs, contents=contents, cluster="us-east5")

    report, lines = run(cluster, vault, made)
    assert set(outcomes(report).values()) == {"restored"}
    assert lines[:4] == [*(f"package {uri} put" for uri in contents), "packages proved"]
    until_ran(cluster, tmp_path, *ran)
    taken = backed_up(cluster, vault)
    assert taken.complete
    assert lasting(taken.jobs) == lasting(jobs)
    assert sorted(taken.packages, key=str) == sorted(made.packages, key=str)

    # Again, with nothing lost: nothing happens.
    report, _ = run(cluster, vault, made)
    assert set(outcomes(report).values()) == {"already there"}
    report, _ = run(cluster, vault, taken)
    assert set(outcomes(report).values()) == {"already there"}
    assert lines_of(tmp_path) == ran

    cluster.replace_head()
    assert cluster.jobs().list() == ()
    report, _ = run(cluster, vault, taken)
    assert set(outcomes(report).values()) == {"restored"}
    assert {each.reason for each in report.jobs if each.job_id in ran} == {"RUNNING"}
    again = backed_up(cluster, vault)
    assert lasting(again.jobs) == lasting(jobs)
    assert again.packages == taken.packages
    assert SECRET not in repr(report)
    finish(cluster, tmp_path, *ran)
    assert lines_of(tmp_path) == sorted(ran * 2)

    # They ended by themselves: an old backup does not run them once more.
    report, _ = run(cluster, vault, again, *ran)
    assert set(outcomes(report).values()) == {"ended by itself"}
    assert lines_of(tmp_path) == sorted(ran * 2)


def test_a_job_whose_environment_fails_is_failed_and_the_next_run_replaces_it_once(
    cluster: JobCluster, vault: Vault, tmp_path: Path
) -> None:
    bad = job(
        "broken",
        tmp_path,
        runtime_env={"working_dir": BROKEN, "env_vars": {"PLAIN_NAME": SECRET}},
    )
    good = job("sound", tmp_path, started=BORN + 1)
    backup = keep_backup(vault, bad, good, contents=CONTENTS, cluster="us-east5")
    report, lines = run(cluster, vault, backup)
    assert outcomes(report) == {"broken": "failed", "sound": "restored"}
    assert report.jobs[0].reason.startswith("RUNTIME_ENV_SETUP_FAILURE: ")
    assert SECRET not in repr(report) + "".join(lines)
    with pytest.raises(NotRestored, match="1 of 2 jobs"):
        report.raise_failures()
    # Mended on the head, as nobody can do in the vault; other variables avoid what Ray remembers.
    mended = replace(bad, runtime_env={"env_vars": {"PLAIN_NAME": SECRET}})
    backup = keep_backup(
        vault, mended, good, cluster="us-east5", taken=datetime(2026, 11, 22, tzinfo=UTC)
    )
    report, _ = run(cluster, vault, backup)
    assert outcomes(report) == {"broken": "restored", "sound": "already there"}
    assert report.jobs[0].reason == "RUNNING"
    finish(cluster, tmp_path, "broken", "sound")
    assert lines_of(tmp_path) == ["broken", "sound"]


def test_a_job_that_ray_refuses_is_named_and_the_others_go_on(
    cluster: JobCluster, vault: Vault, tmp_path: Path
) -> None:
    odd = job("odd", tmp_path, label_selector={"zone": "in(("}, metadata={"owner": "bob@y"})
    good = job("even", tmp_path, started=BORN + 1)
    report, _ = run(cluster, vault, keep_backup(vault, odd, good, cluster="us-east5"))
    assert outcomes(report) == {"odd": "failed", "even": "restored"}
    assert "selector" in report.jobs[0].reason
    assert report.jobs[0].owner == "bob@y"
    with pytest.raises(ToolFailed, match="cannot delete even"):
        cluster.jobs().delete("even")
    finish(cluster, tmp_path, "even")
    assert cluster.jobs().delete("even")
    assert not cluster.jobs().delete("even")


@deep
def test_a_head_that_kept_its_records_gives_up_its_dead_jobs_and_each_runs_again_once(
    keeping_cluster: JobCluster, vault: Vault, tmp_path: Path
) -> None:
    cluster = keeping_cluster
    runs = job("runs", tmp_path, runtime_env={"working_dir": FOLDER})
    waits = job("waits", tmp_path, started=BORN + 1, num_cpus=64, status=JobStatus.PENDING)
    made = keep_backup(vault, runs, waits, contents={FOLDER: CONTENTS[FOLDER]}, cluster="us-east5")
    run(cluster, vault, made)
    until_ran(cluster, tmp_path, "runs")
    taken = backed_up(cluster, vault)

    cluster.replace_head()
    # Ray believes that it runs; nobody has told it otherwise.
    assert cluster.jobs().get("runs").status is JobStatus.RUNNING
    report, lines = run(cluster, vault, taken)
    assert lines[0] == "checking what the head says runs: 1"
    assert f"package {FOLDER} was there" in lines
    # The other one is replaced as well, should its time be up by now.
    assert outcomes(report)["runs"] == "restored"
    until_ran(cluster, tmp_path, "runs", "runs")
    back = [each for each in backed_up(cluster, vault).jobs if each.submission_id == "runs"]
    assert lasting(back) == lasting([taken.jobs[0]])

    # What it gave up waiting for was never run, so that it waits again.
    gone = until(cluster, "waits", JobStatus.FAILED)
    assert gone.error_type == "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
    report, _ = run(cluster, vault, taken)
    assert outcomes(report) == {"runs": "already there", "waits": "restored"}
    assert report.jobs[1].reason == "PENDING, waits for its resources"
    finish(cluster, tmp_path, "runs")
    assert lines_of(tmp_path) == ["runs"] * 2
    assert outcomes(run(cluster, vault, taken)[0])["runs"] == "already there"

"""The steps that concern jobs, on a real Ray head behind a real sshd."""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rayfleet.errors import Unreachable
from rayfleet.fleet.model import Auth, AuthMode
from rayfleet.job.dashboard import Unauthorized
from rayfleet.job.model import JobStatus
from rayfleet.job.vault.model import SavedJob
from rayfleet.rollout.model import Output, Settings, Step, Unhealthy, owed_of
from rayfleet.rollout.steps import give_back, machines
from rayfleet.rollout.steps.preflight import preflight
from rayfleet.rollout.steps.quiesce import quiesce
from rayfleet.rollout.steps.saving import snapshot, verify
from rayfleet.rollout.steps.site import Site
from rayfleet.waiting import SystemClock, wait_until
from tests.support.job_cluster import JobCluster
from tests.support.rollout_world import CLUSTER, Way, World

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TOKEN = "correct-horse-battery-staple"
BEFORE: dict[Step, Callable[[Site], Output]] = {
    Step.PREFLIGHT: preflight,
    Step.SNAPSHOT: snapshot,
    Step.VERIFY: verify,
    Step.QUIESCE: quiesce,
}
AFTER: dict[Step, Callable[[Site], Output]] = {
    Step.STOP: machines.stop,
    Step.EMPTY: machines.empty,
    Step.START: machines.start,
    Step.PACKAGES: give_back.packages,
    Step.JOBS: give_back.jobs,
    Step.WATCH: give_back.watch,
}


class LocalMachines:
    """The machine of a cluster of one node."""

    def __init__(self, cluster: JobCluster, config: Any) -> None:
        self.cluster, self.config = cluster, config
        self.number = 1
        self.nodes = SimpleNamespace(head=self.head, image_digest=lambda node: config.digest)

    def head(self) -> str:
        return f"head-{self.number}" if self.cluster.ray.pids("") else ""

    def require_image(self) -> None:
        """It is there."""

    def terminate(self) -> int:
        self.cluster.lose_head()
        (self.cluster.folder / ".rayfleet" / "held.json").unlink(missing_ok=True)
        return 1

    def require_none(self) -> None:
        assert self.head() == ""

    def launch(self) -> str:
        self.cluster.ray.start()
        self.number += 1
        return self.head()

    def trust(self, node: str) -> None:
        """The machine, and so its key, is the same."""


@dataclass(frozen=True, kw_only=True)
class LocalSite(Site):
    """A site whose cluster is on this machine."""

    local: JobCluster
    ground: LocalMachines

    @property
    def machines(self) -> Any:  # type: ignore[override]
        return self.ground

    @property
    def grounds(self) -> Any:  # type: ignore[override]
        return (self.ground,)

    def _connect(self) -> Any:
        return self.local.open_head()


class LocalWay(Way):
    """A way through the steps of a cluster on this machine."""

    def __init__(self, local: JobCluster, folder: Path, **options: Any) -> None:
        super().__init__(World(folder), **options)
        self.local = local
        self.machines = LocalMachines(local, self.ground.config)

    def site(self) -> LocalSite:  # type: ignore[override]
        mode = AuthMode.TOKEN if self.local.token else AuthMode.DISABLED
        return LocalSite(
            project=self.project,
            fleet=self.fleet,
            cluster=replace(CLUSTER, auth=Auth(mode=mode)),
            folder=self.folder,
            operator="ana@ops-1",
            links=self.links,
            task=self.task(),
            note=lambda note: self.notes.append(dict(note)),
            narrate=self.said.append,
            clock=SystemClock(),
            port=self.local.port,
            local=self.local,
            ground=self.machines,
        )

    def walk(self, steps: dict[Step, Callable[[Site], Output]]) -> Output:
        for step, work in steps.items():
            self.do(step, work)
        return self.outputs[step]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobCluster]:
    """A cluster with a token, whose head the tests lose."""
    local = JobCluster(folder=tmp_path_factory.mktemp("sshd"), token=TOKEN)
    os.environ["RAY_AUTH_TOKEN"] = TOKEN
    try:
        local.start()
        yield local
    finally:
        local.stop()
        del os.environ["RAY_AUTH_TOKEN"]


@pytest.fixture
def keeping_cluster(tmp_path: Path) -> Iterator[JobCluster]:
    """A cluster whose head keeps its records over a restart."""
    local = JobCluster(folder=tmp_path / "sshd")
    with tempfile.TemporaryDirectory(prefix="rf") as store:
        local.ray.settings = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": store}
        try:
            local.start()
            yield local
        finally:
            local.stop()


def submit(local: JobCluster, name: str, folder: Path, then: str = "", **needs: Any) -> None:
    """A job that notes that it runs, does ``then``, and goes on until its folder has a gate."""
    wait = f"while ! test -e {folder}/{name}.gate; do sleep 0.2; done"
    entrypoint = f"echo {name} >> {folder}/runs; {then or 'true'}; {wait}"
    job = SavedJob(
        submission_id=name,
        status=JobStatus.PENDING,
        started=0,
        entrypoint=f"exec sh -c {shlex.quote(entrypoint)}",
        metadata={"owner": "ann@x"},
        num_cpus=0,
        num_gpus=0,
        memory=0,
    )
    local.jobs().submit(replace(job, **needs))


def ran(folder: Path) -> list[str]:
    path = folder / "runs"
    return sorted(path.read_text().split()) if path.exists() else []


def until_ran(local: JobCluster, folder: Path, *names: str) -> None:
    def reason() -> str:
        rows = [f"{row.name} {row.status} {row.message}" for row in local.jobs().list()]
        return f"{ran(folder)} ran; {rows}"

    wait_until(
        lambda: ran(folder) == sorted(names), what=f"runs {names}", timeout=180, reason=reason
    )


def until_ended(local: JobCluster, name: str) -> JobStatus:
    wait_until(lambda: local.jobs().get(name).ended, what=f"{name} to end", timeout=120)
    return local.jobs().get(name).status


def outcomes(output: Output) -> dict[str, str]:
    rows = output["jobs"]
    assert isinstance(rows, list)
    return {row["job"]: row["outcome"] for row in rows}


def owed(output: Output) -> list[str]:
    return sorted(name for one in owed_of(output) for name in one.jobs)


def test_every_ending_is_told_apart_and_every_owed_job_runs_again_once(
    cluster: JobCluster, tmp_path: Path
) -> None:
    submit(cluster, "plain", tmp_path)
    # It saves its work when asked to end, and exits 0: that is no success.
    saves = f"trap 'echo saved >> {tmp_path}/saved; exit 0' TERM"
    submit(cluster, "saves", tmp_path, saves)
    submit(cluster, "deaf", tmp_path, "trap '' TERM")
    submit(cluster, "done", tmp_path)
    submit(cluster, "halted", tmp_path)
    submit(cluster, "waits", tmp_path, num_cpus=64)
    until_ran(cluster, tmp_path, "plain", "saves", "deaf", "done", "halted")

    way = LocalWay(cluster, tmp_path / "way")
    for step in (Step.PREFLIGHT, Step.SNAPSHOT, Step.VERIFY):
        way.do(step, BEFORE[step])
    assert way.outputs[Step.PREFLIGHT]["head"] == "head-1"
    assert len(owed(way.outputs[Step.SNAPSHOT])) == 6
    (tmp_path / "done.gate").touch()
    assert until_ended(cluster, "done") is JobStatus.SUCCEEDED
    cluster.jobs().stop("halted")
    assert until_ended(cluster, "halted") is JobStatus.STOPPED
    submit(cluster, "late", tmp_path)
    until_ran(cluster, tmp_path, "plain", "saves", "deaf", "done", "halted", "late")

    output = way.do(Step.QUIESCE, quiesce)
    assert owed(output) == ["deaf", "late", "plain", "saves", "waits"]
    assert output["ended"] == {"done": "SUCCEEDED", "halted": "STOPPED"}
    assert (output["late"], output["unstopped"]) == (1, ["waits"])
    assert (tmp_path / "saved").read_text() == "saved\n"

    (tmp_path / "runs").unlink()
    found = way.walk(AFTER)
    assert outcomes(found) == dict.fromkeys(owed(output), "restored")
    assert found["lost"] == []
    until_ran(cluster, tmp_path, "deaf", "late", "plain", "saves")
    rows = {row.name: row.status for row in cluster.jobs().list()}
    assert rows.pop("waits") is JobStatus.PENDING
    assert rows == dict.fromkeys(["deaf", "late", "plain", "saves"], JobStatus.RUNNING)
    # Once more, as after a kill: nothing happens.
    way.do(Step.JOBS, give_back.jobs)
    way.do(Step.WATCH, give_back.watch)
    assert ran(tmp_path) == ["deaf", "late", "plain", "saves"]


def test_the_token_the_store_and_the_head_are_looked_at_before_anything_is_touched(
    cluster: JobCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repair = Settings(unhealthy=Unhealthy.REPAIR)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another-token-altogether")
    with pytest.raises(Unauthorized, match="refuses us"):
        LocalWay(cluster, tmp_path / "token", settings=repair).do(Step.PREFLIGHT, preflight)
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    assert "trouble" not in LocalWay(cluster, tmp_path / "well").do(Step.PREFLIGHT, preflight)


def test_a_head_whose_store_dies_is_in_trouble_and_one_that_is_lost_is_gone(
    cluster: JobCluster, tmp_path: Path
) -> None:
    cluster.replace_head()
    submit(cluster, "one", tmp_path)
    submit(cluster, "two", tmp_path)
    until_ran(cluster, tmp_path, "one", "two")
    way = LocalWay(cluster, tmp_path / "way")
    for step in (Step.PREFLIGHT, Step.SNAPSHOT, Step.VERIFY):
        way.do(step, BEFORE[step])

    for pid in cluster.ray.pids("gcs_server"):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(Unreachable, match="is not healthy"):
        LocalWay(cluster, tmp_path / "again").do(Step.PREFLIGHT, preflight)
    with pytest.raises(Unreachable):
        LocalWay(cluster, tmp_path / "once-more").do(Step.SNAPSHOT, snapshot)
    # All is saved: what was not seen to have ended is owed.
    output = way.do(Step.QUIESCE, quiesce)
    assert output["problem"]
    assert owed(output) == ["one", "two"]
    found = way.walk(AFTER)
    assert outcomes(found) == {"one": "restored", "two": "restored"}
    until_ran(cluster, tmp_path, "one", "one", "two", "two")


def test_a_head_that_kept_its_records_gets_the_jobs_that_we_stopped_and_no_others(
    keeping_cluster: JobCluster, tmp_path: Path
) -> None:
    cluster = keeping_cluster
    for name in ("ours", "done", "halted"):
        submit(cluster, name, tmp_path)
    until_ran(cluster, tmp_path, "ours", "done", "halted")
    way = LocalWay(cluster, tmp_path / "way")
    for step in (Step.PREFLIGHT, Step.SNAPSHOT, Step.VERIFY):
        way.do(step, BEFORE[step])
    (tmp_path / "done.gate").touch()
    until_ended(cluster, "done")
    cluster.jobs().stop("halted")
    until_ended(cluster, "halted")
    assert owed(way.do(Step.QUIESCE, quiesce)) == ["ours"]
    assert until_ended(cluster, "ours") is JobStatus.STOPPED

    found = way.walk(AFTER)
    assert outcomes(found) == {"ours": "restored"}
    until_ran(cluster, tmp_path, "ours", "done", "halted", "ours")
    assert cluster.jobs().get("halted").status is JobStatus.STOPPED
    assert cluster.jobs().get("done").status is JobStatus.SUCCEEDED

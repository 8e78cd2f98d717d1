"""The job commands on a real Ray head, with an operator whose RAY_ADDRESS leads elsewhere."""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.config import NodeType
from rayfleet.console import Console
from rayfleet.errors import RayfleetError, UsageError
from rayfleet.job.board import gather_board
from rayfleet.job.client import JobClient
from rayfleet.job.model import Job, JobFailed, JobStatus, JobStopped, JobTimedOut, NotStoppable
from rayfleet.job.needs import parse_needs
from rayfleet.job.request import parse_order
from rayfleet.job.run import show_log, submit_job, watch_job
from rayfleet.job.stop import stop_jobs
from rayfleet.waiting import wait_until
from tests.support.ray_head import LocalRayHead

pytestmark = pytest.mark.integration

SLEEP = "exec sleep 600"
HEAD_TYPE = NodeType(name="head_default", most=1, resources={"CPU": 0.0, "head_node": 1.0})


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The operator's Ray variables lead to a server that nobody may talk to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", f"http://{address}")
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://{address}")
        monkeypatch.setenv("HTTP_PROXY", f"http://{address}")
        monkeypatch.setenv("http_proxy", f"http://{address}")
        yield
        with pytest.raises(BlockingIOError):
            server.accept()


@dataclass
class Operator:
    """Runs commands against one head, and keeps what they printed."""

    jobs: JobClient

    def __post_init__(self) -> None:
        self.console = Console(out=io.StringIO(), err=io.StringIO())

    def connect(self) -> AbstractContextManager[JobClient]:
        """The head, as a connection that stays."""
        return nullcontext(self.jobs)

    def submit(
        self,
        entrypoint: str,
        *,
        wait: bool = False,
        timeout: str = "60",
        env: Sequence[str] = (),
        metadata: Sequence[str] = (),
        types: Sequence[NodeType] = (),
        **needs: Any,
    ) -> str:
        """``jobs.submit``; returns the submission id."""
        order = parse_order(
            entrypoint,
            working_dir="",
            env=env,
            metadata=metadata,
            needs=parse_needs(**needs),
            timeout=timeout,
            argv=["invoke", "jobs.submit", entrypoint],
            environ=os.environ,
        )
        submit_job(
            *(self.connect, order),
            console=self.console,
            wait=wait,
            as_json=False,
            node_types=types,
        )
        return self.printed.split()[-1]

    def wait(self, job_id: str, *, timeout: float = 60, log: bool = False) -> None:
        """``jobs.wait``; with ``log`` it is ``jobs.logs --follow``."""
        watch_job(
            *(self.connect, job_id),
            console=self.console,
            timeout=timeout,
            as_json=False,
            log=log,
        )

    def stop(self, *job_ids: str, timeout: float = 30) -> None:
        """``jobs.stop``."""
        stop_jobs(self.jobs, job_ids, timeout=timeout, console=self.console)

    @property
    def printed(self) -> str:
        """All of stdout so far."""
        return self.console.out.getvalue()  # type: ignore[attr-defined,no-any-return]

    @property
    def told(self) -> str:
        """All of stderr so far."""
        return self.console.err.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def operator(jobs: JobClient) -> Iterator[Operator]:
    """An operator of the head; the jobs that were left running are stopped."""
    before = {job.name for job in jobs.running()}
    yield Operator(jobs)
    for job in jobs.running():
        if job.name not in before:
            with suppress(RayfleetError):
                jobs.stop(job.name)


def with_status(jobs: JobClient, job_id: str, status: JobStatus) -> Job:
    def probe() -> Job | None:
        job = jobs.get(job_id)
        return job if job.status is status else None

    return wait_until(probe, what=f"{job_id} to be {status}", timeout=150)


def test_needs_and_metadata_arrive_as_they_were_given(
    operator: Operator, ray_head: LocalRayHead
) -> None:
    job_id = operator.submit(
        SLEEP,
        num_cpus="0.25",
        memory="64MiB",
        labels=["tier=!spot"],
        metadata=["ticket=7"],
    )
    job = with_status(operator.jobs, job_id, JobStatus.RUNNING)
    assert job.metadata["ticket"] == "7"
    answer = ray_head.http().request("GET", "/api/v0/actors?detail=1&limit=1000", timeout=90)
    actors = json.loads(answer.data)["data"]["result"]["result"]
    (actor,) = (row for row in actors if row["name"] == f"_ray_internal_job_actor_{job_id}")
    assert actor["required_resources"] == {"CPU": 0.25, "memory": 64.0 * 1024**2}
    assert actor["label_selector"] == {"tier": "!spot"}
    operator.stop(job_id)


def test_a_running_job_is_stopped_and_its_waiter_hears_of_it(operator: Operator) -> None:
    job_id = operator.submit(SLEEP)
    with_status(operator.jobs, job_id, JobStatus.RUNNING)
    operator.stop(job_id)
    assert f"local: {job_id} stopped" in operator.told
    assert operator.jobs.get(job_id).status is JobStatus.STOPPED
    with pytest.raises(JobStopped) as caught:
        operator.wait(job_id)
    assert caught.value.code == 3
    operator.stop(job_id)
    assert f"{job_id} had ended before as STOPPED" in operator.told


def test_a_job_that_waits_for_resources_is_not_stoppable(operator: Operator) -> None:
    """Ray says that it stopped the job, which goes on waiting (research, 4.3)."""
    job_id = operator.submit("true", resources=["nonesuch=1"])
    assert operator.jobs.stop(job_id) or operator.jobs.get(job_id).status is JobStatus.PENDING
    with pytest.raises(NotStoppable) as caught:
        operator.stop(job_id, timeout=6)
    assert caught.value.code == 2
    assert operator.jobs.get(job_id).status is JobStatus.PENDING


def test_a_job_that_was_only_just_submitted_is_stopped(operator: Operator) -> None:
    job_id = operator.submit(SLEEP)
    operator.stop(job_id, timeout=60)
    assert operator.jobs.get(job_id).status is JobStatus.STOPPED


def test_waiting_too_long_leaves_the_job_running(operator: Operator) -> None:
    job_id = operator.submit(SLEEP)
    with_status(operator.jobs, job_id, JobStatus.RUNNING)
    with pytest.raises(JobTimedOut) as caught:
        operator.wait(job_id, timeout=1)
    assert caught.value.code == 124
    assert operator.jobs.get(job_id).status is JobStatus.RUNNING


def test_waiting_prints_no_log_and_tells_the_outcome(operator: Operator) -> None:
    well, badly = (operator.submit(f"echo loud; exit {code}") for code in (0, 9))
    operator.wait(well)
    with pytest.raises(JobFailed, match="ended with exit code 9") as caught:
        operator.wait(badly)
    assert caught.value.code == 2
    assert "loud" not in operator.printed + operator.told
    assert f"local: {well} SUCCEEDED" in operator.told


def test_a_job_that_nothing_can_hold_is_refused_before_it_is_submitted(operator: Operator) -> None:
    before = operator.jobs.list()
    with pytest.raises(UsageError, match="no node that it can have") as caught:
        operator.submit("true", num_gpus="1", types=[HEAD_TYPE])
    assert "head_default: at most head_node 1" in caught.value.why
    assert operator.jobs.list() == before
    # The head has a CPU that its config does not give it: what is up counts.
    operator.submit("true", num_cpus="1", types=[HEAD_TYPE], wait=True)


def test_no_secret_is_printed_by_any_command(operator: Operator, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    command = f"echo $HF_TOKEN > {seen}; true --token hunter2 PGPASSWORD=hunter2"
    job_id = operator.submit(command, env=["HF_TOKEN=hunter2"], metadata=["api_key=hunter2"])
    operator.wait(job_id)
    operator.wait(job_id, log=True)
    assert "Running entrypoint for job" in operator.printed
    assert seen.read_text() == "hunter2\n"
    show_log(operator.connect, job_id, console=operator.console, as_json=True)
    board = gather_board({"local": operator.jobs.list})
    for as_json in (True, False):
        board.show(operator.console, as_json=as_json)
    assert job_id in operator.printed
    assert "hunter2" not in operator.printed + operator.told
    assert operator.jobs.get(job_id).entrypoint == command

"""What a restore asks of the jobs API, when things go wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.job.client import JobClient
from rayfleet.job.model import JobExists
from rayfleet.job.package import Package
from tests.support.fake_dashboard import FakeDashboard, Fault, Moment
from tests.unit.job.restore.fake_head import saved_job

ENDED = Moment(0, "FAILED")
# What Ray 2.60 answers while the agent of a new head registers, on Python 3.10 and 3.11.
NOT_READY = (
    "No available agent to submit job, please try again later.",
    "Traceback ...\nTimeoutError: Failed to get head node agent within 10 seconds. The last ...",
    "aiohttp...ClientConnectorError: Cannot connect to host 10.0.0.1:52365 ssl:default",
)
JOB = saved_job(
    "s1",
    entrypoint="python x.py",
    runtime_env={"env_vars": {"PLAIN_NAME": "hunter2"}, "pip": None},
    num_cpus=0,
    num_gpus=0.5,
    memory=1024,
    resources={"TPU": 4},
    label_selector={"zone": "b"},
)


def client(*faults: Fault) -> tuple[JobClient, FakeDashboard]:
    head = FakeDashboard(*faults)
    return JobClient(head, cluster="c1", clock=head.clock), head


def test_a_saved_job_is_sent_with_every_field_as_it_was() -> None:
    jobs, head = client()
    assert jobs.submit(JOB) == "s1"
    (body,) = head.submitted
    assert body == {
        "submission_id": "s1",
        "entrypoint": "python x.py",
        "runtime_env": {"env_vars": {"PLAIN_NAME": "hunter2"}, "pip": None},
        "entrypoint_num_cpus": 0,
        "entrypoint_num_gpus": 0.5,
        "entrypoint_memory": 1024,
        "entrypoint_resources": {"TPU": 4},
        "entrypoint_label_selector": {"zone": "b"},
    }


def test_null_metadata_is_the_same_job_as_none_at_all() -> None:
    for metadata in (None, {}):
        jobs, head = client(Fault("POST", late=True))
        assert jobs.submit(replace(JOB, metadata=metadata)) == "s1"
        assert len(head.submitted) == 1


def test_another_job_of_the_id_is_named_without_its_secrets() -> None:
    jobs, head = client()
    head.has("s1", entrypoint="x --token hunter2")
    with pytest.raises(JobExists, match=r"it runs: x --token \*\*\*"):
        jobs.submit(JOB)


@pytest.mark.parametrize("text", NOT_READY)
def test_submit_and_delete_wait_for_the_agent_of_a_new_head(text: str) -> None:
    jobs, head = client(Fault("POST", 500, text), Fault("DELETE", 500, text))
    assert jobs.submit(JOB) == "s1"
    head.has("s1", ENDED)
    assert jobs.delete("s1")


def test_a_refusal_does_not_quote_the_variables_of_the_job() -> None:
    echo = "TypeError: env_vars must be strings, got {'PLAIN_NAME': 'hunter2'}" + " " * 600
    jobs, _ = client(Fault("POST", 400, echo))
    with pytest.raises(ToolFailed) as caught:
        jobs.submit(JOB)
    assert "env_vars must be strings" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_refusal_is_masked_before_it_is_cut() -> None:
    echo = "x" * 489 + "hunter2"
    jobs, _ = client(Fault("POST", 400, echo))
    with pytest.raises(ToolFailed) as caught:
        jobs.submit(JOB)
    assert "hunt" not in str(caught.value)


def test_a_delete_whose_answer_was_lost_is_sent_again() -> None:
    jobs, head = client(Fault("DELETE", late=True))
    head.has("s1", ENDED)
    assert not jobs.delete("s1")
    assert head.calls == ["DELETE /api/jobs/s1"] * 2
    assert head.jobs == {}


def test_a_job_that_has_not_ended_is_not_deleted() -> None:
    jobs, head = client()
    head.has("s1")
    with pytest.raises(ToolFailed, match="c1: cannot delete s1"):
        jobs.delete("s1")


def test_a_delete_without_any_answer_is_unreachable() -> None:
    jobs, _ = client(Fault(times=99))
    with pytest.raises(Unreachable, match="c1: the Ray dashboard does not answer"):
        jobs.delete("s1")


@pytest.mark.parametrize("name", ["_ray_pkg_0.zip", "module-1.0+cpu.1-py3-none-any.whl", "a b.zip"])
def test_packages_of_any_name_are_asked_for_and_put_at_one_path(tmp_path: Path, name: str) -> None:
    path = tmp_path / "package"
    path.write_bytes(b"zip")
    package = Package(name=name, path=path, size=3, files=0)
    jobs, head = client()
    assert jobs.upload(package)
    assert jobs.has_package(name)
    assert head.packages == {name}
    paths = {path for _, path, _ in head.requests}
    assert len(paths) == 1
    assert " " not in paths.pop()


def test_a_head_that_cannot_tell_of_a_package_is_an_error_and_no_absence() -> None:
    jobs, _ = client(Fault("GET", 500, "Traceback ...\nRpcError: no GCS"))
    with pytest.raises(ToolFailed, match=r"cannot ask for p\.zip"):
        jobs.has_package("p.zip")


def test_two_lives_of_one_id_differ_in_their_start_to_the_millisecond() -> None:
    jobs, head = client()
    for started in (1_700_000_000_500, 1_700_000_000_501, None):
        head.has(str(started), start_time=started)
    assert [job.started for job in jobs.list()] == [1_700_000_000_500, 1_700_000_000_501, 0]

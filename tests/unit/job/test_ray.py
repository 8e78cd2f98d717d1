"""What is written down here of Ray, against the Ray that is installed."""

from __future__ import annotations

from dataclasses import fields

import pytest

from rayfleet.job.model import JobKind, JobRequest, JobStatus
from rayfleet.job.needs import Needs
from rayfleet.job.snapshot import reader
from rayfleet.job.snapshot.parse import FIELDS
from tests.unit.job.restore.fake_head import saved_job


def test_jobs_have_these_states_and_kinds_and_no_other() -> None:
    from ray.dashboard.modules.job.common import JobStatus as Theirs
    from ray.dashboard.modules.job.pydantic_models import JobType

    assert {each.value for each in JobStatus} == {each.value for each in Theirs}
    assert all(JobStatus(each.value).ended == each.is_terminal() for each in Theirs)
    assert set(reader.ENDED) == {each.value for each in Theirs if each.is_terminal()}
    assert {each.value for each in JobKind} == {each.value for each in JobType}


def test_a_jobs_record_has_these_fields_and_no_other() -> None:
    """A new one must be saved, or left to Ray on purpose, before it is added."""
    from ray.dashboard.modules.job.common import JobInfo

    record = JobInfo(status="PENDING", entrypoint="x", runtime_env={}).to_json()
    assert set(record) == FIELDS


def test_a_job_can_be_given_these_fields_and_all_of_them_come_back() -> None:
    from ray.dashboard.modules.job.common import JobSubmitRequest

    theirs = {each.name for each in fields(JobSubmitRequest)} - {"job_id"}  # the old name of an id
    given = {"metadata": {}, "runtime_env": {}, "resources": {}, "label_selector": {}}
    given |= {"num_cpus": 1, "num_gpus": 1, "memory": 1}
    assert saved_job("a", **given).document().keys() == theirs
    needs = Needs(num_cpus=1, num_gpus=1, memory=1, resources={"x": 1}, labels={"a": "b"})
    request = JobRequest(submission_id="a", entrypoint="true", needs=needs)
    assert request.document().keys() == theirs


def test_the_layout_of_the_store_is_rays_own() -> None:
    from ray._private import ray_constants
    from ray.dashboard.modules.job import common

    layout = reader.Layout()
    assert layout.jobs == common.JobInfoStorageClient.JOB_DATA_KEY_PREFIX
    assert layout.job_namespace == ray_constants.KV_NAMESPACE_JOB
    name = common.JOB_ACTOR_NAME_TEMPLATE.format(job_id="x")
    assert layout.supervisors + "x" == name


@pytest.mark.parametrize("key", ["JOBS/{job_id}/info", "{job_id}", "no place for the id"])
def test_a_layout_that_is_no_prefix_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.dashboard.modules.job.common import JobInfoStorageClient

    monkeypatch.setattr(JobInfoStorageClient, "JOB_DATA_KEY", key)
    with pytest.raises(reader.Failure, match="in a way that rayfleet does not know"):
        reader.Layout()


def test_actors_live_in_these_states() -> None:
    from ray.core.generated.gcs_pb2 import ActorTableData

    assert {*reader.LIVING, "DEAD"} == set(ActorTableData.ActorState.keys())

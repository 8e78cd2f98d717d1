"""Reading what Ray says about a job."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rayfleet.errors import ToolFailed
from rayfleet.job.model import JobKind, JobRequest, JobStatus, parse_job
from tests.unit.job.canned import row


def test_a_submission_is_read_with_its_times_and_without_its_secrets() -> None:
    job = parse_job(row(status="FAILED", end_time=1_700_000_001_000, driver_exit_code=7))
    assert (job.name, job.status, job.ended, job.exit_code) == ("s1", JobStatus.FAILED, True, 7)
    assert job.start == datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)
    assert job.end == datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC)
    assert "hunter2" not in repr(job) + repr(job.document())


def test_a_running_driver_has_no_end() -> None:
    job = parse_job(row(type="DRIVER", submission_id=None, job_id="01000000", end_time=0))
    assert (job.kind, job.name, job.end, job.ended) == (JobKind.DRIVER, "01000000", None, False)


@pytest.mark.parametrize("bad", [None, [], {}, row(status="NEW"), row(metadata=3)])
def test_what_is_no_job_is_an_error_and_no_traceback(bad: object) -> None:
    with pytest.raises(ToolFailed):
        parse_job(bad)


def test_a_request_names_its_package_and_hides_its_variables() -> None:
    request = JobRequest(
        submission_id="s1", entrypoint="x", env_vars={"KEY": "hunter2"}, package="_ray_pkg_1.zip"
    )
    assert request.document()["runtime_env"] == {
        "env_vars": {"KEY": "hunter2"},
        "working_dir": "gcs://_ray_pkg_1.zip",
    }
    assert "hunter2" not in repr(request)

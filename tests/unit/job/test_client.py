"""The jobs API as it behaves when things go wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.job.client import JobClient
from rayfleet.job.dashboard import Unauthorized
from rayfleet.job.model import JobExists, JobLost, JobRequest, JobTimedOut, UnknownJob
from rayfleet.job.package import Package
from tests.unit.job.canned import CUT, Canned, CannedPool, FakeClock, answer, row

REQUEST = JobRequest(submission_id="s1", entrypoint="python x.py", metadata={"owner": "me@here"})
EXISTS = Canned(
    status=500,
    text="Traceback (most recent call last):\n  File ...\n"
    "RuntimeError: Request failed with status code 400: Traceback (most recent call last):\n"
    "ValueError: Job with submission_id s1 already exists. Please use a different "
    "submission_id.\n.",
)
NO_AGENT = Canned(status=500, text="No available agent to submit job, please try again later.")
SUBMITTED = answer({"job_id": "s1", "submission_id": "s1"})
GONE = Canned(status=404, text="Job s1 does not exist")


def client(*answers: Canned, token: str | None = None) -> tuple[JobClient, CannedPool]:
    pool = CannedPool(answers)
    return JobClient(pool, cluster="c1", token=token, clock=FakeClock()), pool


def test_a_submit_whose_answer_was_lost_is_sent_again_and_stays_one_job() -> None:
    jobs, pool = client(CUT, EXISTS, answer(row()))
    assert jobs.submit(REQUEST) == "s1"
    assert pool.calls == ["POST /api/jobs/", "POST /api/jobs/", "GET /api/jobs/s1"]
    assert {json.loads(body)["submission_id"] for _, _, _, body in pool.requests[:2]} == {"s1"}


def test_an_id_that_another_job_has_is_refused() -> None:
    jobs, _ = client(EXISTS, answer(row(entrypoint="python other.py")))
    with pytest.raises(JobExists, match=r"it runs: python other\.py"):
        jobs.submit(REQUEST)


def test_a_submit_waits_for_the_agent_of_a_new_head() -> None:
    jobs, pool = client(NO_AGENT, NO_AGENT, SUBMITTED)
    assert jobs.submit(REQUEST) == "s1"
    assert len(pool.requests) == 3


def test_a_head_that_never_gets_an_agent_is_named() -> None:
    jobs, _ = client(*[NO_AGENT] * 9)
    with pytest.raises(Unreachable, match="c1: the head accepts no jobs yet"):
        jobs.submit(REQUEST)


def test_a_submit_without_any_answer_tells_how_to_find_out() -> None:
    jobs, _ = client(CUT, CUT, CUT)
    with pytest.raises(Unreachable) as caught:
        jobs.submit(REQUEST)
    assert caught.value.next_step == "invoke jobs.logs --cluster c1 s1"


def test_a_traceback_of_the_server_becomes_its_last_line() -> None:
    trace = "Traceback (most recent call last):\n  File 'a'\nTypeError: entrypoint is odd\n.\n"
    jobs, _ = client(Canned(status=500, text=trace))
    with pytest.raises(ToolFailed) as caught:
        jobs.submit(REQUEST)
    assert caught.value.why == "HTTP 500: TypeError: entrypoint is odd"


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_neither_retried_nor_shown(status: int) -> None:
    jobs, pool = client(Canned(status=status, text="Unauthorized"), token="s3cret")
    with pytest.raises(Unauthorized) as caught:
        jobs.list()
    assert len(pool.requests) == 1
    assert pool.requests[0][2]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in str(caught.value) + repr(jobs)


def test_reads_are_retried_and_then_the_cluster_is_unreachable() -> None:
    jobs, pool = client(CUT, Canned(status=503, text="busy"), CUT)
    with pytest.raises(Unreachable, match="c1: the Ray dashboard does not answer"):
        jobs.list()
    assert len(pool.requests) == 3


def test_an_answer_that_is_not_json_is_no_traceback() -> None:
    jobs, _ = client(Canned(text="<html>a proxy</html>"))
    with pytest.raises(ToolFailed, match="other than JSON"):
        jobs.list()


def test_an_unknown_job_points_to_the_list() -> None:
    jobs, _ = client(GONE)
    with pytest.raises(UnknownJob, match="c1 knows no job s1") as caught:
        jobs.get("s1")
    assert caught.value.next_step == "invoke jobs.list --cluster c1"


def test_an_id_cannot_reach_another_path() -> None:
    jobs, pool = client(GONE)
    with pytest.raises(UnknownJob):
        jobs.get("../version?x=")
    assert pool.calls == ["GET /api/jobs/..%2Fversion%3Fx%3D"]


def test_running_holds_pending_jobs_and_drivers_but_no_ended_ones() -> None:
    driver = row(type="DRIVER", submission_id=None, job_id="02000000", start_time=1)
    rows = [
        row(submission_id="old", status="SUCCEEDED"),
        row(submission_id="waits", status="PENDING", start_time=2),
        driver,
    ]
    jobs, _ = client(answer(rows))
    assert [job.name for job in jobs.running()] == ["02000000", "waits"]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    path = tmp_path / "p.zip"
    path.write_bytes(b"zip")
    return Package(name="_ray_pkg_1.zip", path=path, size=3, files=1)


MISSING = Canned(status=404, text="Package does not exist")


def test_a_package_that_is_there_is_not_sent_again(package: Package) -> None:
    jobs, pool = client(Canned())
    assert not jobs.upload(package)
    assert pool.calls == ["GET /api/packages/gcs/_ray_pkg_1.zip"]


def test_a_package_is_sent_and_then_looked_for(package: Package) -> None:
    jobs, pool = client(MISSING, Canned(), Canned())
    assert jobs.upload(package)
    assert [call.split()[0] for call in pool.calls] == ["GET", "PUT", "GET"]
    assert pool.requests[1][2]["Content-Length"] == "3"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ((MISSING, Canned(), MISSING), "took _ray_pkg_1.zip and lost it"),
        ((MISSING, Canned(status=413, text="Maximum size exceeded.")), "HTTP 413: Maximum size"),
    ],
)
def test_a_package_that_does_not_arrive_stops_the_submit(
    package: Package, answers: tuple[Canned, ...], message: str
) -> None:
    jobs, _ = client(*answers)
    with pytest.raises(ToolFailed, match=message):
        jobs.upload(package)


def test_follow_gives_each_line_once_and_half_a_line_only_at_the_end() -> None:
    jobs, _ = client(
        answer(row()),
        answer({"logs": "one\ntw"}),
        answer(row()),
        answer({"logs": "one\ntwo\n\nthr"}),
        answer(row(status="FAILED")),
        answer({"logs": "one\ntwo\n\nthree"}),
    )
    assert list(jobs.follow("s1", timeout=60)) == ["one", "two", "", "three"]


def test_follow_says_that_the_head_lost_the_job() -> None:
    jobs, _ = client(answer(row()), answer({"logs": "one\n"}), GONE)
    with pytest.raises(JobLost) as caught:
        list(jobs.follow("s1", timeout=60))
    assert caught.value.exit_code == 4


def test_follow_leaves_a_job_running_that_takes_too_long() -> None:
    jobs, pool = client(*[answer(row()), answer({"logs": ""})] * 4)
    with pytest.raises(JobTimedOut, match="has not ended within 3 s") as caught:
        list(jobs.follow("s1", timeout=3, interval=1))
    assert caught.value.next_step == "invoke jobs.logs --cluster c1 s1 --follow"
    assert not any(call.startswith(("POST", "DELETE")) for call in pool.calls)


def test_a_log_that_the_head_cannot_read_does_not_hide_how_the_job_ends() -> None:
    broken = Canned(status=500, text="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff")
    jobs, _ = client(answer(row()), broken, answer(row(status="SUCCEEDED")), broken)
    notices: list[str] = []
    assert list(jobs.follow("s1", timeout=60, notice=notices.append)) == []
    assert len(notices) == 1
    assert "UnicodeDecodeError" in notices[0]


def test_stopping_asks_again_while_a_new_head_has_no_agent() -> None:
    jobs, pool = client(NO_AGENT, CUT, answer({"stopped": True}))
    assert jobs.stop("s 1")
    assert pool.calls == ["POST /api/jobs/s%201/stop"] * 3


def test_a_stop_that_reached_nobody_is_told_apart() -> None:
    jobs, _ = client(answer({"stopped": False}), GONE)
    assert not jobs.stop("s1")
    with pytest.raises(UnknownJob):
        jobs.stop("s1")


def test_a_refused_stop_is_one_line() -> None:
    jobs, _ = client(Canned(status=400, text="Can only stop submission type jobs"))
    with pytest.raises(ToolFailed, match="Can only stop submission type jobs"):
        jobs.stop("s1")


def test_the_nodes_that_are_up_are_asked_for_with_their_labels() -> None:
    node = {"node_id": "n", "state": "ALIVE", "resources_total": {"CPU": 1}, "labels": {"a": "b"}}
    jobs, pool = client(answer({"data": {"result": {"result": [node]}}}))
    assert [each.labels for each in jobs.nodes()] == [{"a": "b"}]
    assert pool.calls == ["GET /api/v0/nodes?detail=1&limit=10000"]

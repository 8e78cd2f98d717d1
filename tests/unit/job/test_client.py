"""The jobs API as it behaves when things go wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.errors import Locked, ToolFailed, Unreachable
from rayfleet.job.client import JobClient
from rayfleet.job.dashboard import Unauthorized
from rayfleet.job.model import (
    JobExists,
    JobLost,
    JobRequest,
    JobStatus,
    JobTimedOut,
    UnknownJob,
)
from rayfleet.job.package import Package
from tests.support.fake_dashboard import GONE, NO_AGENT, FakeDashboard, Fault, Moment

REQUEST = JobRequest(submission_id="s1", entrypoint="python x.py", metadata={"owner": "me@here"})
ALWAYS = 99
DOWN = Fault(times=ALWAYS)


def client(
    *faults: Fault, token: str | None = None, **how: object
) -> tuple[JobClient, FakeDashboard]:
    head = FakeDashboard(*(replace(each) for each in faults), **how)  # type: ignore[arg-type]
    return JobClient(head, cluster="c1", token=token, clock=head.clock), head


def test_who_admits_no_jobs_is_asked_right_before_each_attempt() -> None:
    head = FakeDashboard(replace(Fault("POST", late=True)))
    free = [True, False]

    def admit() -> None:
        if not free.pop(0):
            raise Locked("c1 is being restarted")

    jobs = JobClient(head, cluster="c1", clock=head.clock, admit=admit)  # type: ignore[arg-type]
    with pytest.raises(Locked):
        jobs.submit(REQUEST)
    assert head.calls.count("POST /api/jobs/") == 1


def test_a_submit_whose_answer_was_lost_is_sent_again_and_stays_one_job() -> None:
    jobs, head = client(Fault("POST", late=True))
    assert jobs.submit(REQUEST) == "s1"
    assert [body["submission_id"] for body in head.submitted] == ["s1"]
    assert head.calls.count("POST /api/jobs/") == 2


def test_an_id_that_another_job_has_is_refused() -> None:
    jobs, head = client()
    head.has("s1", entrypoint="python other.py")
    with pytest.raises(JobExists, match=r"it runs: python other\.py"):
        jobs.submit(REQUEST)


def test_a_submit_waits_for_the_agent_of_a_new_head() -> None:
    jobs, head = client(Fault("POST", 500, NO_AGENT, times=2))
    assert jobs.submit(REQUEST) == "s1"
    assert len(head.submitted) == 1


def test_a_head_that_never_gets_an_agent_is_named() -> None:
    jobs, _ = client(Fault("POST", 500, NO_AGENT, times=ALWAYS))
    with pytest.raises(Unreachable, match="c1: the head accepts no jobs yet"):
        jobs.submit(REQUEST)


def test_a_submit_without_any_answer_tells_how_to_find_out() -> None:
    jobs, _ = client(DOWN)
    with pytest.raises(Unreachable) as caught:
        jobs.submit(REQUEST)
    assert caught.value.next_step == "invoke jobs.logs --cluster c1 s1"


def test_a_traceback_of_the_server_becomes_its_last_line() -> None:
    trace = "Traceback (most recent call last):\n  File 'a'\nTypeError: entrypoint is odd\n.\n"
    jobs, _ = client(Fault("POST", 500, trace))
    with pytest.raises(ToolFailed) as caught:
        jobs.submit(REQUEST)
    assert caught.value.why == "HTTP 500: TypeError: entrypoint is odd"


@pytest.mark.parametrize("token", [None, "s3cret"])
def test_a_refused_token_is_neither_retried_nor_shown(token: str | None) -> None:
    jobs, head = client(token=token)
    head.token = "another"
    with pytest.raises(Unauthorized) as caught:
        jobs.list()
    assert len(head.requests) == 1
    assert head.requests[0][2].get("Authorization") == (token and f"Bearer {token}")
    assert "s3cret" not in str(caught.value) + repr(jobs)


def test_reads_are_retried_and_then_the_cluster_is_unreachable() -> None:
    busy = Fault(status=503, text="busy")
    jobs, _ = client(Fault(), busy)
    assert jobs.list() == ()
    jobs, _ = client(Fault(), busy, DOWN)
    with pytest.raises(Unreachable, match="c1: the Ray dashboard does not answer"):
        jobs.list()


def test_an_answer_that_is_not_json_is_no_traceback() -> None:
    jobs, _ = client(Fault(status=200, text="<html>a proxy</html>"))
    with pytest.raises(ToolFailed, match="other than JSON"):
        jobs.list()


def test_an_unknown_job_points_to_the_list() -> None:
    jobs, _ = client()
    with pytest.raises(UnknownJob, match="c1 knows no job s1") as caught:
        jobs.get("s1")
    assert caught.value.next_step == "invoke jobs.list --cluster c1"


def test_an_id_cannot_reach_another_path() -> None:
    jobs, head = client()
    with pytest.raises(UnknownJob):
        jobs.get("../version?x=")
    assert head.calls == ["GET /api/jobs/..%2Fversion%3Fx%3D"]


def test_running_holds_pending_jobs_and_drivers_but_no_ended_ones() -> None:
    jobs, head = client()
    head.has("old", Moment(0, "SUCCEEDED"))
    head.has("waits", Moment(0, "PENDING"), start_time=2)
    head.has("driver", type="DRIVER", submission_id=None, job_id="02000000", start_time=1)
    assert [job.name for job in jobs.running()] == ["02000000", "waits"]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    path = tmp_path / "p.zip"
    path.write_bytes(b"zip")
    return Package(name="_ray_pkg_1.zip", path=path, size=3, files=1)


def test_a_package_that_is_there_is_not_sent_again(package: Package) -> None:
    jobs, head = client()
    head.packages.add(package.name)
    assert not jobs.upload(package)
    assert not any(call.startswith("PUT") for call in head.calls)


def test_a_package_is_sent_and_then_looked_for(package: Package) -> None:
    jobs, head = client()
    assert jobs.upload(package)
    assert head.packages == {package.name}
    (sent,) = [headers for method, _, headers in head.requests if method == "PUT"]
    assert sent["Content-Length"] == "3"
    assert head.calls[-1].startswith("GET")


def test_a_package_that_does_not_arrive_stops_the_submit(package: Package) -> None:
    jobs, _ = client(loses_packages=True)
    with pytest.raises(ToolFailed, match="took _ray_pkg_1"):
        jobs.upload(package)
    jobs, _ = client(Fault("PUT", 413, "Maximum size exceeded."))
    with pytest.raises(ToolFailed, match="HTTP 413: Maximum size"):
        jobs.upload(package)


LIFE = (
    Moment(0, "RUNNING", "one\ntw"),
    Moment(1, "RUNNING", "one\ntwo\n\nthr"),
    Moment(2, "FAILED", "one\ntwo\n\nthree"),
)


def test_follow_gives_each_line_once_and_half_a_line_only_at_the_end() -> None:
    jobs, head = client()
    head.has("s1", *LIFE)
    assert list(jobs.follow("s1", timeout=60)) == ["one", "two", "", "three"]


def test_follow_says_that_the_head_lost_the_job() -> None:
    jobs, head = client()
    head.has("s1", Moment(0, "RUNNING", "one\n"), Moment(1, GONE))
    with pytest.raises(JobLost) as caught:
        list(jobs.follow("s1", timeout=60))
    assert caught.value.exit_code == 4


def test_follow_leaves_a_job_running_that_takes_too_long() -> None:
    jobs, head = client()
    head.has("s1")
    with pytest.raises(JobTimedOut, match="has not ended within 3 s") as caught:
        list(jobs.follow("s1", timeout=3, interval=1))
    assert caught.value.next_step == "invoke jobs.logs --cluster c1 s1 --follow"
    assert not any(call.startswith(("POST", "DELETE")) for call in head.calls)


def test_a_log_that_the_head_cannot_read_does_not_hide_how_the_job_ends() -> None:
    broken = "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"
    jobs, head = client(Fault("GET .*/logs", 500, broken, times=ALWAYS))
    head.has("s1", Moment(0, "RUNNING"), Moment(1, "SUCCEEDED"))
    notices: list[str] = []
    assert list(jobs.follow("s1", timeout=60, notice=notices.append)) == []
    assert len(notices) == 1
    assert "UnicodeDecodeError" in notices[0]


def test_stopping_asks_again_while_a_new_head_has_no_agent() -> None:
    jobs, head = client(Fault("POST", 500, NO_AGENT), Fault("POST"))
    head.has("s 1")
    assert jobs.stop("s 1")
    assert set(head.calls) == {"POST /api/jobs/s%201/stop"}
    assert jobs.get("s 1").status is JobStatus.STOPPED


def test_a_stop_that_reached_nobody_is_told_apart() -> None:
    jobs, head = client()
    head.has("s1", Moment(0, "SUCCEEDED"))
    assert not jobs.stop("s1")
    with pytest.raises(UnknownJob):
        jobs.stop("s2")


def test_a_refused_stop_is_one_line() -> None:
    jobs, _ = client(Fault("POST", 400, "Can only stop submission type jobs"))
    with pytest.raises(ToolFailed, match="Can only stop submission type jobs"):
        jobs.stop("s1")


def test_the_nodes_that_are_up_are_asked_for_with_their_labels() -> None:
    node = {"node_id": "n", "state": "ALIVE", "resources_total": {"CPU": 1}, "labels": {"a": "b"}}
    jobs, head = client(nodes=[node])
    assert [each.labels for each in jobs.nodes()] == [{"a": "b"}]
    # Ray lists a hundred, and no labels, unless it is asked for more.
    assert head.calls == ["GET /api/v0/nodes?detail=1&limit=10000"]

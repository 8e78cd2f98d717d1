"""How a job, or a list of jobs, ends for the one who asked."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError, Unreachable
from rayfleet.fleet.load import load_fleet
from rayfleet.job.board import gather_board
from rayfleet.job.client import JobClient
from rayfleet.job.model import Job, JobFailed, JobLost, JobTimedOut, UnknownJob, parse_job
from rayfleet.job.run import raise_outcome, watch_job
from rayfleet.rollout.change import Action, Target, show
from tests.support.fake_dashboard import GONE, FakeDashboard, Fault, Moment
from tests.unit.job.canned import row

ROOT = Path(__file__).resolve().parents[3]


def ask_down() -> tuple[Job, ...]:
    raise Unreachable("b: no head")


def ask_up() -> tuple[Job, ...]:
    return (parse_job(row()),)


@pytest.mark.parametrize(("status", "code"), [("FAILED", 2), ("STOPPED", 3)])
def test_a_job_that_did_not_succeed_has_its_exit_code(status: str, code: int) -> None:
    job = parse_job(row(status=status, error_type="JOB_ENTRYPOINT_COMMAND_ERROR"))
    with pytest.raises(RayfleetError) as caught:
        raise_outcome("c1", job)
    assert caught.value.code == code
    assert caught.value.next_step == "invoke jobs.logs --cluster c1 s1"


def test_a_job_that_succeeded_is_no_error() -> None:
    raise_outcome("c1", parse_job(row(status="SUCCEEDED")))


def test_a_cluster_that_is_down_does_not_hide_the_others() -> None:
    board = gather_board({"a": ask_up, "b": ask_down})
    console = Console(out=io.StringIO(), err=io.StringIO())
    board.show(console, as_json=True)
    board.show(console, as_json=False)
    printed, told = console.out.getvalue(), console.err.getvalue()  # type: ignore[attr-defined]
    document, _ = json.JSONDecoder().raw_decode(printed)
    assert [job["submission_id"] for job in document["clusters"]["a"]] == ["s1"]
    assert document["unanswered"] == {"b": "b: no head"}
    assert "me@here" in printed
    assert "b: no head" in told
    with pytest.raises(PartialFailure, match="no answer from b"):
        board.raise_failures()


def test_no_answer_at_all_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="no cluster answers: b"):
        gather_board({"b": ask_down}).raise_failures()


BREAKS = 3  # requests until a client gives its connection up: it retries without pauses here


def watch(
    head: FakeDashboard, *, timeout: float = 600, log: bool = True, submitted: bool = False
) -> Console:
    """Watch the job s1, each connection with a client of its own."""
    console = Console(out=io.StringIO(), err=io.StringIO())
    watch_job(
        lambda: nullcontext(JobClient(head, cluster="c1", clock=head.clock)),
        "s1",
        console=console,
        timeout=timeout,
        as_json=False,
        log=log,
        submitted=submitted,
        clock=head.clock,
    )
    return console


def head_with(*life: Moment, fault: Fault | None = None, **fields: object) -> FakeDashboard:
    head = FakeDashboard(*([fault] if fault else []))
    head.has("s1", *life, **fields)
    return head


def test_a_connection_that_breaks_loses_and_repeats_no_line() -> None:
    console = watch(
        head_with(
            Moment(0, "RUNNING", "one\ntw"),
            Moment(1, "SUCCEEDED", "one\ntwo\n"),
            fault=Fault(skip=2, times=2 * BREAKS),
        )
    )
    assert console.out.getvalue() == "one\ntwo\n"  # type: ignore[attr-defined]
    assert console.err.getvalue().count("connecting again") == 2  # type: ignore[attr-defined]


def test_a_head_that_comes_back_without_the_job_has_lost_it() -> None:
    fault = Fault(skip=2, times=BREAKS)
    with pytest.raises(JobLost):
        watch(head_with(Moment(0, "RUNNING"), Moment(1, GONE), fault=fault))


def test_a_submitted_job_that_the_head_never_heard_of_is_lost_and_not_unknown() -> None:
    with pytest.raises(JobLost) as caught:
        watch(FakeDashboard(), submitted=True)
    assert caught.value.code == 4
    with pytest.raises(UnknownJob):
        watch(FakeDashboard())


def test_a_job_that_does_not_end_in_time_has_another_exit_code_than_a_lost_one() -> None:
    with pytest.raises(JobTimedOut) as caught:
        watch(head_with(), timeout=3)
    assert caught.value.code == 124


def test_waiting_reads_no_log_and_survives_a_broken_connection() -> None:
    life = (Moment(0, "RUNNING", "one\n"), Moment(5, "SUCCEEDED", "one\n"))
    head = head_with(*life, fault=Fault(skip=1, times=BREAKS))
    console = watch(head, log=False)
    assert console.out.getvalue() == ""  # type: ignore[attr-defined]
    assert console.err.getvalue().splitlines()[-1] == "c1: s1 SUCCEEDED"  # type: ignore[attr-defined]
    assert not any(call.endswith("/logs") for call in head.calls)


def test_how_a_job_failed_is_told_without_its_secrets() -> None:
    message = "cannot set up {'env_vars': {'HF_TOKEN': 'hunter2', 'PLACE': 'dungeon'}}"
    env = {"env_vars": {"HF_TOKEN": "hunter2", "PLACE": "dungeon"}}
    failed = head_with(Moment(0, "FAILED"), message=message, error_type="X", runtime_env=env)
    with pytest.raises(JobFailed) as caught:
        watch(failed)
    assert "cannot set up" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "dungeon" not in str(caught.value)


def test_the_list_of_jobs_masks_secrets_and_says_when_the_owner_is_unknown() -> None:
    entrypoint = "x " * 20 + "--token hunter2 HF_TOKEN=hunter2"
    metadata = {"command": "invoke --token hunter2", "api_key": "hunter2", "ticket": "7"}
    job = parse_job(row(entrypoint=entrypoint, metadata=metadata))
    board = gather_board({"a": lambda: (job,)})
    console = Console(out=io.StringIO(), err=io.StringIO())
    board.show(console, as_json=False)
    table = console.out.getvalue()  # type: ignore[attr-defined]
    board.show(console, as_json=True)
    printed = console.out.getvalue()  # type: ignore[attr-defined]
    assert "hunter" not in printed
    assert "unknown" in table
    document = json.loads(printed.removeprefix(table))["clusters"]["a"][0]
    assert document["owner"] == "unknown"
    assert document["metadata"]["ticket"] == "7"


def test_a_plan_says_whose_jobs_it_kills_without_their_secrets() -> None:
    entrypoint = "x " * 30 + "--token hunter2"
    jobs = tuple(
        parse_job(row(entrypoint=entrypoint, metadata=metadata))
        for metadata in ({"owner": "ann@desk"}, {})
    )
    fleet = load_fleet(ROOT / "infra" / "fleet.yaml", root=ROOT, state=ROOT / "nowhere")
    target = Target(
        cluster=fleet.clusters["us-east5"], action=Action.STOP, why="asked for", jobs=jobs
    )
    console = Console(out=io.StringIO(), err=io.StringIO())
    show([target], console)
    told = console.err.getvalue()  # type: ignore[attr-defined]
    assert "kills job s1 of ann@desk: x x" in told
    assert "kills job s1 of unknown: x x" in told
    assert "hunter" not in told


def test_a_head_that_stays_silent_is_given_up() -> None:
    head = head_with(fault=Fault(skip=2, times=10_000))
    with pytest.raises(Unreachable, match="c1: the Ray dashboard does not answer"):
        watch(head)
    assert 120 < head.clock.now < 130

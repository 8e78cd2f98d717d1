"""The probe job: submitted once, taken over, tried again, never left for good."""

from __future__ import annotations

from typing import Any

import pytest

from rayfleet.errors import Unreachable
from rayfleet.job.infrastructure import infrastructure_rule
from rayfleet.rollout.gates.gate import GateTimes, Reading, Verdict
from rayfleet.rollout.gates.probe import PREFIX, SETTLED_SECONDS, Probe, sweep
from rayfleet.rollout.gates.run import read_gate, run_gates
from rayfleet.rollout.gates.subject import Subject
from tests.unit.job.canned import FakeClock, row
from tests.unit.rollout.gates.fakes import FakeRay, subject_of

MINE = f"{PREFIX}r1-us-east5-"


def probe_row(name: str, status: str, **changes: Any) -> dict[str, Any]:
    fields = {"entrypoint": "echo rayfleet", "metadata": {"rayfleet_role": "infrastructure"}}
    return row(submission_id=name, status=status, **fields | changes)


def look(probe: Probe, subject: Subject, times: int) -> list[Reading]:
    return [read_gate(probe, subject) for _ in range(times)]


def test_a_job_is_submitted_and_watched_until_it_has_succeeded() -> None:
    ray = FakeRay()
    readings = look(Probe(), subject_of(ray), 4)
    assert [reading.verdict for reading in readings] == [Verdict.NOT_YET] * 3 + [Verdict.PASS]
    assert readings[1].detail.endswith(" is PENDING")
    (name,) = ray.jobs
    assert name.startswith(MINE)
    assert ray.jobs[name]["entrypoint"] == "echo rayfleet"
    assert infrastructure_rule(())(name, ray.jobs[name]["metadata"])
    assert sum(call == "POST /api/jobs/" for call in ray.calls) == 1


def test_the_entrypoint_is_the_fleets() -> None:
    ray = FakeRay()
    look(Probe(entrypoint="python check.py"), subject_of(ray), 1)
    assert [job["entrypoint"] for job in ray.jobs.values()] == ["python check.py"]


def test_a_head_without_an_agent_is_waited_for_without_being_pressed() -> None:
    ray = FakeRay(agent=False)
    probe, subject = Probe(), subject_of(ray)
    (reading,) = look(probe, subject, 1)
    assert reading.verdict is Verdict.NOT_YET
    assert "accepts no jobs yet" in reading.detail
    assert len(ray.calls) == 2
    ray.agent = True
    assert look(probe, subject, 4)[-1].verdict is Verdict.PASS


def test_an_entrypoint_that_fails_is_a_no() -> None:
    ray = FakeRay(statuses=["FAILED"], error="JOB_ENTRYPOINT_COMMAND_ERROR")
    reading = look(Probe(entrypoint="TOKEN=hunter2secret false"), subject_of(ray), 2)[-1]
    assert reading.verdict is Verdict.FAIL
    assert "FAILED, JOB_ENTRYPOINT_COMMAND_ERROR: Job is currently running." in reading.detail
    assert "hunter2secret" not in reading.detail


def test_a_job_that_ray_could_not_start_is_tried_again_under_another_id() -> None:
    ray = FakeRay(statuses=["FAILED"], error="JOB_SUPERVISOR_ACTOR_DIED")
    probe, subject = Probe(), subject_of(ray)
    assert look(probe, subject, 2)[-1].verdict is Verdict.NOT_YET
    (first,) = ray.jobs
    ray.statuses = ["SUCCEEDED"]
    assert look(probe, subject, 2)[-1].verdict is Verdict.PASS
    (second,) = ray.jobs
    assert second != first


def test_a_job_that_the_head_has_forgotten_is_submitted_again() -> None:
    ray = FakeRay()
    probe, subject = Probe(), subject_of(ray)
    look(probe, subject, 1)
    ray.jobs.clear()
    assert look(probe, subject, 1)[0].verdict is Verdict.NOT_YET
    assert look(probe, subject, 4)[-1].verdict is Verdict.PASS


def test_a_probe_that_a_killed_run_left_is_taken_over_while_it_runs() -> None:
    left = MINE + "abc123"
    ray = FakeRay(jobs={left: probe_row(left, "RUNNING")}, statuses=["RUNNING", "SUCCEEDED"])
    readings = look(Probe(), subject_of(ray), 3)
    assert readings[0].detail == f"{left} was there already"
    assert readings[-1].verdict is Verdict.PASS
    assert list(ray.jobs) == [left]


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_probes_that_have_ended_are_deleted_and_never_used_again(status: str) -> None:
    left, others = MINE + "abc123", f"{PREFIX}r0-us-east5-abc123"
    ghost = probe_row(others, "FAILED", metadata=None, entrypoint="Entrypoint not found.")
    ray = FakeRay(jobs={left: probe_row(left, status), others: ghost})
    look(Probe(), subject_of(ray), 1)
    (name,) = ray.jobs
    assert name not in {left, others}


def test_probes_of_others_and_other_jobs_are_left_alone() -> None:
    others = f"{PREFIX}r0-us-east5-abc123"
    changed = MINE + "abc123"
    jobs = {
        others: probe_row(others, "RUNNING"),
        changed: probe_row(changed, "RUNNING", entrypoint="another"),
        "train": row(submission_id="train", status="SUCCEEDED"),
    }
    ray = FakeRay(jobs=dict(jobs))
    look(Probe(), subject_of(ray), 1)
    assert set(jobs) < set(ray.jobs)
    assert len(ray.jobs) == 4


def test_a_submit_whose_answer_got_lost_is_found_in_the_list() -> None:
    ray = FakeRay()
    answer = ray.answer

    def lose(method: str, *rest: Any) -> Any:
        said = answer(method, *rest)
        return (503, "upstream went away") if method == "POST" else said

    ray.answer = lose  # type: ignore[method-assign]
    probe, subject = Probe(), subject_of(ray)
    assert look(probe, subject, 1)[0].verdict is Verdict.NOT_YET
    ray.answer = answer  # type: ignore[method-assign]
    assert look(probe, subject, 1)[0].detail.endswith("was there already")
    assert len(ray.jobs) == 1


def test_one_that_runs_when_the_gates_end_is_stopped() -> None:
    ray = FakeRay(statuses=["RUNNING"] * 9)
    probe, subject = Probe(), subject_of(ray)
    look(probe, subject, 3)
    probe.close(subject)
    assert [job["status"] for job in ray.jobs.values()] == ["STOPPED"]


@pytest.mark.parametrize(("later", "left"), [(SETTLED_SECONDS, 0), (SETTLED_SECONDS - 1, 1)])
def test_one_that_has_succeeded_is_deleted_once_ray_leaves_it_alone(
    later: float, left: int
) -> None:
    ray, clock = FakeRay(statuses=["SUCCEEDED"]), FakeClock()
    probe, subject = Probe(), subject_of(ray, clock=clock)
    look(probe, subject, 2)
    clock.sleep(later)
    probe.close(subject)
    assert len(ray.jobs) == left


def test_what_is_left_is_swept_later() -> None:
    ray = FakeRay(
        jobs={
            MINE + "a": probe_row(MINE + "a", "SUCCEEDED"),
            MINE + "b": probe_row(MINE + "b", "RUNNING"),
            "train": row(submission_id="train", status="SUCCEEDED"),
        }
    )
    assert [job.name for job in sweep(subject_of(ray).jobs())] == [MINE + "b"]
    assert set(ray.jobs) == {MINE + "b", "train"}


def test_closing_what_was_never_begun_asks_nothing() -> None:
    ray = FakeRay()
    Probe().close(subject_of(ray))
    assert ray.calls == []


def test_a_head_that_is_gone_at_the_end_hides_nothing() -> None:
    ray, clock = FakeRay(statuses=["RUNNING"] * 99), FakeClock()
    probe = Probe(needs=())
    subject = subject_of(ray)

    def cut(text: str) -> None:
        ray.up = "RUNNING" not in text

    times = {"probe": GateTimes(interval=1.0, timeout=5.0)}
    with pytest.raises(Unreachable, match="the gate probe did not open within 5 s"):
        run_gates([probe], subject, times=times, narrate=cut, clock=clock)

"""The shipped fakes: what they are asked to do they do once, and a second time finds it done."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.errors import Locked, ToolFailed, Unreachable
from rayfleet.rollout.model import Direction, Output, Step, owed_after, owed_of, steps_of
from rayfleet.rollout.performer import Inconclusive, LeftAlone, Performer, Task
from rayfleet.rollout.rehearsal import Failure, Mishap, Rehearsal
from tests.support.rehearsals import NEW, OLD, make_plan

PLAN = make_plan(["a"])


@pytest.fixture
def stage(tmp_path: Path) -> Rehearsal:
    return staged(tmp_path)


def staged(folder: Path, *failures: Failure) -> Rehearsal:
    made = Rehearsal(folder, failures=failures)
    made.prepare(PLAN)
    return made


def do(
    performer: Performer,
    *steps: Step,
    outputs: dict[Step, Output] | None = None,
    times: int = 1,
    notes: tuple[Output, ...] = (),
) -> dict[Step, Output]:
    """Do ``steps``, each so many times, as an engine does."""
    done = outputs if outputs is not None else {}
    owed = owed_of(done.get(Step.SNAPSHOT, {}))
    for step in steps:
        noted = list(notes)
        for _ in range(times):
            for note in noted:
                owed = owed_after(owed, step, note)
            task = Task(
                plan=PLAN,
                target=PLAN.targets["a"],
                direction=Direction.FORWARD,
                outputs=dict(done),
                notes=tuple(noted),
                owed=owed,
            )
            output = performer.perform(step, task, note=noted.append, narrate=lambda text: None)
        done[step] = output
        owed = owed_of(output) if "owed" in output else owed
    return done


def forward() -> tuple[Step, ...]:
    return steps_of(PLAN.targets["a"], PLAN.settings, Direction.FORWARD)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_every_step_may_be_done_again(stage: Rehearsal, times: int) -> None:
    do(stage, *forward(), times=times)
    truth = stage.look("a")
    assert (truth.starts, truth.stops, truth.digest) == (1, 1, NEW)
    assert truth.runs == {"a-job0": 2, "a-job1": 2}
    assert sorted(truth.running) == ["a-job0", "a-job1"]
    assert truth.begun["forward stop"] == times


def test_the_truth_is_on_the_disk(stage: Rehearsal, tmp_path: Path) -> None:
    do(stage, Step.STOP)
    again = Rehearsal(tmp_path)
    again.prepare(PLAN)
    assert again.look("a").stops == 1
    assert not again.look("a").up


def test_a_job_that_somebody_else_has_stopped_is_not_owed(stage: Rehearsal) -> None:
    outputs = do(stage, Step.PREFLIGHT, Step.SNAPSHOT)
    truth = stage.look("a")
    truth.running.remove("a-job0")
    stage.save("a", truth)
    owed = do(stage, Step.QUIESCE, outputs=outputs)[Step.QUIESCE]["owed"]
    assert owed == [{"backup": "a-1", "jobs": ["a-job1"], "stopped": ["a-job1"]}]


def test_a_job_that_a_killed_run_has_stopped_is_owed(stage: Rehearsal) -> None:
    outputs = do(stage, Step.PREFLIGHT, Step.SNAPSHOT)
    truth = stage.look("a")
    truth.running.remove("a-job1")
    stage.save("a", truth)
    row = {"backup": "a-1", "jobs": ["a-job0", "a-job1"], "stopped": ["a-job1"]}
    notes = ({"backup": "a-1", "owed": [row]},)
    owed = do(stage, Step.QUIESCE, outputs=outputs, notes=notes)[Step.QUIESCE]["owed"]
    assert owed == [
        {"backup": "a-1", "jobs": ["a-job0", "a-job1"], "stopped": ["a-job0", "a-job1"]}
    ]


@pytest.mark.parametrize(
    ("mishap", "kind"),
    [
        (Mishap.REFUSED, ToolFailed),
        (Mishap.UNREACHABLE, Unreachable),
        (Mishap.LOCKED, Locked),
        (Mishap.INCONCLUSIVE, Inconclusive),
        (Mishap.LEFT_ALONE, LeftAlone),
        (Mishap.DEFECT, ZeroDivisionError),
    ],
)
def test_a_scripted_failure_happens_as_often_as_it_says(
    tmp_path: Path, mishap: Mishap, kind: type[Exception]
) -> None:
    failing = staged(tmp_path, Failure(cluster="a", step=Step.STOP, mishap=mishap, times=2))
    for _ in range(2):
        with pytest.raises(kind):
            do(failing, Step.STOP)
        assert failing.look("a").up
    do(failing, Step.STOP)
    assert not failing.look("a").up


def test_a_late_failure_has_done_its_work(tmp_path: Path) -> None:
    failing = staged(tmp_path, Failure(cluster="a", step=Step.STOP, late=True))
    with pytest.raises(ToolFailed):
        do(failing, Step.STOP)
    assert (failing.look("a").up, failing.look("a").digest) == (False, OLD)


def test_an_ailing_cluster_says_so(stage: Rehearsal) -> None:
    assert stage.trouble(PLAN.targets["a"]) == ""
    stage.ail("a", "no answer")
    assert stage.trouble(PLAN.targets["a"]) == "no answer"

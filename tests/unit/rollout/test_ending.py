"""The end of a run as its caller sees it: the documented exit code, causes, the next command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.lease import Names, hold_cluster
from rayfleet.errors import RayfleetError
from rayfleet.rollout import verbs
from rayfleet.rollout.ending import raise_for
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Direction, OnFailure, Output, Step
from rayfleet.rollout.performer import Task
from rayfleet.rollout.rehearsal import Failure, Mishap, Rehearsal
from tests.support.rehearsals import create, make_plan, run


def ending(rollout: Rollout, *, interrupted: bool = False, **more: Any) -> RayfleetError | None:
    state = run(rollout, **more)
    try:
        raise_for(rollout.plan, state, interrupted=interrupted)
    except RayfleetError as error:
        return error
    return None


def code(error: RayfleetError | None) -> int:
    return error.exit_code if error else 0


@pytest.fixture
def rollout(tmp_path: Path) -> Rollout:
    return create(tmp_path, make_plan(["a"], ["b"]))


def broken(step: Step, mishap: Mishap = Mishap.REFUSED, cluster: str = "a") -> Failure:
    return Failure(cluster=cluster, step=step, mishap=mishap, times=99)


def test_all_well_is_no_error(rollout: Rollout) -> None:
    assert ending(rollout) is None


@pytest.mark.parametrize(
    ("step", "mishap", "expected"),
    [
        (Step.START, Mishap.REFUSED, 2),
        (Step.STOP, Mishap.UNREACHABLE, 2),
        (Step.SNAPSHOT, Mishap.REFUSED, 2),
        (Step.SNAPSHOT, Mishap.UNREACHABLE, 4),
        (Step.PREFLIGHT, Mishap.LOCKED, 5),
        (Step.GATES, Mishap.INCONCLUSIVE, 6),
        (Step.PREFLIGHT, Mishap.LEFT_ALONE, 0),
    ],
)
def test_each_failure_has_its_code(
    rollout: Rollout, step: Step, mishap: Mishap, expected: int
) -> None:
    assert code(ending(rollout, failures=[broken(step, mishap)])) == expected


def test_a_failure_names_clusters_causes_and_the_next_command(rollout: Rollout) -> None:
    error = ending(rollout, failures=[broken(Step.START)])
    assert error is not None
    text = error.text()
    assert "1 of 2 clusters failed" in text
    assert "a: start: a: the rehearsal's start went wrong: it was to be refused" in text
    assert "not touched: b" in text
    assert f"invoke rollouts.retry {rollout.id}" in error.next_step


def test_failures_of_several_kinds_are_failures(tmp_path: Path) -> None:
    made = create(tmp_path, make_plan(["a", "b", "c"], max_untouched=3, parallel=1))
    with hold_cluster(
        Rehearsal(tmp_path), Names(name="a", identity="ray-a"), rollout="R2", operator="bob@lap"
    ):
        pass
    error = ending(made, failures=[broken(Step.SNAPSHOT, Mishap.UNREACHABLE, "b")])
    assert code(error) == 2
    assert error is not None
    assert "(untouched)" in error.text()
    assert "done: c" in error.text()


def test_what_was_rolled_back_is_a_failure_still(tmp_path: Path) -> None:
    made = create(tmp_path, make_plan(["a"], on_failure=OnFailure.ROLLBACK_FAILED))
    error = ending(made, failures=[broken(Step.GATES)])
    assert code(error) == 2
    assert error is not None
    assert "; rolled back" in error.text()


def test_an_abort_is_what_the_operator_declined(rollout: Rollout) -> None:
    verbs.abort(rollout, by="bob@lap")
    error = ending(rollout)
    assert code(error) == 3
    assert error is not None
    assert "not touched: a, b" in error.text()


def test_a_pause_says_how_to_go_on(rollout: Rollout) -> None:
    failures = [broken(Step.GATES, Mishap.INCONCLUSIVE)]
    error = ending(rollout, failures=failures)
    assert error is not None
    assert f"invoke rollouts.resume {rollout.id}" in error.next_step
    assert f"invoke rollouts.promote {rollout.id}" in error.next_step
    assert "a: gates: a: the rehearsal's gates went wrong" in error.text()
    assert code(ending(rollout, failures=failures, interrupted=True)) == 130


def test_lost_jobs_are_named_per_cluster(rollout: Rollout, tmp_path: Path) -> None:
    class Forgetful(Rehearsal):
        def perform(self, step: Step, task: Task, **more: Any) -> Output:
            output = super().perform(step, task, **more)
            if step is not Step.WATCH:
                return output
            return {**output, "lost": [f"{task.target.cluster}-job0"], "next": "invoke status"}

    error = ending(rollout, performer=Forgetful(tmp_path))
    assert code(error) == 7
    assert error is not None
    assert "a: a-job0\n  b: b-job0" in error.text()
    assert error.next_step == "invoke status"


def test_an_inconclusive_rollback_is_not_called_rolled_back(tmp_path: Path) -> None:
    made = create(tmp_path, make_plan(["a"], on_failure=OnFailure.ROLLBACK_FAILED))
    undecided = Failure(
        cluster="a",
        step=Step.GATES,
        direction=Direction.BACK,
        mishap=Mishap.INCONCLUSIVE,
        times=99,
    )
    error = ending(made, failures=[broken(Step.START), undecided])
    assert code(error) == 6
    assert error is not None
    assert "rolled back" not in error.text()
    assert "; the rollback is inconclusive: a: the rehearsal's gates went wrong" in error.text()
    verbs.abort(made, by="bob@lap")
    after = ending(made)
    assert after is not None
    assert "rolled back" not in after.text()


@pytest.mark.parametrize("on_failure", [OnFailure.ROLLBACK_FAILED, OnFailure.STOP])
def test_jobs_that_a_rollback_has_lost_are_named(tmp_path: Path, on_failure: OnFailure) -> None:
    class Forgetful(Rehearsal):
        def perform(self, step: Step, task: Task, **more: Any) -> Output:
            output = super().perform(step, task, **more)
            if step is not Step.WATCH or task.direction is not Direction.BACK:
                return output
            return {**output, "lost": ["a-job0"], "next": "invoke jobs.restore --job a-job0"}

    failures = [broken(Step.GATES)] if on_failure is OnFailure.ROLLBACK_FAILED else []
    made = create(tmp_path, make_plan(["a"], on_failure=on_failure))
    error = ending(made, performer=Forgetful(tmp_path, failures=failures))
    if not failures:
        verbs.rollback(made, by="bob@lap")
        error = ending(made, performer=Forgetful(tmp_path))
    assert error is not None
    assert "rolled back, but jobs were not given back: a-job0" in error.text()
    assert "invoke jobs.restore --job a-job0" in error.next_step

"""Clusters that were used, changed or given free while nobody carried their rollout out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.lease import Names, release_cluster
from rayfleet.rollout import verbs
from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Direction, OnFailure, Step
from rayfleet.rollout.rehearsal import Failure, Rehearsal
from rayfleet.rollout.state import Outcome, Result
from tests.support.rehearsals import NEW, OLD, create, leases, make_plan, place_of, run

BOB = "bob@lap"


def truth(rollout: Rollout) -> Any:
    return Rehearsal(place_of(rollout)).look("a")


def change(rollout: Rollout, work: Callable[[Any], None]) -> None:
    fakes = Rehearsal(place_of(rollout))
    found = fakes.look("a")
    work(found)
    fakes.save("a", found)


def submit(rollout: Rollout, *jobs: str) -> None:
    """Somebody submits jobs to the head itself."""

    def work(found: Any) -> None:
        assert found.up
        found.running += jobs
        found.runs |= dict.fromkeys(jobs, 1)

    change(rollout, work)


def start_by_hand(rollout: Rollout) -> None:
    """Somebody starts the old image without us; what was on the head is gone."""

    def work(found: Any) -> None:
        found.up, found.digest, found.running, found.stopped = True, OLD, [], []

    change(rollout, work)


def failed(tmp_path: Path, step: Step, **more: Any) -> Rollout:
    rollout = create(tmp_path, make_plan(["a"], **more))
    assert run(rollout, failures=[Failure(cluster="a", step=step)]).result is Result.FAILED
    return rollout


def runs(**jobs: int) -> Mapping[str, int]:
    return {"a-job0": 2, "a-job1": 2} | jobs


def steps(rollout: Rollout) -> list[Step | None]:
    """The steps that were begun since the cluster was last taken up."""
    records = rollout.records()
    held = max(n for n, each in enumerate(records) if each.kind is Kind.HELD)
    return [each.step for each in records[held:] if each.kind is Kind.INTENT]


@pytest.mark.parametrize("step", [Step.QUIESCE, Step.STOP])
def test_jobs_that_came_while_it_had_failed_come_back(tmp_path: Path, step: Step) -> None:
    rollout = failed(tmp_path, step)
    submit(rollout, "late")
    verbs.retry(rollout, by=BOB)
    assert run(rollout).result is Result.DONE
    assert truth(rollout).runs == runs(late=2)
    assert sorted(truth(rollout).running) == ["a-job0", "a-job1", "late"]


@pytest.mark.parametrize("step", [Step.STOP, Step.EMPTY, Step.START])
def test_jobs_on_a_head_that_somebody_has_started_come_back(tmp_path: Path, step: Step) -> None:
    rollout = failed(tmp_path, step)
    start_by_hand(rollout)
    submit(rollout, "late")
    verbs.retry(rollout, by=BOB)
    assert run(rollout).result is Result.DONE
    assert truth(rollout).digest == NEW
    assert truth(rollout).runs == runs(late=2)


@pytest.mark.parametrize("told", [True, False], ids=["unlocked", "lease removed by hand"])
def test_one_that_was_given_free_begins_with_its_first_step(tmp_path: Path, *, told: bool) -> None:
    rollout = failed(tmp_path, Step.START)
    if told:
        verbs.unlock(Rehearsal(tmp_path), rollout)
    else:
        release_cluster(Rehearsal(tmp_path), Names(name="a", identity="ray-a"))
    assert leases(rollout) == []
    start_by_hand(rollout)
    submit(rollout, "late")
    verbs.retry(rollout, by=BOB)
    assert run(rollout).result is Result.DONE
    assert steps(rollout)[0] is Step.PREFLIGHT
    assert truth(rollout).runs == runs(late=2)


def test_one_that_was_given_free_and_fails_before_it_is_touched_is_free_again(
    tmp_path: Path,
) -> None:
    rollout = failed(tmp_path, Step.STOP)
    verbs.unlock(Rehearsal(tmp_path), rollout)
    verbs.retry(rollout, by=BOB)
    again = Failure(cluster="a", step=Step.VERIFY, times=9)
    way = run(rollout, failures=[again]).clusters["a"].forward
    assert way is not None
    assert way.outcome is Outcome.UNTOUCHED
    assert leases(rollout) == []
    verbs.retry(rollout, by=BOB)
    assert run(rollout).result is Result.DONE
    assert truth(rollout).runs == runs()


def test_a_way_back_that_was_given_free_owes_what_its_own_steps_have_taken(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], on_failure=OnFailure.ROLLBACK_FAILED))
    bad = Failure(cluster="a", step=Step.WATCH)
    worse = Failure(cluster="a", step=Step.START, direction=Direction.BACK)
    run(rollout, failures=[bad, worse])
    assert truth(rollout).running == []
    verbs.unlock(Rehearsal(tmp_path), rollout)
    verbs.retry(rollout, by=BOB)
    run(rollout)
    assert truth(rollout).digest == OLD
    assert sorted(truth(rollout).running) == ["a-job0", "a-job1"]


def test_unlocking_tells_the_journal_before_the_lease_goes(tmp_path: Path) -> None:
    rollout = failed(tmp_path, Step.STOP)
    verbs.unlock(Rehearsal(tmp_path), rollout)
    assert not rollout.state().clusters["a"].held
    (tmp_path / "leases").mkdir(exist_ok=True)
    rollout.journal.path.write_text("damaged\n" + rollout.journal.path.read_text())
    start = Rehearsal(tmp_path)
    with start.hold(rollout.plan, rollout.plan.targets["a"]):
        pass
    assert leases(rollout)
    with pytest.raises(Exception, match=r"journal|record"):
        verbs.unlock(start, rollout)
    assert leases(rollout) == [], "a damaged journal keeps nobody's cluster"

"""What operators ask of rollouts, and what they are told: who has to carry it out, what does not
fit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.lease import Names, hold_cluster, lease_of
from rayfleet.errors import Locked, UnknownCluster, UsageError
from rayfleet.job.restore.report import NotRestored
from rayfleet.rollout import verbs
from rayfleet.rollout.ending import raise_for
from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Direction, Step
from rayfleet.rollout.rehearsal import Failure, Mishap, Rehearsal
from rayfleet.rollout.state import Outcome, Result
from tests.support.rehearsals import create, kinds, make_plan, run

BOB = "bob@lap"


@pytest.fixture
def rollout(tmp_path: Path) -> Rollout:
    """A canary that has failed after it was touched; two more clusters were not begun."""
    made = create(tmp_path, make_plan(["a"], ["b", "c"], canary=True))
    run(made, failures=[Failure(cluster="a", step=Step.START)])
    return made


@pytest.fixture
def fresh(tmp_path: Path) -> Rollout:
    return create(tmp_path, make_plan(["a"], ["b"]))


@pytest.fixture
def driven(fresh: Rollout) -> Iterator[Rollout]:
    """A rollout that a process is just carrying out."""
    with fresh.drive():
        fresh.append(Kind.BEGUN, data={"by": "olga@desk"})
        yield Rollout(fresh.folder)


ASKING: dict[str, Callable[[Rollout], verbs.Answer]] = {
    "promote": lambda r: verbs.promote(r, by=BOB, full=True),
    "abort": lambda r: verbs.abort(r, by=BOB),
    "skip": lambda r: verbs.skip(r, ["b"], by=BOB),
}


@pytest.mark.parametrize("verb", ASKING)
def test_who_drives_is_asked_and_else_the_asker_drives(driven: Rollout, verb: str) -> None:
    answer = ASKING[verb](driven)
    assert not answer.drive
    request = driven.records()[-1]
    assert (request.kind, request.data["verb"], request.data["by"]) == (Kind.REQUEST, verb, BOB)


@pytest.mark.parametrize("verb", ASKING)
def test_nobody_drives_so_the_asker_has_to(fresh: Rollout, verb: str) -> None:
    assert ASKING[verb](fresh).drive


def test_a_request_to_a_run_that_is_just_ending_is_carried_out_by_the_asker(
    fresh: Rollout,
) -> None:
    ending, told = threading.Event(), threading.Event()

    def drive() -> None:
        with fresh.drive():
            fresh.append(Kind.BEGUN)
            fresh.append(Kind.PAUSED, data={"reason": "asked"})
            ending.set()
            told.wait(60)  # the report and the last messages take their time

    thread = threading.Thread(target=drive)
    thread.start()
    assert ending.wait(60)
    asked = Rollout(fresh.folder)
    answers: list[verbs.Answer] = []
    asker = threading.Thread(target=lambda: answers.append(verbs.abort(asked, by=BOB)))
    asker.start()
    asker.join(0.3)
    assert answers == []
    told.set()
    for each in (thread, asker):
        each.join(60)
    assert answers[0].drive
    assert run(Rollout(fresh.folder)).result is Result.ABORTED


def test_a_pause_where_nobody_drives_asks_for_nothing(fresh: Rollout) -> None:
    answer = verbs.pause(fresh, by=BOB)
    assert not answer.drive
    assert f"invoke rollouts.resume {fresh.id}" in answer.text
    assert kinds(fresh)[Kind.REQUEST] == 0


@pytest.mark.parametrize("verb", [verbs.pause, verbs.promote, verbs.abort])
def test_a_finished_rollout_is_not_steered(
    rollout: Rollout, verb: Callable[..., verbs.Answer]
) -> None:
    with pytest.raises(UsageError, match="it is finished: failed"):
        verb(rollout, by=BOB)
    assert kinds(rollout)[Kind.REQUEST] == 0


def test_only_what_has_failed_is_tried_again(rollout: Rollout) -> None:
    with pytest.raises(UsageError, match=r"retry does not fit b.*have failed: a"):
        verbs.retry(rollout, ["b"], by=BOB)
    answer = verbs.retry(rollout, ["a"], by=BOB)
    assert answer.drive
    assert "tried again: a" in answer.text


def test_without_failures_there_is_nothing_to_try_again(fresh: Rollout) -> None:
    with pytest.raises(UsageError, match="no cluster of it has failed"):
        verbs.retry(fresh, by=BOB)


def test_an_aborted_rollout_goes_on_with_a_retry(fresh: Rollout) -> None:
    verbs.abort(fresh, by=BOB)
    assert run(fresh).result is Result.ABORTED
    assert verbs.retry(fresh, by=BOB).drive
    assert run(fresh).result is Result.DONE


def test_unknown_clusters_are_named(rollout: Rollout) -> None:
    for ask in (verbs.retry, verbs.skip, verbs.rollback):
        with pytest.raises(UnknownCluster, match=r"no cluster x: it has a, b, c"):
            ask(rollout, ["a", "x"], by=BOB)


def test_done_ones_are_not_left_out(fresh: Rollout) -> None:
    run(fresh)
    with pytest.raises(UsageError, match="skip does not fit a"):
        verbs.skip(fresh, ["a"], by=BOB)
    with pytest.raises(UsageError, match="no cluster is named"):
        verbs.skip(fresh, [], by=BOB)


def test_leaving_out_of_a_rollout_that_rests_does_not_start_it(rollout: Rollout) -> None:
    answer = verbs.skip(rollout, ["a"], by=BOB)
    assert not answer.drive
    assert f"invoke rollouts.unlock {rollout.id} --cluster a" in answer.text
    assert rollout.state().clusters["a"].forward.outcome is Outcome.SKIPPED


def test_only_what_was_changed_is_taken_back(rollout: Rollout) -> None:
    with pytest.raises(UsageError, match="rollback does not fit b"):
        verbs.rollback(rollout, ["b"], by=BOB)
    assert verbs.rollback(rollout, by=BOB).drive
    state = run(rollout)
    assert state.clusters["a"].back.outcome is Outcome.DONE
    with pytest.raises(UsageError, match="no cluster of it was changed"):
        verbs.rollback(rollout, by=BOB)


def test_what_ran_before_has_to_be_known(tmp_path: Path) -> None:
    plan = make_plan(["a"])
    target = replace(plan.targets["a"], previous=False)
    made = create(tmp_path, replace(plan, targets={"a": target}))
    run(made, failures=[Failure(cluster="a", step=Step.GATES)])
    with pytest.raises(UsageError, match="the config that it ran with before is not known"):
        verbs.rollback(made, ["a"], by=BOB)


@dataclass(frozen=True)
class Place:
    """Where the state folder is."""

    state: Path


def names(cluster: str) -> Names:
    return Names(name=cluster, identity=f"ray-{cluster}")


def test_unlock_ends_the_leases_of_a_dead_rollout_and_of_no_other(
    rollout: Rollout, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    with hold_cluster(place, names("b"), rollout="R2", operator=BOB):
        pass
    (ended,) = verbs.unlock(place, rollout)
    assert ended.cluster == "a"
    assert lease_of(place, names("a")) is None
    assert lease_of(place, names("b")) is not None
    assert not rollout.state().clusters["a"].held
    assert verbs.unlock(place, rollout) == ()


def test_unlock_refuses_while_a_process_works_by_the_lease(fresh: Rollout, tmp_path: Path) -> None:
    place = Place(tmp_path)
    with (
        hold_cluster(place, names("a"), rollout=fresh.id, operator=BOB),
        pytest.raises(Locked, match="works on it since"),
    ):
        verbs.unlock(place, fresh)
    assert lease_of(place, names("a")) is not None


def test_an_undecided_cluster_may_be_left_out_or_taken_back(tmp_path: Path) -> None:
    def undecided(folder: str) -> Rollout:
        made = create(tmp_path / folder, make_plan(["a"], ["b"]))
        failure = Failure(cluster="a", step=Step.GATES, mishap=Mishap.INCONCLUSIVE, times=99)
        run(made, failures=[failure])
        return made

    skipped = undecided("skipped")
    assert not verbs.skip(skipped, ["a"], by=BOB).drive
    assert run(skipped).result is Result.WITHOUT_JOBS
    taken = undecided("taken")
    assert verbs.rollback(taken, ["a"], by=BOB).drive
    run(taken)
    assert Rehearsal(tmp_path / "taken").look("a").digest.endswith("0")


def test_answers_name_no_more_clusters_than_one_can_read(tmp_path: Path) -> None:
    many: Any = [f"c{i}" for i in range(30)]
    made = create(tmp_path, make_plan(many))
    assert "and 22 more" in verbs.skip(made, many, by=BOB).text


def skipping(rollout: Rollout) -> list[str]:
    """What is said of leaving "a" out before anybody is asked."""
    return verbs.left_as_they_are(verbs.preview(rollout, verbs.Verb.SKIP, ["a"], by=BOB))


def test_a_touched_failure_that_is_left_out_ends_without_its_jobs(tmp_path: Path) -> None:
    """It ended as done, with exit code 0: the cluster down, its jobs only in the vault."""
    made = create(tmp_path, make_plan(["a"], ["b"]))
    failure = Failure(cluster="a", step=Step.GATES, mishap=Mishap.INCONCLUSIVE, times=99)
    run(made, failures=[failure])
    warning, mend = skipping(made)
    assert warning == ("a was changed and may be down; only in the vault: 2 jobs, a-job0, a-job1")
    assert f"invoke rollouts.unlock {made.id} --cluster a; then: invoke start --cluster a" in mend
    verbs.skip(made, ["a"], by=BOB)
    state = run(made)
    assert state.result is Result.WITHOUT_JOBS
    with pytest.raises(NotRestored) as caught:
        raise_for(made.plan, state)
    assert caught.value.exit_code == 7
    assert "a: a-job0, a-job1" in caught.value.why
    restore = "invoke jobs.restore --cluster a --backup a-1 --stopped --job a-job0 --job a-job1"
    assert restore in caught.value.next_step


def test_what_is_left_out_before_it_was_touched_ends_well(tmp_path: Path) -> None:
    made = create(tmp_path, make_plan(["a"], ["b"]))
    run(made, failures=[Failure(cluster="a", step=Step.VERIFY)])
    assert skipping(made) == []
    verbs.skip(made, ["a"], by=BOB)
    verbs.retry(made, by=BOB)
    assert run(made).result is Result.DONE


def test_the_last_failure_that_is_left_out_ends_a_rollout_that_had_failed(tmp_path: Path) -> None:
    made = create(tmp_path, make_plan(["a"]))
    run(made, failures=[Failure(cluster="a", step=Step.START)])
    assert made.state().result is Result.FAILED
    verbs.skip(made, ["a"], by=BOB)
    assert made.state().result is Result.WITHOUT_JOBS


def test_jobs_that_are_back_are_not_told_as_lost(tmp_path: Path) -> None:
    """It turns bad while it bakes: its jobs were given back before."""
    made = create(tmp_path, make_plan(["a"], ["b"]))
    run(made, failures=[Failure(cluster="a", step=Step.CLOSE, times=99)])
    assert skipping(made)[0] == "a was changed and may be down"


def test_a_way_back_that_goes_on_is_not_tried_again(rollout: Rollout) -> None:
    """The answer was "tried again: a", and nothing changed."""
    verbs.rollback(rollout, ["a"], by=BOB)
    with rollout.drive():
        rollout.append(Kind.BEGUN)
        rollout.append(Kind.HELD, cluster="a", direction=Direction.BACK)
        before = rollout.records()
        with pytest.raises(UsageError, match="retry does not fit a: a is rolling back"):
            verbs.retry(rollout, ["a"], by=BOB)
        assert rollout.records() == before


def test_a_way_back_that_was_left_out_can_be_asked_for_again(rollout: Rollout) -> None:
    """The rules of the state allowed it, and the command refused it."""
    verbs.rollback(rollout, ["a"], by=BOB)
    run(rollout, failures=[Failure(cluster="a", step=Step.START, direction=Direction.BACK)])
    verbs.skip(rollout, ["a"], by=BOB)
    assert rollout.state().clusters["a"].back.outcome is Outcome.SKIPPED
    assert verbs.rollback(rollout, ["a"], by=BOB).drive
    assert run(rollout).clusters["a"].back.outcome is Outcome.DONE


def test_leaving_the_failure_out_lets_a_retry_go_on_with_the_others(rollout: Rollout) -> None:
    verbs.skip(rollout, ["a"], by=BOB)
    assert verbs.retry(rollout, by=BOB).drive
    assert {each.forward.outcome for each in run(rollout).clusters.values()} == {
        Outcome.SKIPPED,
        Outcome.DONE,
    }


def test_what_would_change_nothing_is_refused(driven: Rollout) -> None:
    """A bake that does not go on cannot be ended, and an abort is asked for once."""
    with pytest.raises(UsageError, match="no bake goes on"):
        verbs.promote(driven, by=BOB)
    verbs.abort(driven, by=BOB)
    with pytest.raises(UsageError, match="it is being aborted already"):
        verbs.abort(driven, by=BOB)
    assert kinds(driven)[Kind.REQUEST] == 1

"""What each record means for the state of a rollout."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rayfleet.rollout.fold import apply, begin, fold
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.model import Change, Direction, Owed, Step, steps_of
from rayfleet.rollout.state import Outcome, Result, Way
from tests.support.rollout_examples import big_fleet, make_target
from tests.support.rollout_journal import BACK, EPOCH, FORWARD, Journal, staged

OWED = {"owed": [{"backup": "b1", "jobs": ["j1", "j2"], "stopped": ["j2"]}]}
MORE = {"owed": [*OWED["owed"], {"backup": "b2", "jobs": ["j3"], "stopped": []}]}


def one(*names: str, **limits: object) -> Journal:
    return Journal(staged("".join(names) or "a", **limits))


def test_at_first_every_target_is_there_and_nothing_has_begun() -> None:
    state = begin(staged("a", "bc"))
    assert list(state.clusters) == ["a", "b", "c"]
    assert all(c.forward is None and c.back is None for c in state.clusters.values())


def test_a_step_that_is_done_leaves_its_output() -> None:
    journal = one()
    journal.say(Kind.HELD, "a")
    assert journal.cluster("a").held
    journal.say(Kind.INTENT, "a", step=Step.PREFLIGHT)
    way = journal.way("a")
    assert (way.step, way.tries, way.outcome) == (Step.PREFLIGHT, 1, None)
    journal.say(Kind.DONE, "a", step=Step.PREFLIGHT, data={"head": "h1"})
    way = journal.way("a")
    assert way.outputs == {Step.PREFLIGHT: {"head": "h1"}}
    assert (way.step, way.tries) == (None, 0)
    ((step, begun, ended),) = way.times
    assert (step, ended) == (Step.PREFLIGHT, begun + timedelta(seconds=1))


def test_a_killed_step_is_begun_again_with_its_notes() -> None:
    journal = one()
    journal.go("a", killed=Step.QUIESCE)
    journal.say(Kind.NOTE, "a", step=Step.QUIESCE, data={"asked": "j1"})
    journal.resume()
    journal.say(Kind.HELD, "a")
    journal.say(Kind.INTENT, "a", step=Step.QUIESCE)
    way = journal.way("a")
    assert (way.tries, way.notes) == (2, ({"asked": "j1"},))
    assert [row[0] for row in way.times[-2:]] == [Step.QUIESCE, Step.QUIESCE]
    journal.say(Kind.DONE, "a", step=Step.QUIESCE, data=OWED)
    journal.say(Kind.INTENT, "a", step=Step.STOP)
    assert (journal.way("a").tries, journal.way("a").notes) == (1, ())


def test_jobs_are_owed_from_the_moment_they_may_be_stopped() -> None:
    journal = one()
    journal.say(Kind.INTENT, "a", step=Step.SNAPSHOT)
    journal.say(Kind.DONE, "a", step=Step.SNAPSHOT, data=OWED)
    assert journal.way("a").owed == ()
    journal.say(Kind.INTENT, "a", step=Step.QUIESCE)
    first = Owed(backup="b1", jobs=("j1", "j2"), stopped=("j2",))
    assert journal.way("a").owed == (first,)
    journal.say(Kind.DONE, "a", step=Step.QUIESCE, data=MORE)
    assert journal.way("a").owed == (first, Owed(backup="b2", jobs=("j3",)))


def test_a_failure_is_kept_until_the_step_is_begun_again() -> None:
    journal = one()
    journal.fail("a", step=Step.STOP)
    way = journal.way("a")
    assert (way.step, way.outcome) == (Step.STOP, Outcome.FAILED)
    assert way.error["what"] == "broken"
    journal.ask("retry")
    assert journal.way("a").error["what"] == "broken"
    journal.say(Kind.HELD, "a")
    journal.say(Kind.INTENT, "a", step=Step.STOP)
    assert journal.way("a").error == {}


def test_a_locked_cluster_says_who_has_it() -> None:
    journal = one()
    journal.say(Kind.FAILED, "a", step=Step.PREFLIGHT, data={"what": "bo holds a", "code": 5})
    assert journal.way("a").begun is not None, "a kill right here must not forget it"
    journal.end("a", Outcome.LOCKED)
    way = journal.way("a")
    assert (way.locked, way.error["what"]) == (1, "bo holds a")
    assert not way.touched
    journal.say(Kind.HELD, "a")
    assert journal.way("a").outcome is None


def test_a_cluster_that_turns_bad_after_its_end_has_failed_at_once() -> None:
    journal = one()
    journal.go("a")
    journal.say(Kind.FAILED, "a", step=Step.GATES, data={"what": "its head died"})
    way = journal.way("a")
    assert (way.outcome, way.step) == (Outcome.FAILED, Step.GATES)
    journal.end("a", Outcome.FAILED)
    assert journal.way("a").error["what"] == "its head died"


def test_the_way_back_is_a_way_of_its_own() -> None:
    journal = one()
    journal.fail("a")
    before = journal.way("a")
    journal.go("a", direction=BACK)
    assert journal.way("a") == before
    assert journal.way("a", BACK).outcome is Outcome.DONE
    assert not journal.cluster("a").held


def test_bakes_pauses_and_ends() -> None:
    journal = one()
    journal.say(Kind.BAKING, data={"wave": 0, "until": 7.5})
    assert journal.state.baking == {0: 7.5}
    journal.baked(0)
    assert (journal.state.baking, journal.state.baked) == ({}, {0})
    journal.ask("pause")
    assert journal.state.pause_wanted == "bo@ops-2"
    journal.say(Kind.PAUSED, data={"reason": "asked by bo@ops-2"})
    assert (journal.state.pause_wanted, journal.state.paused) == ("", "asked by bo@ops-2")
    journal.resume()
    assert journal.state.paused == ""
    journal.say(Kind.FINISHED, data={"result": "done"})
    assert journal.state.result is Result.DONE


def test_who_takes_it_up_after_a_kill_need_not_be_told_twice() -> None:
    journal = one()
    journal.ask("pause")
    journal.resume()
    assert journal.state.pause_wanted == ""
    journal.ask("abort")
    journal.resume()
    assert journal.state.aborted, "but an abort stands"


def test_inconclusive_gates_are_tried_again_after_a_pause_only() -> None:
    journal = one()
    journal.go("a", fails=Step.GATES, outcome=Outcome.INCONCLUSIVE)
    journal.resume()
    assert journal.way("a").outcome is Outcome.INCONCLUSIVE, "nobody has been told yet"
    journal.rest()
    journal.resume()
    way = journal.way("a")
    assert (way.outcome, way.step, Step.START in way.outputs) == (None, Step.GATES, True)


def test_an_abort_or_a_way_back_does_not_try_gates_again() -> None:
    for verb in ("abort", "rollback"):
        journal = one()
        journal.go("a", fails=Step.GATES, outcome=Outcome.INCONCLUSIVE)
        journal.rest()
        journal.ask(verb)
        journal.resume()
        assert journal.way("a").outcome is Outcome.INCONCLUSIVE


def test_promoted_gates_count_as_passed() -> None:
    journal = one("ab")
    journal.go("a", fails=Step.GATES, outcome=Outcome.INCONCLUSIVE)
    journal.rest()
    journal.ask("promote")
    way = journal.way("a")
    assert way.outputs[Step.GATES] == {"promoted": "bo@ops-2"}
    assert (way.outcome, way.step, way.error) == (None, None, {})
    assert journal.way("b") == Way()
    assert not journal.state.full


def test_a_promotion_ends_bakes_and_full_ends_all_of_them() -> None:
    journal = one()
    journal.say(Kind.BAKING, data={"wave": 0, "until": 1e12})
    journal.ask("promote", full=True)
    assert journal.state.baking == {0: 0.0}
    assert journal.state.full


@pytest.mark.parametrize("step", [Step.START, Step.GATES])
def test_a_retry_goes_back_to_the_start_of_the_head(step: Step) -> None:
    journal = one()
    journal.fail("a", step=step)
    journal.ask("retry")
    way = journal.way("a")
    assert (way.outcome, way.again, way.step) == (None, True, Step.START)
    assert list(way.outputs)[-1] is Step.EMPTY


def test_a_retry_after_trouble_in_a_bake_begins_anew_for_the_cluster_was_free() -> None:
    journal = one()
    journal.say(Kind.HELD, "a")
    journal.say(Kind.INTENT, "a", step=Step.QUIESCE)
    journal.say(Kind.DONE, "a", step=Step.QUIESCE, data=OWED)
    journal.go("a")
    journal.say(Kind.FAILED, "a", step=Step.GATES, data={"what": "its head died"})
    journal.end("a", Outcome.FAILED)
    journal.ask("retry")
    assert journal.starts() == ["a"]
    journal.say(Kind.HELD, "a")
    way = journal.way("a")
    assert (way.outputs, way.step, way.notes) == ({}, None, ())
    assert (way.touched, way.touched_again) == (True, False)
    assert way.owed == (Owed(backup="b1", jobs=("j1", "j2"), stopped=("j2",)),)
    journal.say(Kind.INTENT, "a", step=Step.QUIESCE)
    assert journal.way("a").touched_again


@pytest.mark.parametrize("how", ["resume", "retry"])
@pytest.mark.parametrize("step", [Step.VERIFY, Step.STOP, Step.EMPTY, Step.START, Step.JOBS])
def test_one_that_was_unlocked_half_way_begins_with_its_first_step(step: Step, how: str) -> None:
    journal = one()
    if how == "retry":
        journal.fail("a", step=step)
        journal.rest()
    else:
        journal.go("a", killed=step)
    journal.say(Kind.RELEASED, "a")
    assert journal.way("a").outputs, "only who takes it up begins anew"
    if how == "retry":
        journal.ask("retry")
    journal.resume()
    assert journal.starts() == ["a"]
    journal.say(Kind.HELD, "a")
    assert journal.way("a").outputs == {}
    journal.say(Kind.INTENT, "a", step=Step.PREFLIGHT)
    journal.say(Kind.DONE, "a", step=Step.PREFLIGHT)
    journal.resume()
    journal.say(Kind.HELD, "a")
    assert list(journal.way("a").outputs) == [Step.PREFLIGHT], "it is kept since"


def test_one_whose_lease_was_gone_begins_anew_although_nobody_wrote_that_down() -> None:
    journal = one()
    journal.say(Kind.HELD, "a", data={"lease": "one"})
    journal.say(Kind.INTENT, "a", step=Step.PREFLIGHT)
    journal.say(Kind.DONE, "a", step=Step.PREFLIGHT)
    journal.say(Kind.HELD, "a", data={"lease": "one"})
    assert Step.PREFLIGHT in journal.way("a").outputs
    journal.say(Kind.HELD, "a", data={"lease": "two"})
    assert journal.way("a").outputs == {}


def test_what_was_asked_to_stop_is_known_even_if_the_step_fails() -> None:
    journal = one()
    journal.say(Kind.HELD, "a")
    journal.say(Kind.INTENT, "a", step=Step.SNAPSHOT)
    saved = {"owed": [{"backup": "b1", "jobs": ["j1"], "stopped": []}]}
    journal.say(Kind.DONE, "a", step=Step.SNAPSHOT, data=saved)
    journal.say(Kind.INTENT, "a", step=Step.QUIESCE)
    journal.say(Kind.NOTE, "a", step=Step.QUIESCE, data={"asked": ["j2"], **OWED})
    wanted = (Owed(backup="b1", jobs=("j1", "j2"), stopped=("j2",)),)
    assert journal.way("a").owed == wanted
    journal.say(Kind.FAILED, "a", step=Step.QUIESCE, data={"what": "broken"})
    journal.end("a", Outcome.FAILED)
    assert journal.way("a").owed == wanted, "a way back needs it"
    journal.ask("retry")
    journal.say(Kind.HELD, "a")
    journal.say(Kind.INTENT, "a", step=Step.QUIESCE)
    assert journal.way("a").owed == wanted
    journal.say(Kind.DONE, "a", step=Step.QUIESCE, data=OWED)
    journal.say(Kind.INTENT, "a", step=Step.STOP)
    journal.say(Kind.NOTE, "a", step=Step.STOP, data=MORE)
    assert len(journal.way("a").owed) == 2
    journal.say(Kind.DONE, "a", step=Step.STOP, data={"nodes": 1})
    assert len(journal.way("a").owed) == 2


@pytest.mark.parametrize("step", [Step.QUIESCE, Step.EMPTY, Step.PACKAGES, Step.WATCH])
def test_any_other_step_is_retried_itself_with_its_notes(step: Step) -> None:
    journal = one()
    journal.go("a", killed=step)
    journal.say(Kind.NOTE, "a", step=step, data={"asked": 1})
    journal.say(Kind.FAILED, "a", step=step, data={"what": "broken"})
    journal.end("a", Outcome.FAILED)
    done = dict(journal.way("a").outputs)
    journal.ask("retry")
    way = journal.way("a")
    assert (way.outputs, way.step, way.notes) == (done, step, ({"asked": 1},))


@pytest.mark.parametrize("step", [Step.PREFLIGHT, Step.SNAPSHOT, Step.VERIFY])
def test_what_was_not_touched_is_retried_from_the_first_step(step: Step) -> None:
    journal = one()
    journal.go("a", fails=step, outcome=Outcome.UNTOUCHED)
    journal.ask("retry", "a")
    way = journal.way("a")
    assert (way.outputs, way.again, way.touched) == ({}, True, False)


def test_a_retry_of_one_that_is_back_begins_from_nothing() -> None:
    journal = one("ab")
    journal.fail("a")
    journal.go("a", direction=BACK)
    journal.ask("retry")
    assert journal.cluster("a").forward == Way(again=True)
    assert journal.cluster("a").back is None


def test_a_retry_of_one_whose_way_back_failed_takes_it_back_first() -> None:
    journal = one()
    journal.fail("a", step=Step.GATES)
    journal.fail("a", step=Step.WATCH, direction=BACK)
    before = journal.way("a")
    journal.ask("retry")
    assert journal.way("a") == before
    back = journal.way("a", BACK)
    assert (back.again, back.outcome, back.step) == (True, None, Step.WATCH)


def test_a_retry_opens_the_rollout_again_and_its_waves_bake_again() -> None:
    journal = Journal(staged("ab", "c", max_failures=1))
    journal.go("a")
    journal.fail("b")
    journal.baked(0)
    journal.fail("c")
    journal.rest()
    assert journal.state.result is Result.FAILED
    journal.ask("retry", "b")
    assert journal.state.result is None
    assert journal.state.baked == frozenset()
    assert journal.way("c").outcome is Outcome.FAILED


def test_a_rollout_that_is_done_is_not_opened_by_a_retry() -> None:
    journal = one()
    journal.go("a")
    journal.baked(0)
    journal.rest()
    before = journal.state
    for verb in ("retry", "abort", "pause", "promote"):
        journal.ask(verb)
        assert journal.state == before


def test_skipping() -> None:
    journal = one("abcdef")
    journal.fail("a")
    journal.go("b", killed=Step.START)
    journal.go("c")
    journal.fail("d")
    journal.ask("retry", "d")
    journal.ask("rollback", "f")
    journal.ask("skip", *"abcde")
    assert journal.way("a").outcome is Outcome.SKIPPED
    assert journal.way("a").error["what"] == "broken"
    assert journal.way("b").outcome is None, "it goes on"
    assert journal.way("c").outcome is Outcome.DONE
    assert journal.way("d").outcome is Outcome.SKIPPED
    assert journal.way("e").outcome is Outcome.SKIPPED
    journal.end("b", Outcome.FAILED)
    assert journal.way("b").outcome is Outcome.SKIPPED, "but if it fails it is left out"
    assert journal.cluster("f").back is None, "it never began"


def test_one_that_is_skipped_just_when_it_begins_is_not_left_half_done() -> None:
    journal = one()
    journal.ask("skip", "a")
    journal.go("a", killed=Step.STOP)
    assert journal.starts() == ["a"]
    journal.fail("a", step=Step.STOP)
    assert journal.way("a").outcome is Outcome.SKIPPED


def test_rolling_back_by_request() -> None:
    journal = one("abcde")
    journal.go("a")
    journal.go("b", fails=Step.VERIFY, outcome=Outcome.UNTOUCHED)
    journal.go("c", killed=Step.SNAPSHOT)
    journal.fail("d")
    journal.ask("rollback")
    assert [n for n in "abcde" if journal.cluster(n).back == Way()] == ["a", "c", "d"]
    assert journal.state.aborted
    journal.end("c", Outcome.UNTOUCHED)
    assert journal.cluster("c").back is None, "there is nothing to take back"


def test_one_that_is_taken_back_while_the_rollout_goes_on_stops_no_other() -> None:
    journal = one("ab")
    journal.go("a")
    journal.ask("rollback", "a")
    assert not journal.state.aborted
    journal.ask("pause")
    journal.rest()
    journal.ask("rollback", "a")
    assert journal.state.aborted, "who takes one back while it rests wants no other to go on"


def test_names_that_nobody_has_do_not_mean_all() -> None:
    journal = one("ab")
    journal.go("a")
    before = journal.state
    for verb in ("rollback", "retry", "skip"):
        journal.ask(verb, "typo")
        assert journal.state == before


def test_an_abort_takes_back_what_was_asked_for_and_not_begun() -> None:
    journal = one("abc")
    journal.fail("a")
    journal.go("b", fails=Step.SNAPSHOT, outcome=Outcome.UNTOUCHED)
    journal.go("c")
    before = journal.state.clusters
    journal.ask("retry")
    journal.ask("rollback", "c")
    assert journal.state.clusters != before
    journal.ask("abort")
    assert [journal.way(n).outcome for n in "abc"] == [before[n].forward.outcome for n in "abc"]
    assert journal.cluster("c").back is None


def test_records_that_cannot_be_are_refused() -> None:
    plan = staged("a")
    at = EPOCH
    wrong = [
        Record(number=3, at=at, kind=Kind.HELD, cluster="b"),
        Record(number=3, at=at, kind=Kind.INTENT, cluster="a"),
        Record(number=3, at=at, kind=Kind.HELD),
        Record(number=3, at=at, kind=Kind.REQUEST, data={"verb": "explode"}),
        Record(number=3, at=at, kind=Kind.REQUEST, data={"verb": "skip", "clusters": "a"}),
        Record(number=3, at=at, kind=Kind.FINISHED, data={"result": "fine"}),
    ]
    for record in wrong:
        with pytest.raises(ValueError):
            fold(plan, [record])


def test_a_cluster_that_did_not_run_is_touched_by_its_start() -> None:
    target = make_target("a", change=Change.START)
    steps = steps_of(target, staged("a").settings, Direction.FORWARD)
    journal = one()
    for step in steps[:2]:
        journal.say(Kind.INTENT, "a", step=step)
    assert steps[:2] == (Step.PREFLIGHT, Step.START)
    assert journal.way("a", FORWARD).touched


def test_a_record_of_one_cluster_leaves_the_others_as_they_are() -> None:
    example = big_fleet(50)
    state = fold(example.plan, example.records[:100])
    record = example.records[100]
    after = apply(example.plan, state, record)
    for name, cluster in after.clusters.items():
        assert name == record.cluster or cluster is state.clusters[name]

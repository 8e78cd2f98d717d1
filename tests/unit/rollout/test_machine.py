"""What is done next: one rule at a time. ``a`` goes forward, ``<a`` goes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.machine import Decision
from rayfleet.rollout.model import OnFailure, Step
from rayfleet.rollout.state import Outcome, Result
from tests.support.rollout_journal import BACK, Journal, staged

STOP, ONE, ALL = OnFailure.STOP, OnFailure.ROLLBACK_FAILED, OnFailure.ROLLBACK_ALL
WIDE = {"parallel": 0, "max_failures": 9, "max_untouched": 9}


def journal(*waves: str, **settings: object) -> Journal:
    return Journal(staged(*waves, **settings))


def inconclusive(run: Journal, *names: str) -> None:
    for name in names:
        run.go(name, fails=Step.GATES, outcome=Outcome.INCONCLUSIVE)


def untouched(run: Journal, *names: str) -> None:
    for name in names:
        run.go(name, fails=Step.PREFLIGHT, outcome=Outcome.UNTOUCHED)


def locked(run: Journal, *names: str) -> None:
    for name in names:
        run.say(Kind.FAILED, name, step=Step.PREFLIGHT, data={"what": "bo holds it"})
        run.end(name, Outcome.LOCKED)


# Limits and waves.


def test_so_many_at_once_and_so_many_in_a_region() -> None:
    run = journal("abcd", parallel=3, per_region=1)
    assert run.starts() == ["a", "b", "c"]
    assert run.starts("a", "c") == ["b"]
    assert run.starts("a", "b", "c") == []
    assert run.decide("a", "b", "c") == Decision()
    targets = {name: replace(each, region="one") for name, each in run.plan.targets.items()}
    run.plan = replace(run.plan, targets=targets)
    assert run.starts() == ["a"]
    run.plan = replace(run.plan, settings=replace(run.plan.settings, per_region=0, parallel=0))
    assert run.starts() == ["a", "b", "c", "d"]


def test_the_next_wave_begins_when_the_first_has_ended_and_baked() -> None:
    run = journal("ab", "c", parallel=2, bake=60)
    run.go("a")
    assert run.starts("b") == []
    run.go("b")
    assert run.decide() == Decision(bake=0)
    until = run.now + 10
    run.say(Kind.BAKING, data={"wave": 0, "until": until})
    assert run.decide() == Decision(wait_until=until)
    run.state = replace(run.state, baking={0: run.now})
    assert run.decide() == Decision(baked=0)
    run.baked(0)
    assert run.starts() == ["c"]


def test_without_a_bake_a_wave_is_over_at_once() -> None:
    run = journal("a", "b")
    run.go("a")
    assert run.decide() == Decision(baked=0)


def test_where_nothing_is_well_nothing_bakes() -> None:
    run = journal("a", "b", bake=60)
    run.go("a", outcome=Outcome.SKIPPED)
    assert run.decide() == Decision(baked=0)


def test_all_done_is_done() -> None:
    run = journal("ab")
    run.go("a", "b")
    run.baked(0)
    assert run.decide() == Decision(result=Result.DONE)
    run.rest()
    assert run.decide() == Decision(result=Result.DONE)


def test_a_job_that_was_not_given_back_is_told_in_the_result() -> None:
    run = journal("ab")
    run.go("a", outcome=Outcome.WITHOUT_JOBS)
    run.go("b")
    run.baked(0)
    assert run.result is Result.WITHOUT_JOBS


# Kills.


def test_what_was_killed_goes_on_before_anything_new() -> None:
    run = journal("abcd", parallel=2)
    run.go("c", killed=Step.STOP)
    run.resume()
    assert run.starts() == ["c", "a"]
    assert run.starts("c") == ["a"]


def test_what_was_killed_goes_on_whatever_was_asked_for_or_failed() -> None:
    asked: tuple[Callable[[Journal], object], ...] = (
        lambda run: run.ask("abort"),
        lambda run: run.ask("pause"),
        lambda run: run.fail("b"),
        lambda run: inconclusive(run, "b"),
    )
    for ask in asked:
        run = journal("abc", parallel=1)
        run.go("a", killed=Step.STOP)
        ask(run)
        assert run.starts() == ["a"]
        run.go("a")
        assert run.starts() == []


def test_a_way_back_that_was_killed_goes_on() -> None:
    run = journal("ab", on_failure=ONE)
    run.fail("a")
    run.go("a", direction=BACK, killed=Step.START)
    run.resume()
    assert run.starts() == ["<a"]
    run.ask("abort")
    assert run.starts() == ["<a"]


def test_what_is_half_done_counts_even_while_it_has_to_wait() -> None:
    run = journal("abc", parallel=2, per_region=1)
    targets = dict(run.plan.targets)
    targets["b"] = replace(targets["b"], region=targets["a"].region)
    run.plan = replace(run.plan, targets=targets)
    run.go("b", killed=Step.STOP)
    # b waits for a's region; what is new has no room beside the two.
    assert run.starts("a") == []


# Budgets.


@pytest.mark.parametrize(
    ("budget", "failing", "ended"),
    [
        ({}, 1, True),
        ({"max_failures": 1}, 1, False),
        ({"max_failures": 1}, 2, True),
        ({"max_untouched": 9}, 1, True),
    ],
)
def test_the_budget_of_failures(budget: dict[str, int], failing: int, ended: bool) -> None:
    run = journal("abcdef", **budget)
    run.fail(*"abcdef"[:failing])
    assert (run.starts() == []) == ended
    assert run.result is (Result.FAILED if ended else None)


@pytest.mark.parametrize(("limit", "failing", "ended"), [(0, 1, True), (1, 1, False), (1, 2, True)])
def test_the_budget_of_untouched_ones_is_another(limit: int, failing: int, ended: bool) -> None:
    run = journal("abcdef", max_untouched=limit)
    untouched(run, *"abcdef"[:failing])
    assert (run.result is Result.FAILED) == ended


def test_what_is_in_flight_is_finished_when_the_budget_is_spent() -> None:
    run = journal("abc", bake=60)
    run.fail("a")
    assert run.decide("b") == Decision()
    run.go("b")
    assert run.decide() == Decision(result=Result.FAILED)


def test_a_canary_or_a_whole_wave_that_fails_ends_it_whatever_the_budget() -> None:
    for fail in (Journal.fail, untouched):
        run = journal("a", "bc", canaries=1, **WIDE)
        fail(run, "a")
        assert run.result is Result.FAILED
    run = journal("ab", "c", **WIDE)
    run.fail("a")
    run.go("b", outcome=Outcome.SKIPPED)
    assert run.result is Result.FAILED
    run = journal("ab", "c", **WIDE)
    run.fail("a")
    run.go("b")
    run.baked(0)
    assert run.starts() == ["c"]


def test_trouble_in_a_bake_is_a_failure() -> None:
    run = journal("a", "b", bake=60, on_failure=ONE)
    run.go("a")
    run.say(Kind.BAKING, data={"wave": 0, "until": run.now + 60})
    run.say(Kind.FAILED, "a", step=Step.GATES, data={"what": "its head died"})
    assert run.decide() == Decision(start=(("a", BACK),))


# Locked ones.


def test_a_locked_one_is_tried_once_more_when_the_rest_has_ended() -> None:
    run = journal("abc", "d", parallel=2)
    locked(run, "a")
    assert run.starts() == ["b", "c"]
    run.go("b")
    assert run.starts("c") == []
    run.go("c")
    assert run.starts() == ["a"]
    locked(run, "a")
    assert run.result is Result.FAILED


def test_a_locked_one_that_is_free_then_is_no_failure() -> None:
    run = journal("ab", "c")
    locked(run, "a")
    run.go("b")
    run.go("a")
    run.baked(0)
    assert run.starts() == ["c"]


def test_a_locked_one_is_not_tried_again_once_it_is_over() -> None:
    run = journal("ab")
    locked(run, "a")
    run.fail("b")
    assert run.result is Result.FAILED
    run = journal("ab")
    locked(run, "a")
    run.ask("abort")
    assert run.starts() == []


# After failures.


def test_failed_ones_go_back_at_once_within_the_budget_and_then_it_goes_on() -> None:
    run = journal("ab", "c", on_failure=ONE, max_failures=1, parallel=1)
    run.fail("a")
    assert run.starts() == ["<a"]
    assert run.starts("a") == []
    run.go("a", direction=BACK)
    assert run.starts() == ["b"]
    run.go("b")
    run.baked(0)
    run.go("c")
    run.baked(1)
    assert run.result is Result.FAILED


def test_a_wave_waits_for_its_ways_back() -> None:
    run = journal("ab", "c", on_failure=ONE, max_failures=1)
    run.go("b")
    run.fail("a")
    assert run.decide("a") == Decision()


def test_only_failed_ones_go_back() -> None:
    run = journal("abcd", on_failure=ONE)
    run.go("a")
    untouched(run, "b")
    run.fail("c")
    assert run.starts() == ["<c"]
    run.go("c", direction=BACK)
    assert run.result is Result.FAILED


def test_all_go_back_once_the_budget_is_spent_the_newest_first() -> None:
    run = journal("abcdef", on_failure=ALL, max_failures=1, parallel=3)
    run.go("a")
    run.fail("b")
    run.go("c")
    assert run.starts() == ["d", "e", "f"], "not within the budget"
    run.fail("d")
    assert run.starts() == ["<d", "<c", "<b"]
    assert run.starts("d", "c", "b") == []
    run.go("d", "c", "b", direction=BACK)
    assert run.starts() == ["<a"]
    run.fail("a", direction=BACK)
    assert run.result is Result.FAILED


def test_inconclusive_ones_go_back_with_all_and_nobody_is_asked() -> None:
    run = journal("abc", on_failure=ALL, parallel=3)
    inconclusive(run, "a")
    assert run.starts("b") == []
    run.fail("b")
    assert run.starts() == ["<b", "<a"]


def test_a_way_back_that_fails_is_the_end_of_it_and_others_go_on() -> None:
    run = journal("abc", on_failure=ONE, max_failures=2)
    run.fail("a")
    run.fail("a", direction=BACK)
    assert run.starts() == ["b", "c"]


# Inconclusive gates.


def test_inconclusive_gates_pause_it_when_all_else_has_ended() -> None:
    run = journal("abc", bake=60)
    inconclusive(run, "a")
    assert run.decide("b") == Decision()
    run.go("b")
    assert run.decide() == Decision(pause="inconclusive gates: a")
    run.rest()
    assert run.decide().pause


def test_a_wave_of_inconclusive_ones_has_not_ended() -> None:
    run = journal("a", "b")
    inconclusive(run, "a")
    assert run.decide() == Decision(pause="inconclusive gates: a")


def test_a_resume_tries_the_gates_again_and_a_promotion_goes_past_them() -> None:
    for verb in ("", "promote"):
        run = journal("ab", parallel=1)
        inconclusive(run, "a")
        run.rest()
        if verb:
            run.ask(verb)
        run.resume()
        assert run.starts() == ["a"]
        assert (Step.GATES in run.way("a").outputs) == bool(verb)
        run.go("a")
        assert run.starts() == ["b"]


def test_inconclusive_ones_come_before_the_end_of_a_failed_rollout() -> None:
    run = journal("abc")
    inconclusive(run, "a")
    run.fail("b")
    assert run.decide() == Decision(pause="inconclusive gates: a")
    run.rest()
    run.resume()
    run.go("a")
    assert run.result is Result.FAILED


def test_failed_ones_go_back_before_a_person_is_waited_for() -> None:
    run = journal("abc", on_failure=ONE)
    inconclusive(run, "a")
    run.fail("b")
    assert run.starts() == ["<b"]


# What operators ask for.


def test_a_pause_lets_what_is_in_flight_finish() -> None:
    run = journal("abc", on_failure=ONE)
    run.ask("pause")
    assert run.decide("a") == Decision()
    run.fail("a")
    assert run.decide() == Decision(pause="asked by bo@ops-2")
    run.rest()
    run.resume()
    assert run.starts() == ["<a"]


def test_a_pause_in_a_bake_pauses_and_at_the_very_end_does_not() -> None:
    run = journal("a", "b", bake=60)
    run.go("a")
    run.ask("pause")
    assert run.decide().pause
    run = journal("a")
    run.ask("pause")
    run.go("a")
    assert run.decide() == Decision(baked=0)
    run.baked(0)
    assert run.decide() == Decision(result=Result.DONE)


def test_a_promotion_ends_a_bake_and_full_leaves_the_others_out() -> None:
    run = journal("a", "b", bake=60)
    run.go("a")
    run.say(Kind.BAKING, data={"wave": 0, "until": run.now + 60})
    run.ask("promote")
    assert run.decide() == Decision(baked=0)
    run.baked(0)
    run.go("b")
    assert run.decide() == Decision(bake=1)
    run.ask("promote", full=True)
    assert run.decide() == Decision(baked=1)


def test_an_abort_begins_nothing_and_ends_when_all_has_finished() -> None:
    run = journal("abc", bake=60)
    run.go("a")
    run.ask("abort")
    assert run.decide("b") == Decision()
    run.go("b")
    assert run.decide() == Decision(result=Result.ABORTED)
    assert run.cluster("c").forward is None


def test_an_abort_ends_a_pause_and_ways_back() -> None:
    run = journal("ab")
    inconclusive(run, "a")
    run.rest()
    run.ask("abort")
    run.resume()
    assert run.result is Result.ABORTED
    run = journal("abc", on_failure=ALL, parallel=1)
    run.go("a")
    run.fail("b")
    run.go("b", direction=BACK)
    assert run.starts() == ["<a"]
    run.ask("abort")
    assert run.result is Result.FAILED


def test_a_retry_goes_on_with_all_that_is_left() -> None:
    run = journal("a", "bc", canaries=1)
    run.fail("a")
    run.rest()
    run.ask("retry")
    run.resume()
    assert run.starts() == ["a"]
    run.go("a")
    run.baked(0)
    assert run.starts() == ["b", "c"]


def test_a_retry_of_one_is_done_though_others_have_spent_the_budget() -> None:
    run = journal("abcd", parallel=3)
    run.fail("a", "b")
    untouched(run, "c")
    run.rest()
    run.ask("retry", "a", "c")
    run.resume()
    assert run.starts() == ["a", "c"], "and not d"
    run.go("a", "c")
    assert run.result is Result.FAILED


def test_a_retry_after_an_abort_goes_on_with_those_that_were_not_begun() -> None:
    run = journal("ab", parallel=1)
    run.go("a")
    run.ask("abort")
    run.rest()
    run.ask("retry")
    run.resume()
    assert run.starts() == ["b"]


def test_a_retry_after_all_were_taken_back_begins_with_the_canary() -> None:
    run = journal("a", "bc", canaries=1, on_failure=ALL, bake=60, parallel=0)
    run.go("a")
    run.baked(0)
    run.go("b")
    run.fail("c")
    run.go("c", "b", "a", direction=BACK)
    run.rest()
    run.ask("retry")
    run.resume()
    assert run.starts() == ["a"]
    run.go("a")
    assert run.decide() == Decision(bake=0)
    run.baked(0)
    assert run.starts() == ["b", "c"]


def test_a_failure_that_is_left_out_does_not_count() -> None:
    run = journal("abc", "d", parallel=1)
    run.fail("a")
    assert run.result is Result.FAILED
    run.ask("skip", "a")
    assert run.starts() == ["b"]
    run.go("b", "c")
    run.baked(0)
    run.go("d")
    run.baked(1)
    assert run.result is Result.DONE


def test_the_next_takes_the_place_of_a_canary_that_was_left_out() -> None:
    run = journal("a", "bcd", canaries=1, **WIDE)
    run.go("a", outcome=Outcome.SKIPPED)
    run.baked(0)
    assert run.starts() == ["b"], "alone"
    run.go("b", killed=Step.STOP)
    assert run.starts() == ["b"], "after a kill too"
    assert run.starts("b") == []
    run.go("b")
    assert run.starts() == ["c", "d"]
    run = journal("a", "bcd", canaries=1, **WIDE)
    run.go("a", outcome=Outcome.SKIPPED)
    run.baked(0)
    run.fail("b")
    assert run.result is Result.FAILED, "it failed as a canary does"


def test_a_canary_that_was_taken_back_is_none() -> None:
    run = journal("a", "bcd", canaries=1, **WIDE)
    run.go("a")
    run.baked(0)
    run.ask("rollback", "a")
    assert run.starts() == ["<a"]
    run.go("a", direction=BACK)
    assert run.starts() == ["b"]


def test_a_rollback_of_all_takes_back_what_was_changed_and_ends() -> None:
    run = journal("abcd", parallel=2)
    run.go("a")
    run.ask("rollback")
    assert run.starts("b") == ["<a"]
    run.go("a", direction=BACK)
    run.go("b")
    assert run.starts() == ["<b"]
    run.go("b", direction=BACK)
    assert run.result is Result.ABORTED


def test_a_rollback_opens_a_rollout_that_is_finished() -> None:
    run = journal("ab")
    run.go("a", "b")
    run.baked(0)
    run.rest()
    run.ask("rollback", "b")
    run.resume()
    assert run.starts() == ["<b"]
    run.go("b", direction=BACK)
    assert run.result is Result.ABORTED


def test_one_that_is_taken_back_makes_no_result_that_is_done() -> None:
    run = journal("ab")
    run.go("a")
    run.ask("rollback", "a")
    run.go("a", direction=BACK)
    run.go("b")
    run.baked(0)
    assert run.result is Result.ABORTED
    run.ask("skip", "a")
    assert run.result is Result.DONE


def test_one_that_failed_and_was_taken_back_still_is_a_failure() -> None:
    run = journal("ab")
    run.fail("a")
    run.rest()
    run.ask("rollback")
    run.resume()
    assert run.starts() == ["<a"]
    run.go("a", direction=BACK)
    assert run.result is Result.FAILED


def test_an_inconclusive_one_can_be_taken_back() -> None:
    run = journal("ab")
    inconclusive(run, "a")
    run.rest()
    run.ask("rollback", "a")
    run.resume()
    assert run.starts() == ["<a"]
    run.go("a", direction=BACK)
    assert run.result is Result.ABORTED, "b is not begun: nobody knows whether the change is good"

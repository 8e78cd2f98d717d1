"""What a state means to people: standings, failures, jobs, times."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.model import Direction, Settings, Step, Wave
from rayfleet.rollout.state import Outcome
from rayfleet.rollout.tell.facts import Standing, cluster_seconds, failures, standing, summary
from rayfleet.rollout.tell.jobs import KILLED, OPEN, STILL_RUNNING, job_fates
from rayfleet.rollout.tell.pace import rest_seconds
from tests.support.rollout_examples import (
    BEGUN,
    Story,
    failing_canary,
    four_good,
    killed_and_resumed,
    make_job,
    make_plan,
    make_target,
)


def two(*, settings: Settings | None = None) -> Story:
    """A story of two clusters in one wave, each with a job."""
    targets = [make_target(name, [make_job(f"train-{name}")]) for name in ("a", "b")]
    return Story(make_plan([Wave(name="1", clusters=("a", "b"))], targets, settings=settings))


def test_a_cluster_stands_where_its_last_way_has_led() -> None:
    example = failing_canary()
    state = example.state
    assert [standing(each) for each in state.clusters.values()] == [
        Standing.ROLLED_BACK,
        Standing.WAITING,
        Standing.WAITING,
    ]
    assert summary(state) == "1 rolled back, 2 not begun"
    half = example.until(len(example.records) - 8).state
    assert standing(half.clusters["us-east5"]) is Standing.ROLLING_BACK


def test_a_wish_to_roll_back_changes_nothing_until_it_begins() -> None:
    story = two()
    story.begin()
    at = story.run(1, "a", fails=Step.START)
    asked = {"verb": "rollback", "clusters": ["a"], "by": "bob@laptop"}
    story.say(at + 1, Kind.REQUEST, data=asked)
    assert standing(story.example().state.clusters["a"]) is Standing.FAILED
    story.run(at + 2, "a", direction=Direction.BACK, fails=Step.START)
    assert standing(story.example().state.clusters["a"]) is Standing.NOT_ROLLED_BACK


def test_a_failure_names_cause_and_next_command_and_hides_secrets() -> None:
    story = two()
    story.begin()
    error = {"what": "the head refuses", "why": "AUTH_TOKEN=0123456789ab", "next": "invoke x"}
    at = story.run(1, "b", fails=Step.GATES, error=error)
    watch = {"jobs": [], "lost": ["train-a"], "next": "invoke jobs.restore --cluster a"}
    story.run(at, "a", outputs={Step.WATCH: watch}, outcome=Outcome.WITHOUT_JOBS)
    example = story.example()
    first, second = failures(example.plan, example.state)
    assert (first.cluster, first.what, first.why) == ("a", "1 job not given back", "train-a")
    assert first.next == "invoke jobs.restore --cluster a"
    assert (second.step, second.what) == (Step.GATES, "the head refuses")
    assert (second.why, second.next) == ("AUTH_TOKEN=***", "invoke x")


def test_a_failure_without_a_next_command_gets_one() -> None:
    story = two()
    story.begin()
    story.run(1, "a", fails=Step.STOP, error={"what": "it is odd"})
    example = story.example()
    (failure,) = failures(example.plan, example.state)
    assert failure.next == f"invoke rollouts.show {example.plan.id}"


def test_every_job_has_an_outcome() -> None:
    example = four_good()
    fates = {fate.job: (fate.outcome, fate.lost) for fate in job_fates(example.plan, example.state)}
    assert fates == {
        "train-llama-8b": ("restored", False),
        "eval-mmlu": ("restored", False),
        "tokenize-c4": ("restored", False),
        "sweep-17": ("ended by itself", False),
    }


def test_jobs_of_clusters_that_were_never_stopped_still_run() -> None:
    story = two()
    story.begin()
    story.run(1, "a", fails=Step.VERIFY)
    outcomes = {fate.job: fate.outcome for fate in job_fates(story.plan, story.example().state)}
    assert outcomes == {"train-a": STILL_RUNNING, "train-b": STILL_RUNNING}


def test_a_job_in_the_vault_of_a_failed_cluster_is_open_and_one_that_was_killed_is_lost() -> None:
    story = two()
    story.begin()
    story.run(1, "a", fails=Step.START)
    (fate, _) = job_fates(story.plan, story.example().state)
    assert (fate.outcome, fate.lost) == (OPEN, True)
    story = two(settings=Settings(preserve_jobs=False))
    story.begin()
    story.run(1, "a")
    (fate, _) = job_fates(story.plan, story.example().state)
    assert (fate.outcome, fate.lost) == (KILLED, True)


def test_a_job_that_began_after_the_plan_is_listed_too() -> None:
    story = two()
    rows = [{"job": "late", "owner": "bob", "outcome": "restored", "reason": ""}]
    story.begin()
    story.run(1, "a", outputs={Step.WATCH: {"jobs": rows, "lost": []}})
    late = next(f for f in job_fates(story.plan, story.example().state) if f.job == "late")
    assert (late.before, late.outcome, late.owner) == ("began later", "restored", "bob")


def test_outputs_of_an_unknown_shape_are_no_reason_to_fail() -> None:
    story = two()
    story.begin()
    odd = {
        Step.QUIESCE: {"owed": [], "ended": ["x"]},
        Step.JOBS: {"jobs": "many"},
        Step.WATCH: {"jobs": [1, {"job": "y"}], "lost": None},
    }
    story.run(1, "a", outputs=odd)
    assert len(job_fates(story.plan, story.example().state)) == 2


def test_the_time_of_a_cluster_has_its_breaks_in_it() -> None:
    example = killed_and_resumed()
    clusters = example.state.clusters
    at = example.records[-1].at
    took = {name: cluster_seconds(cluster, at) or 0 for name, cluster in clusters.items()}
    assert took["us-central2"] < 200 < 50_000 < took["us-east5"]
    fresh = example.until(1).state.clusters["us-central2"]
    assert cluster_seconds(fresh, at) is None


def test_the_rest_gets_shorter_and_ends_at_nothing() -> None:
    example = four_good()
    rests = []
    for number in range(1, len(example.records) + 1):
        part = example.until(number)
        rest = rest_seconds(part.plan, part.state, part.records[-1].at)
        rests.append(rest if rest is not None else -1.0)
    assert rests[0] == 540.0
    assert rests[-1] == 0.0
    assert all(later <= earlier + 0.01 for earlier, later in pairwise(rests))


def test_without_any_estimate_the_rest_is_known_once_a_cluster_is_done() -> None:
    story = two(settings=Settings(parallel=1))
    targets = {name: replace(t, estimate=None) for name, t in story.plan.targets.items()}
    story.plan = replace(story.plan, targets=targets, estimate=None)
    story.begin()
    now = BEGUN + timedelta(seconds=500)
    assert rest_seconds(story.plan, story.example().state, now) is None
    ended = story.run(0, "a")
    rest = rest_seconds(story.plan, story.example().state, now)
    assert rest is not None
    assert abs(rest - ended) < 1

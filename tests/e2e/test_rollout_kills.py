"""The operator of one rollout is killed at the steps of a cluster that has jobs; each time another
one resumes. `make test-deep` kills it at each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from rayfleet.rollout.model import Step
from rayfleet.waiting import wait_until
from tests.support.depth import DEEP
from tests.support.rollout_jobs import RolloutJobs
from tests.support.rollouts import Event, HeadWatch, Operator, head_watch, journal, latest, preempt
from tests.support.sandbox import Ran, SandboxCli

CLUSTER = "europe-west4"
# The event at which it is killed; NOTE of quiesce: it is just about to stop the jobs.
# At each step of the rehearsed clusters: tests/integration/rollout/test_kills.py.
DAILY = (Step.QUIESCE, Step.START, Step.GATES, Step.JOBS)
KILLS = tuple(
    (kind, step)
    for kind, step in (
        ("intent", Step.SNAPSHOT),
        ("intent", Step.VERIFY),
        ("note", Step.QUIESCE),
        ("intent", Step.START),
        ("intent", Step.GATES),
        ("intent", Step.PACKAGES),
        ("intent", Step.JOBS),
        ("intent", Step.WATCH),
    )
    if DEEP or step in DAILY
)
HEAD_SECONDS = 60.0
NOTHING = Ran(-1, "", "")


@dataclass
class Story:
    """What was seen on the way."""

    cli: SandboxCli
    jobs: RolloutJobs
    rollout: str = ""
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    refused: Ran = NOTHING
    interrupted: Ran = NOTHING
    finished: Ran = NOTHING
    records: list[Event] = field(default_factory=list)
    watch: HeadWatch | None = None

    def roll(self) -> None:
        """One rollout; who carries it out is killed again and again."""
        command = ("restart", "--cluster", CLUSTER, "--yes")
        for kind, step in KILLS:
            with Operator(self.cli, *command) as operator:
                self.kill_at(operator, kind, step)
            self.rollout = self.rollout or latest(self.cli, CLUSTER)
            command = ("rollouts.resume", self.rollout)
            if step is Step.QUIESCE:
                self.refused = self.cli("stop", "--cluster", CLUSTER, "--yes")
                self.stop_by_two_ctrl_c()
        with Operator(self.cli, *command) as operator:
            operator.until("intent", step=Step.CLOSE)
            preempt(self.cli, CLUSTER)
            self.finished = operator.end()

    def kill_at(self, operator: Operator, kind: str, step: Step) -> None:
        """SIGKILL at an event; during the start, in the middle of `ray up`."""
        operator.until(kind, step=step)
        if step is Step.START:
            wait_until(
                lambda: self.watch is not None and self.watch.made.get(CLUSTER),
                what="the new head",
                timeout=HEAD_SECONDS,
                interval=0.1,
            )
        operator.kill()

    def stop_by_two_ctrl_c(self) -> None:
        """The first one asks for a pause, the second one ends it in the middle of the stop."""
        with Operator(self.cli, "rollouts.resume", self.rollout) as operator:
            operator.until("intent", step=Step.STOP)
            operator.interrupt()
            operator.until("request", verb="pause")
            preempt(self.cli, CLUSTER)
            operator.interrupt()
            self.interrupted = operator.end()


@pytest.fixture(scope="module")
def story(released: SandboxCli) -> Iterator[Story]:
    """The whole of it, once."""
    jobs = RolloutJobs(released, "kills")
    jobs.begin(CLUSTER)
    told = Story(cli=released, jobs=jobs, before=jobs.submitted(CLUSTER))
    told.starts = jobs.after_one_more_life(CLUSTER)
    with head_watch(released) as told.watch:
        told.roll()
        told.after = jobs.alive(CLUSTER, starts=told.starts)
        told.records = journal(released, told.rollout)
        yield told


def test_rollout_ends_well_although_its_operator_was_killed_again_and_again(story: Story) -> None:
    assert story.finished.code == 0, story.finished.err
    assert story.records[-1]["kind"] == "finished"
    assert story.records[-1]["data"]["result"] == "done"
    begun = [each for each in story.records if each["kind"] == "begun"]
    assert len(begun) == len(KILLS) + 2
    seen = story.cli.status()[CLUSTER]
    assert (seen["state"], seen["config_current"]) == ("healthy", True)


def test_the_head_was_replaced_once_and_every_step_done_once(story: Story) -> None:
    assert story.watch is not None
    assert len(story.watch.made[CLUSTER]) == 1
    done = Counter(each["step"] for each in story.records if each["kind"] == "done")
    assert done == dict.fromkeys(Step, 1)


def test_every_job_runs_again_once_with_all_its_fields(story: Story) -> None:
    assert story.after == story.before
    assert story.jobs.starts(CLUSTER) == story.starts


def test_cluster_of_a_killed_operator_is_not_taken_by_others(story: Story) -> None:
    assert story.refused.code == 5, story.refused.err
    assert f"invoke rollouts.resume {story.rollout}" in story.refused.err


def test_second_ctrl_c_ends_the_run_at_once_and_says_how_to_go_on(story: Story) -> None:
    assert story.interrupted.code == 130, story.interrupted.err
    assert f"invoke rollouts.resume {story.rollout}" in story.interrupted.err

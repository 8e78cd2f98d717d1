"""A rollout dies right before its stop, its cluster goes on, and users go on using it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rayfleet.rollout.model import Step
from tests.support import job_matrix as matrix
from tests.support.job_matrix import RUNNING
from tests.support.rollout_jobs import RolloutJobs
from tests.support.rollouts import Operator, journal, latest
from tests.support.sandbox import Ran, SandboxCli
from tests.support.sandbox_head import SandboxHead

CLUSTER = "us-east5"
LATE = replace(RUNNING, name=f"{CLUSTER}-late")


@dataclass
class Story:
    """What was seen on the way. ``refused``: commands while a rollout has the cluster, on its own
    machine; ``elsewhere``: the same where only the mark on the head tells."""

    cli: SandboxCli
    jobs: RolloutJobs
    rollout: str = ""
    refused: dict[str, Ran] = field(default_factory=dict)
    elsewhere: dict[str, Ran] = field(default_factory=dict)
    resumed: Ran | None = None
    late_runs: int = 0
    after: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)

    def attempts(self) -> dict[str, Ran]:
        """What others may try."""
        return {
            "submit": self.cli("jobs.submit", "--cluster", CLUSTER, "true", "--no-wait"),
            "stop": self.cli("stop", "--cluster", CLUSTER, "--yes"),
            "restore": self.cli("jobs.restore", "--cluster", CLUSTER),
        }

    def tell(self) -> None:
        """The operator dies, a job comes through Ray itself, another operator resumes."""
        with Operator(self.cli, "restart", "--cluster", CLUSTER, "--yes") as operator:
            operator.until("intent", step=Step.STOP)
            operator.kill()
        self.rollout = latest(self.cli, CLUSTER)
        self.refused = self.attempts()
        leases = self.cli.state / "leases"
        leases.rename(leases.with_name("hidden"))
        try:
            self.elsewhere = self.attempts()
        finally:
            leases.with_name("hidden").rename(leases)
        head = SandboxHead(self.cli, CLUSTER)
        head.shell(f"rm -f {matrix.BUCKET}/runs/{LATE.name}")
        matrix.submit(head, [LATE])
        matrix.wait_for(head, [LATE], lines={LATE.name: 1})
        self.resumed = self.cli("rollouts.resume", self.rollout)
        self.after = self.jobs.alive(CLUSTER, starts=self.starts)
        head = SandboxHead(self.cli, CLUSTER)
        matrix.wait_for(head, [LATE], lines={LATE.name: 2})
        self.late_runs = len(matrix.runs(head).get(LATE.name, ()))


@pytest.fixture(scope="module")
def story(released: SandboxCli) -> Iterator[Story]:
    """The whole of it, once."""
    jobs = RolloutJobs(released, "late-jobs")
    jobs.begin(CLUSTER)
    told = Story(cli=released, jobs=jobs, before=jobs.submitted(CLUSTER))
    told.starts = jobs.after_one_more_life(CLUSTER)
    told.tell()
    yield told
    SandboxHead(released, CLUSTER).stop(LATE.name)


def test_the_job_that_came_while_nobody_carried_it_out_runs_again_once(story: Story) -> None:
    assert story.resumed is not None
    assert story.resumed.code == 0, story.resumed.err
    assert story.late_runs == 2
    assert (story.after, story.jobs.starts(CLUSTER)) == (story.before, story.starts)
    (stop,) = (
        each
        for each in journal(story.cli, story.rollout)
        if (each["kind"], each.get("step")) == ("done", "stop")
    )
    assert LATE.name in stop["data"]["owed"][-1]["jobs"]


def test_others_are_refused_as_long_as_the_rollout_has_the_cluster(story: Story) -> None:
    for what, ran in story.refused.items():
        assert ran.code == 5, (what, ran.err)
        assert f"invoke rollouts.resume {story.rollout}" in ran.err


def test_the_mark_on_the_head_tells_those_of_other_machines(story: Story) -> None:
    for what, ran in story.elsewhere.items():
        assert ran.code == 5, (what, ran.err)
        assert story.rollout in ran.err
        assert f"invoke rollouts.unlock --cluster {CLUSTER}" in ran.err

"""A rollout that meets a registry that is down, an image on which Ray does not start, and a head
that dies, twice: each ends as documented, and no job is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.rollout_images import BAD, pinned_variant
from tests.support.rollout_jobs import RolloutJobs
from tests.support.rollouts import (
    Event,
    HeadWatch,
    Operator,
    folder_of,
    head_watch,
    journal,
    latest,
)
from tests.support.sandbox import Ran, SandboxCli
from tests.support.sandbox_head import SandboxHead

CANARY = "us-central2-staging"
VICTIM = "us-east5"
NOTHING = Ran(-1, "", "")


@dataclass
class Story:
    """One fault: what came of it. ``before`` and ``after`` are what jobs were submitted with,
    ``starts`` how often each must have started in the end."""

    cli: SandboxCli
    jobs: RolloutJobs
    rollout: str = ""
    ran: Ran = NOTHING
    again: Ran = NOTHING
    heads: dict[str, str] = field(default_factory=dict)
    heads_after: dict[str, str] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    records: list[Event] = field(default_factory=list)
    watch: HeadWatch | None = None
    killed: datetime | None = None
    in_hand: dict[str, Any] = field(default_factory=dict)

    def take_in(self, rollout: str) -> None:
        """Read what the rollout has left."""
        self.rollout = rollout
        self.records = journal(self.cli, rollout)

    def done(self, cluster: str, direction: str = "forward") -> list[str]:
        """The steps that a cluster has done in one direction."""
        return [
            each["step"]
            for each in self.records
            if (each["kind"], each.get("cluster")) == ("done", cluster)
            and each["direction"] == direction
        ]


def heads_of(cli: SandboxCli) -> dict[str, str]:
    """The head of every cluster."""
    return {row.cluster: row.name for row in cli.engine.rows() if row.role == "head"}


def test_registry_that_is_down_leaves_the_cluster_untouched(released: SandboxCli) -> None:
    jobs = RolloutJobs(released, "registry")
    jobs.begin(VICTIM)
    starts, heads = jobs.starts(VICTIM), heads_of(released)
    name = f"rf-{released.place.id}-registry-{VICTIM}"
    released.engine.client.containers.get(name).stop(timeout=1)
    try:
        ran = released("restart", "--cluster", VICTIM, "--yes")
    finally:
        released("sandbox.up").must()
    assert ran.code == 4, ran.err
    assert f"{VICTIM}: preflight: " in ran.err
    assert "untouched" in ran.err
    assert "invoke rollouts.retry" in ran.err
    assert heads_of(released) == heads
    assert jobs.starts(VICTIM) == starts
    # It holds nothing any more: whoever comes next may change the cluster.
    assert released("start", "--cluster", VICTIM).must().code == 0


@pytest.fixture(scope="module")
def bad_image(released: SandboxCli) -> Iterator[Story]:
    """A rollout of everything onto an image on which Ray does not start."""
    jobs = RolloutJobs(released, "bad-image")
    jobs.begin(CANARY)
    told = Story(cli=released, jobs=jobs, heads=heads_of(released), before=jobs.submitted(CANARY))
    told.starts = jobs.after_one_more_life(CANARY)
    restart = ("restart", "--all", "--only-outdated", "--on-failure", "rollback-failed")
    with pinned_variant(released, "bad", BAD), head_watch(released) as told.watch:
        told.ran = released(*restart, "--yes")
        told.take_in(latest(released, CANARY))
        told.heads_after = heads_of(released)
        told.after = jobs.alive(CANARY, starts=told.starts)
        released("image.rollback", "--yes").must()
        released("update-configs").must()
        told.again = released("restart", "--all", "--only-outdated", "--yes", "--json")
        yield told


def test_bad_image_stops_at_the_canary(bad_image: Story) -> None:
    assert bad_image.ran.code == 2, bad_image.ran.err
    for word in (f"{CANARY}: start: ", "ray bad does not start", "rolled back", "not touched: "):
        assert word in bad_image.ran.err, bad_image.ran.err
    assert {each.get("cluster", CANARY) for each in bad_image.records} == {CANARY}
    others = bad_image.heads.keys() - {CANARY}
    assert len(others) == 3
    assert {name: bad_image.heads_after[name] for name in others} == {
        name: bad_image.heads[name] for name in others
    }
    assert bad_image.records[-1]["kind"] == "finished"
    assert bad_image.records[-1]["data"]["result"] == "failed"


def test_canary_is_rolled_back_to_what_it_ran(bad_image: Story) -> None:
    assert bad_image.heads_after[CANARY] != bad_image.heads[CANARY]
    assert bad_image.done(CANARY, "back")[-4:] == ["packages", "jobs", "watch", "close"]
    # Nothing is outdated once the pin is what it was: image and config are the former ones.
    assert bad_image.again.code == 0, bad_image.again.err
    assert json.loads(bad_image.again.out.splitlines()[-1])["clusters"] == {}
    assert bad_image.cli.status()[CANARY]["state"] == "healthy"


def test_jobs_of_the_canary_come_back_once(bad_image: Story) -> None:
    assert bad_image.after == bad_image.before
    assert bad_image.jobs.starts(CANARY) == bad_image.starts


def test_report_of_a_failed_rollout_names_the_cause_and_the_next_command(bad_image: Story) -> None:
    text = (folder_of(bad_image.cli, bad_image.rollout) / "report.txt").read_text()
    assert "ray bad does not start" in text
    # The way back has a log of its own, so that this one is still there.
    (log,) = re.findall(r"read (\S+-ray-up-failed\.log)", text)
    assert "ray bad does not start" in Path(log).read_text()
    assert f"invoke rollouts.retry {bad_image.rollout}" in bad_image.ran.err


@pytest.fixture(scope="module")
def dying_heads(released: SandboxCli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The head dies while its jobs are asked to end, and the next one in its gates."""
    fleet = tmp_path_factory.mktemp("fleet") / "sandbox.yaml"
    shipped = (released.root / "infra" / "sandbox.yaml").read_text()
    hasty, count = re.subn(r"(?m)^  gates:$", "  gates:\n    ssh: {timeout: 10s}", shipped)
    assert count == 1
    fleet.write_text(hasty)
    cli = SandboxCli(released.state, environment={"INVOKE_FLEET": str(fleet)})
    jobs = RolloutJobs(cli, "dying-heads")
    jobs.begin(VICTIM)
    told = Story(cli=cli, jobs=jobs, heads=heads_of(cli), before=jobs.submitted(VICTIM))
    told.starts = jobs.after_one_more_life(VICTIM)
    with head_watch(cli) as told.watch:
        with Operator(cli, "restart", "--cluster", VICTIM, "--yes") as operator:
            operator.until("note", step="quiesce")
            with operator.still():
                SandboxHead(cli, VICTIM).kill()
                told.killed = datetime.now(UTC)
                told.in_hand = cli.status()[VICTIM]
            operator.until("intent", step="gates")
            SandboxHead(cli, VICTIM).kill()
            told.ran = operator.end()
        told.again = cli("rollouts.retry", "--json")
        told.take_in(latest(cli, VICTIM))
        told.after = jobs.alive(VICTIM, starts=told.starts)
        told.heads_after = heads_of(cli)
        yield told


def test_head_that_dies_when_its_jobs_are_saved_is_replaced_all_the_same(
    dying_heads: Story,
) -> None:
    quiesce = [each for each in dying_heads.records if each.get("step") == "quiesce"]
    assert [each["kind"] for each in quiesce] == ["intent", "note", "done"]
    assert dying_heads.killed is not None
    # On a busy machine it may have been through before it was held still.
    late = datetime.fromisoformat(quiesce[-1]["at"]) < dying_heads.killed
    assert late or "problem" in quiesce[-1]["data"]


def test_status_says_who_changes_a_cluster_and_not_what_is_wrong_with_it_meanwhile(
    dying_heads: Story,
) -> None:
    assert dying_heads.in_hand["state"] == "restarting"
    assert dying_heads.in_hand["rollout"]["rollout"] == dying_heads.rollout
    assert dying_heads.in_hand["rollout"]["step"] == "quiesce"
    assert dying_heads.in_hand["findings"] == []


def test_head_that_dies_in_its_gates_fails_and_is_started_again_by_a_retry(
    dying_heads: Story,
) -> None:
    assert dying_heads.ran.code == 2, dying_heads.ran.err
    assert f"{VICTIM}: gates: " in dying_heads.ran.err
    assert f"invoke rollouts.retry {dying_heads.rollout}" in dying_heads.ran.err
    assert dying_heads.again.code == 0, dying_heads.again.err
    assert dying_heads.watch is not None
    assert len(dying_heads.watch.made[VICTIM]) == 2
    summary = json.loads(dying_heads.again.out.splitlines()[-1])
    assert summary["clusters"][VICTIM]["outcome"] == "done"


def test_jobs_outlive_two_heads_and_run_once(dying_heads: Story) -> None:
    assert dying_heads.after == dying_heads.before
    assert dying_heads.jobs.starts(VICTIM) == dying_heads.starts

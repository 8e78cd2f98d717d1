"""A staged rollout of four clusters onto a new image, with jobs on each and with people about:
a second operator, Ctrl-C, a pause from another terminal, workers that are preempted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rayfleet.waiting import wait_until
from tests.support.rollout_images import GOOD, pinned_variant
from tests.support.rollout_jobs import RolloutJobs
from tests.support.rollouts import (
    Event,
    HeadWatch,
    Operator,
    folder_of,
    head_watch,
    journal,
    latest,
    preempt,
)
from tests.support.sandbox import Ran, SandboxCli

CANARY = "us-central2-staging"
REST = ("us-central2", "europe-west4", "us-east5")
CLUSTERS = (CANARY, *REST)
NOTHING = Ran(-1, "", "")
# In which step each cluster loses its worker: once before it is stopped, once after it started.
PREEMPTED = {
    CANARY: ("preflight", "gates"),
    "us-central2": ("snapshot", "packages"),
    "europe-west4": ("verify", "jobs"),
    "us-east5": ("quiesce", "watch"),
}
WORKER_SECONDS = 120.0


@dataclass
class Story:
    """What was seen on the way, in its order."""

    cli: SandboxCli
    jobs: RolloutJobs
    rollout: str = ""
    digest: str = ""
    plan: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    second_operator: Ran = NOTHING
    start_meanwhile: Ran = NOTHING
    interrupted: Ran = NOTHING
    paused: Ran = NOTHING
    finished: Ran = NOTHING
    events: list[Event] = field(default_factory=list)
    preempted: dict[tuple[str, str], str] = field(default_factory=dict)
    records: list[Event] = field(default_factory=list)
    after: dict[str, Any] = field(default_factory=dict)
    again: Ran = NOTHING
    watch: HeadWatch | None = None

    def roll(self) -> None:
        """The canary, with Ctrl-C meanwhile; two of the rest, and a pause; then the last one."""
        restart = ("restart", "--all", "--only-outdated", "--waves", "100%")
        self.plan = self.cli(*restart, "--dry-run", "--json").must().json()
        with Operator(self.cli, *restart, "--yes") as first:
            self.lose_workers(first, until=[("start", CANARY)])
            self.rollout = latest(self.cli, CANARY)
            self.second_operator = self.cli("restart", "--cluster", CANARY, "--yes")
            self.start_meanwhile = self.cli("start", "--cluster", CANARY)
            first.interrupt()
            self.lose_workers(first)
            self.interrupted = first.end()
        with Operator(self.cli, "rollouts.resume") as second:
            self.lose_workers(second, until=[("quiesce", name) for name in self.next_two(second)])
            self.cli("rollouts.pause", self.rollout).must()
            self.lose_workers(second)
            self.paused = second.end()
        with Operator(self.cli, "rollouts.promote", self.rollout) as third:
            self.lose_workers(third)
            self.finished = third.end()

    def next_two(self, operator: Operator) -> list[str]:
        """The first two clusters that are begun."""
        names: list[str] = []
        for event in operator.follow():
            if event["kind"] == "held":
                names.append(event["cluster"])
            if len(names) == 2:
                return names
        raise AssertionError(f"two were to be begun:\n{operator.said}")

    def lose_workers(self, operator: Operator, until: Sequence[tuple[str, str]] = ()) -> None:
        """Take workers away where PREEMPTED says so, to the end, or until all of ``until`` have
        begun."""
        left = set(until)
        for event in operator.follow():
            if event["kind"] != "intent":
                continue
            key = event["cluster"], event["step"]
            if event["step"] in PREEMPTED[event["cluster"]] and key not in self.preempted:
                self.preempted[key] = self.lose_worker(*key)
            left.discard((event["step"], event["cluster"]))
            if until and not left:
                return
        assert not left, f"{left} were to come:\n{operator.said}"

    def lose_worker(self, cluster: str, step: str) -> str:
        """Take its worker; during the gates wait until the new head has one."""
        if step != "gates":
            return preempt(self.cli, cluster)
        return wait_until(
            lambda: preempt(self.cli, cluster),
            what=f"a worker of {cluster}",
            timeout=WORKER_SECONDS,
            interval=0.2,
        )


@pytest.fixture(scope="module")
def story(released: SandboxCli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The whole of it, once. Only the canary has a place in the order here, so that the other
    three make one wave."""
    fleet = tmp_path_factory.mktemp("fleet") / "sandbox.yaml"
    shipped = (released.root / "infra" / "sandbox.yaml").read_text()
    ordered, count = re.subn(r"(?m)^  order: .*$", f"  order: [{CANARY}]", shipped)
    assert count == 1
    fleet.write_text(ordered)
    cli = SandboxCli(released.state, environment={"INVOKE_FLEET": str(fleet)})
    told = Story(cli=cli, jobs=RolloutJobs(cli, "staged"))
    told.jobs.begin(*CLUSTERS)
    told.before = told.jobs.submitted(*CLUSTERS)
    told.starts = told.jobs.after_one_more_life(*CLUSTERS)
    with pinned_variant(cli, "new", GOOD) as told.digest, head_watch(cli) as told.watch:
        told.roll()
        told.after = told.jobs.alive(*CLUSTERS, starts=told.starts)
        told.records = journal(cli, told.rollout)
        told.again = cli("restart", "--all", "--only-outdated", "--yes", "--json")
        yield told


def test_plan_names_canary_waves_changes_and_jobs(story: Story) -> None:
    waves = [(wave["clusters"], wave["canary"]) for wave in story.plan["waves"]]
    assert waves[0] == ([CANARY], True)
    assert sorted(waves[1][0]) == sorted(REST)
    assert len(waves) == 2
    for name in CLUSTERS:
        target = story.plan["targets"][name]
        assert target["digest_wanted"] == story.digest
        planned = {job["id"] for job in target["jobs"]}
        assert planned >= {kind.name for kind in story.jobs.kinds(name)}


def test_every_cluster_runs_the_new_image(story: Story) -> None:
    assert story.finished.code == 0, story.finished.err
    seen = story.cli.status()
    assert {entry["image_digest"] for entry in seen.values()} == {story.digest}
    assert {entry["config_current"] for entry in seen.values()} == {True}


def test_canary_came_first_and_the_rest_two_at_a_time(story: Story) -> None:
    begun, ended = _first(story, "held"), _last(story, "cluster")
    assert all(begun[name] > ended[CANARY] for name in REST)
    baked = [each["number"] for each in story.records if each["kind"] == "baked"]
    assert ended[CANARY] < baked[0] < min(begun[name] for name in REST)
    flying: set[str] = set()
    most = 0
    for record in story.records:
        if record["kind"] == "held":
            flying.add(record["cluster"])
        elif record["kind"] == "cluster":
            flying.discard(record["cluster"])
        most = max(most, len(flying))
    assert most == 2


def test_every_head_was_replaced_once_and_every_step_done_once(story: Story) -> None:
    assert story.watch is not None
    assert {name: len(story.watch.made.get(name, ())) for name in CLUSTERS} == dict.fromkeys(
        CLUSTERS, 1
    )
    done = [(each["cluster"], each["step"]) for each in story.records if each["kind"] == "done"]
    assert len(done) == len(set(done)) == 12 * len(CLUSTERS)


def test_every_job_runs_again_once_with_all_its_fields(story: Story) -> None:
    assert story.after == story.before
    assert story.jobs.starts(*CLUSTERS) == story.starts


def test_workers_that_were_preempted_on_the_way_changed_nothing(story: Story) -> None:
    assert set(story.preempted) == {
        (name, step) for name, steps in PREEMPTED.items() for step in steps
    }
    assert all(story.preempted.values()), story.preempted


def test_second_operator_is_refused_and_told_whose_it_is(story: Story) -> None:
    for ran in (story.second_operator, story.start_meanwhile):
        assert ran.code == 5, ran.err
        assert story.rollout in ran.err
        assert "invoke rollouts.show" in ran.err


def test_ctrl_c_finishes_the_cluster_in_hand_and_pauses(story: Story) -> None:
    assert story.interrupted.code == 130, story.interrupted.err
    assert f"invoke rollouts.resume {story.rollout}" in story.interrupted.err
    paused = [each for each in story.records if each["kind"] == "paused"]
    assert "Ctrl-C" in paused[0]["data"]["reason"]
    before = [each for each in story.records if each["number"] < paused[0]["number"]]
    assert {each["cluster"] for each in before if each["kind"] == "cluster"} == {CANARY}
    assert {each.get("cluster", CANARY) for each in before} == {CANARY}


def test_pause_from_another_terminal_finishes_what_is_in_hand(story: Story) -> None:
    assert story.paused.code == 6, story.paused.err
    assert "invoke rollouts.resume" in story.paused.err
    number = [each["number"] for each in story.records if each["kind"] == "paused"][1]
    ended = [name for name, at in _last(story, "cluster").items() if at < number]
    begun = [name for name, at in _first(story, "held").items() if at < number]
    assert sorted(ended) == sorted(begun)
    assert len(begun) == 3


def test_second_restart_touches_nothing(story: Story) -> None:
    assert story.again.code == 0, story.again.err
    assert story.again.json()["clusters"] == {}
    assert story.watch is not None
    assert sum(map(len, story.watch.made.values())) == len(CLUSTERS)


def test_report_tells_of_every_cluster_and_needs_no_network(story: Story) -> None:
    folder = folder_of(story.cli, story.rollout)
    page = (folder / "report.html").read_text()
    text = (folder / "report.txt").read_text()
    for name in CLUSTERS:
        assert name in page
        assert name in text
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)
    assert _modes(folder) == {0o600}


def test_rollout_is_listed_and_shown(story: Story) -> None:
    listed = story.cli("rollouts.list", "--json").must().json()["rollouts"]
    (mine,) = [entry for entry in listed if entry["rollout"] == story.rollout]
    assert mine["state"] == "done"
    shown = story.cli("rollouts.show", story.rollout).must().out
    assert all(name in shown for name in CLUSTERS)


def test_journal_numbers_its_records_without_a_gap(story: Story) -> None:
    assert all(two["number"] == one["number"] + 1 for one, two in pairwise(story.records))
    assert [each["kind"] for each in story.records].count("begun") == 3


def _first(story: Story, kind: str) -> dict[str, int]:
    """The number of each cluster's first record of ``kind``."""
    found: dict[str, int] = {}
    for record in story.records:
        if record["kind"] == kind:
            found.setdefault(record["cluster"], record["number"])
    return found


def _last(story: Story, kind: str) -> dict[str, int]:
    return {each["cluster"]: each["number"] for each in story.records if each["kind"] == kind}


def _modes(folder: Path) -> set[int]:
    """Of all that holds anything."""
    states = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return {state.st_mode & 0o777 for state in states if state.st_size}

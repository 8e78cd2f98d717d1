"""Jobs of every kind through a backup, the loss of the head, and a restore."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from rayfleet.waiting import wait_until
from tests.support import job_matrix as jobs
from tests.support.argv_watch import ArgvWatch
from tests.support.job_matrix import CLEANUP, ENDING, KINDS, LATE, SECRET, SETTING_UP
from tests.support.sandbox import Ran, SandboxCli
from tests.support.sandbox_head import SandboxHead
from tests.support.vault_files import files_with, sound_backups

CLUSTER = "us-central2"
OTHER = "europe-west4"
GIVEN_BACK = tuple(kind for kind in (*KINDS, LATE) if kind not in {CLEANUP, ENDING})
STARTED = tuple(kind for kind in GIVEN_BACK if kind.starts)
ENDING_PACKAGE = ENDING.fields["runtime_env"]["working_dir"]


@dataclass
class Story:
    """What was seen on the way, in its order. ``facts`` are the head's own before and after."""

    cli: SandboxCli
    head: SandboxHead
    before: dict[str, Any] = field(default_factory=dict)
    backup: Ran = field(default_factory=lambda: Ran(-1, "", ""))
    without_head: Ran = field(default_factory=lambda: Ran(-1, "", ""))
    without_jobs: Ran = field(default_factory=lambda: Ran(-1, "", ""))
    refused: Ran = field(default_factory=lambda: Ran(-1, "", ""))
    setting_up: str = ""
    restore: Ran = field(default_factory=lambda: Ran(-1, "", ""))
    after: dict[str, Any] = field(default_factory=dict)
    again: Ran = field(default_factory=lambda: Ran(-1, "", ""))
    lines: dict[str, list[str]] = field(default_factory=dict)
    argv: list[str] = field(default_factory=list)

    left: list[str] = field(default_factory=list)
    headless: dict[str, Any] = field(default_factory=dict)
    stopped: str = ""
    started: str = ""

    def save(self) -> None:
        """Take the backup, and let one job end and another one come while it is taken."""
        command = ["jobs.backup", "--cluster", CLUSTER, "--json"]
        self.backup = self.cli.meanwhile(command, _says("have not ended"), self._during)
        self.before = jobs.wait_for(
            self.head, [kind for kind in (*KINDS, LATE) if kind is not ENDING], lines={}
        )

    def lose(self) -> None:
        """The machine of the head is gone; then a new head comes up."""
        self.head.kill()
        self.headless = self.cli.status()[CLUSTER]
        self.without_head = self.cli("jobs.backup", "--cluster", CLUSTER)
        self.cli("stop", "--cluster", CLUSTER, "--yes").must()
        self.left = [row.name for row in self.cli.engine.rows() if row.cluster == CLUSTER]
        self.stopped = self.cli.status()[CLUSTER]["state"]
        self.cli("start", "--cluster", CLUSTER).must()
        self.started = self.cli.status()[CLUSTER]["state"]
        self.without_jobs = self.cli("jobs.backup", "--cluster", CLUSTER)

    def give_back(self) -> None:
        """Restore; the job whose environment takes time gets on once it is pending again."""
        self.refused = self.cli("jobs.restore", "--cluster", CLUSTER)
        backup = self.backup.json()["backup"]
        command = ["jobs.restore", "--cluster", CLUSTER, "--backup", backup, "--json"]
        self.restore = self.cli.meanwhile(command, _says("watching"), self._get_on)
        started = [*STARTED, jobs.starting(SETTING_UP)]
        lines = {kind.name: 2 for kind in STARTED}
        jobs.wait_for(self.head, started, lines=lines)
        self.again = self.cli(*command)
        self.after, self.lines = self.head.facts(), jobs.runs(self.head)

    def _during(self) -> None:
        jobs.end(self.head, ENDING.name)
        # Ray throws a package away as soon as no job needs it.
        wait_until(
            lambda: ENDING_PACKAGE not in self.head.facts()["packages"],
            what="a job and its package to go during the backup",
            timeout=60,
        )
        jobs.submit(self.head, [LATE])

    def _get_on(self) -> None:
        self.setting_up = self.head.facts()["jobs"][SETTING_UP.name]["status"]
        jobs.end(self.head, "../go")


def _says(what: str) -> Any:
    return lambda line: what in line


@pytest.fixture(scope="module")
def story(matrix: SandboxHead) -> Story:
    """The whole of it, once."""
    told = Story(cli=matrix.cli, head=matrix)
    with ArgvWatch(SECRET) as watch:
        told.save()
        told.lose()
        told.give_back()
    assert watch.looks > 1
    told.argv = watch.found
    return told


def test_workers_that_a_dead_head_leaves_are_told(story: Story) -> None:
    assert story.headless["state"] == "no head"
    (found,) = story.headless["findings"]
    assert found["state"] == "workers without a head"
    assert f"-{CLUSTER}-worker-" in found["found"]


def test_stop_leaves_no_node_and_start_brings_the_cluster_back(story: Story) -> None:
    assert story.left == []
    assert (story.stopped, story.started) == ("stopped", "healthy")


def test_backup_has_every_job_that_had_not_ended(story: Story) -> None:
    saved = story.backup.must().json()
    assert saved["complete"], saved
    assert set(saved["jobs"]) == {kind.name for kind in GIVEN_BACK}
    assert saved["infrastructure"] == [CLEANUP.name]
    assert {(lost["kind"], lost["name"]) for lost in saved["unrestorable"]} >= {
        ("detached actor", "keeper")
    }
    assert "driver" in {lost["kind"] for lost in saved["unrestorable"]}


def test_every_field_of_every_job_is_what_it_was(story: Story) -> None:
    before, after = jobs.submitted(story.before), jobs.submitted(story.after)
    assert set(after) == {kind.name for kind in GIVEN_BACK}
    for kind in GIVEN_BACK:
        assert after[kind.name] == before[kind.name], kind.name
        assert jobs.asked_for(kind) == jobs.told(after[kind.name], kind), kind.name


def test_jobs_come_back_in_the_order_of_their_submission(story: Story) -> None:
    mine = {kind.name for kind in GIVEN_BACK}
    before = [name for name in jobs.in_order(story.before) if name in mine]
    assert jobs.in_order(story.after) == before


def test_every_byte_of_every_package_is_back(story: Story) -> None:
    wanted = {jobs.uri(name): jobs.sha256(content) for name, content in jobs.PACKAGES.items()}
    del wanted[ENDING_PACKAGE]
    assert story.after["packages"] == wanted


def test_nothing_runs_twice_and_nothing_is_lost(story: Story) -> None:
    new = story.head.name
    for kind in STARTED:
        first, second = (line.split() for line in story.lines[kind.name])
        assert first[1] == second[1] == kind.word, kind.name
        assert first[0] != second[0], kind.name
    once = {kind.name for kind in KINDS if len(story.lines.get(kind.name, ())) == 1}
    assert once == {CLEANUP.name, ENDING.name, SETTING_UP.name}
    assert story.lines[SETTING_UP.name] == [f"{new} {SETTING_UP.word}"]
    assert set(story.lines) == {kind.name for kind in (*STARTED, CLEANUP, ENDING, SETTING_UP)}
    waiting = {kind.name for kind in GIVEN_BACK if not kind.starts} - {SETTING_UP.name}
    states = {name: job["status"] for name, job in story.after["jobs"].items()}
    assert states == {
        kind.name: "PENDING" if kind.name in waiting else "RUNNING" for kind in GIVEN_BACK
    }


def test_job_that_was_pending_for_its_start_is_so_again_and_then_starts(story: Story) -> None:
    assert story.before["jobs"][SETTING_UP.name]["status"] == "PENDING"
    assert story.setting_up == "PENDING"
    assert story.after["jobs"][SETTING_UP.name]["status"] == "RUNNING"


def test_restore_tells_the_outcome_of_each_job_and_can_be_run_again(story: Story) -> None:
    report = story.restore.must().json()
    assert report["backup"] == story.backup.json()["backup"]
    assert {row["job"]: row["outcome"] for row in report["jobs"]} == dict.fromkeys(
        (kind.name for kind in GIVEN_BACK), "restored"
    )
    owners = {row["job"]: row["owner"] for row in report["jobs"]}
    assert owners["metadata"] == "me@here"
    again = story.again.must().json()
    assert {row["outcome"] for row in again["jobs"]} == {"already there"}


def test_no_jobs_and_no_answer_are_different(story: Story) -> None:
    assert story.without_head.code == 4
    assert CLUSTER in story.without_head.err
    assert "error: " in story.without_head.err
    assert "no jobs" not in story.without_head.err + story.without_head.out
    assert story.without_jobs.code == 0
    assert "no jobs" in story.without_jobs.out


def test_backup_of_the_new_head_does_not_pass_for_the_lost_jobs(story: Story) -> None:
    assert story.refused.code == 1
    assert f"--backup {story.backup.json()['backup']}" in story.refused.err


def test_secret_is_in_the_vault_and_nowhere_else(story: Story) -> None:
    vault = story.cli.state / "vault"
    assert files_with(story.cli.state, SECRET, without=vault) == []
    assert files_with(vault, SECRET, without=vault / "packages")
    backup = story.backup.json()["backup"]
    shown = [
        story.cli("jobs.vault", "--backup", backup),
        story.cli("jobs.vault", "--backup", backup, "--json"),
        story.cli("jobs.list", "--cluster", CLUSTER, "--json"),
    ]
    for ran in (*shown, story.backup, story.restore, story.again, story.without_head):
        assert SECRET not in ran.out + ran.err
    assert story.argv == []


def test_vault_holds_what_it_says(story: Story) -> None:
    assert story.backup.json()["backup"] in sound_backups(story.cli.state / "vault")
    rows = story.cli("jobs.vault", "--cluster", CLUSTER, "--json").must().json()["backups"]
    assert {row["state"] for row in rows} == {"complete"}


def test_backup_that_lacks_a_package_says_so_and_is_not_restored_by_itself(
    released: SandboxCli,
) -> None:
    head = SandboxHead(released, OTHER)
    waiting = next(kind for kind in KINDS if kind.name == "no-capacity")
    uri = waiting.fields["runtime_env"]["working_dir"]
    jobs.submit(head, [waiting])
    head.forget(uri)
    try:
        ran = released("jobs.backup", "--cluster", OTHER, "--json")
    finally:
        # The job goes on waiting, and a cluster whose jobs cannot be saved is never restarted.
        head.put(uri.removeprefix("gcs://"), jobs.PACKAGES["never-unpacked"])
    assert ran.code == 2, ran.err
    assert "error: " in ran.err
    for word in (waiting.name, uri, "incomplete"):
        assert word in ran.err, f"{word!r} is not in\n{ran.err}"
    saved = ran.json()
    assert not saved["complete"]
    assert [waiting.name in line and uri in line for line in saved["missing"]] == [True]
    (row,) = released("jobs.vault", "--cluster", OTHER, "--json").must().json()["backups"]
    assert row["state"] == "incomplete"
    refused = released("jobs.restore", "--cluster", OTHER)
    assert refused.code == 1, refused.err
    assert saved["backup"] in refused.err
    assert head.facts()["jobs"][waiting.name]["status"] == "PENDING"

"""A token is rotated under running clusters: nobody is locked out, the old one ends, and no token
is found anywhere but in its own file."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rayfleet.waiting import wait_until
from tests.support.argv_watch import ArgvWatch
from tests.support.sandbox import INVOKE, Ran, SandboxCli
from tests.support.sandbox_head import PYTHON, SandboxHead

NAME = "RAY_AUTH_TOKEN"
SHARING = ("europe-west4", "us-east5")
STOPPED = "us-central2"  # shares the secret too, and is left alone
STAGING = "us-central2-staging"
LOSES_WORKER = "europe-west4"
ROTATE = ("auth.rotate", "--cluster", "us-east5", "--yes", "--waves", "100%", "--bake", "0s")
WORKER_SECONDS = 120.0
NOTHING = Ran(-1, "", "")
PLACES = ("/home", "/tmp", "/var", "/etc", "/bucket")

STATUS = """
import sys, urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:8265/api/version")
request.add_header("Authorization", "Bearer " + sys.stdin.read().strip())
try:
    print(urllib.request.urlopen(request, timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@dataclass
class Story:
    """What was seen before, during and after."""

    cli: SandboxCli
    old: str = ""
    new: str = ""
    heads: dict[str, str] = field(default_factory=dict)
    meanwhile: dict[str, Any] = field(default_factory=dict)
    late: Ran = NOTHING
    rotated: Ran = NOTHING
    argv: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.cli.state / "sandbox" / "secrets" / NAME

    def tell(self) -> None:
        """Rotate, with a look around between the new version and the first restart."""
        self.old = self.newest()
        self.heads = {name: entry["head"] for name, entry in self.running().items()}
        with ArgvWatch(self.old) as watch:
            self.rotated = self.cli.meanwhile(
                list(ROTATE), lambda line: "goes on and ends the old token" in line, self.between
            )
        self.argv = watch.found
        self.new = self.newest()

    def between(self) -> None:
        """No head has the new version yet, and it is the latest."""
        for path in (self.cli.state / "tokens").rglob("*"):
            if path.is_file():
                path.unlink()  # clients that come anew
        (worker,) = self.cli.vms(LOSES_WORKER, "worker")
        self.cli("sandbox.preempt", "--cluster", LOSES_WORKER).must()

        def replaced() -> bool:
            self.meanwhile = self.running()
            names = {row.name for row in self.cli.vms(LOSES_WORKER, "worker")}
            return worker.name not in names and all(
                entry["state"] == "healthy" for entry in self.meanwhile.values()
            )

        wait_until(replaced, what="a worker of a head with the old token", timeout=WORKER_SECONDS)
        self.late = self.check()

    def running(self) -> dict[str, Any]:
        """What is said of the clusters that run."""
        seen = self.cli.status()
        assert seen.pop(STOPPED)["state"] == "stopped"
        return seen

    def check(self) -> Ran:
        """Ask their heads what they take."""
        return self.cli("auth.check", "--json")

    def newest(self) -> str:
        numbers = [int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()]
        return (self.folder / str(max(numbers))).read_text()


@pytest.fixture(scope="module")
def story(released: SandboxCli) -> Story:
    released("stop", "--cluster", STOPPED, "--yes").must()
    told = Story(released)
    told.tell()
    return told


def test_clients_and_workers_come_in_while_the_new_version_waits(story: Story) -> None:
    assert {entry["state"] for entry in story.meanwhile.values()} == {"healthy"}
    late = {one["cluster"]: one for one in story.late.json()}
    assert story.late.code == 2
    for name in SHARING:
        assert "restart it" in late[name]["trouble"], late[name]
        assert len(late[name]["takes"]) == 1
    assert late[STAGING]["trouble"] == ""


def test_the_rotation_ends_with_every_head_on_the_new_token_only(story: Story) -> None:
    story.rotated.must()
    assert story.new != story.old
    after = story.running()
    assert {entry["state"] for entry in after.values()} == {"healthy"}
    changed = {name for name, entry in after.items() if entry["head"] != story.heads[name]}
    assert changed == set(SHARING)
    checked = {one["cluster"]: one for one in story.check().must().json()}
    assert checked.pop(STOPPED)["headless"]
    assert set(checked) == {*SHARING, STAGING}
    for one in checked.values():
        assert (one["takes"], one["open"]) == ([one["wanted"]], [])
    for name in SHARING:
        head = SandboxHead(story.cli, name)
        assert [answer_to(head, each) for each in (story.old, story.new)] == ["403", "200"], name


def test_a_shell_gets_the_path_of_the_new_token(story: Story) -> None:
    script = (
        f'eval "$({INVOKE} auth.env --cluster us-east5)" && echo "$RAY_AUTH_MODE" '
        '&& stat -c %a "$RAY_AUTH_TOKEN_PATH" && cat "$RAY_AUTH_TOKEN_PATH"'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=story.cli.root,
        env=story.cli.env(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == ["token", "600", story.new]


def test_no_token_is_anywhere_but_in_its_own_file(story: Story) -> None:
    assert story.argv == []
    tokens = [story.old, story.new]
    for path in story.cli.state.rglob("*"):
        mine = path.is_relative_to(story.folder.parent) or path.is_relative_to(
            story.cli.state / "tokens"
        )
        if path.is_file() and not mine:
            content = path.read_bytes()
            assert not [token for token in tokens if token.encode() in content], path
    said = [story.late, story.rotated]
    assert not [ran for ran in said for token in tokens if token in ran.out + ran.err]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        assert not [token for token in tokens if token.encode() in line], line
    for row in story.cli.engine.rows():
        if row.role in ("head", "worker"):
            logs = story.cli.engine.client.containers.get(row.name).logs()
            assert not [token for token in tokens if token.encode() in logs], row.name


@pytest.mark.parametrize("role", ["head", "worker"])
def test_a_node_has_its_token_in_one_file_only(story: Story, role: str) -> None:
    for name in SHARING:
        for row in story.cli.vms(name, role):
            found = subprocess.run(
                ["docker", "exec", "-i", row.name, "grep", "-rlF", "-f", "-", *PLACES],
                input=f"{story.old}\n{story.new}",
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert found.stdout.split() == ["/home/ray/.ray/auth_token"], (name, found.stderr)


def answer_to(head: SandboxHead, token: str) -> str:
    """The HTTP status that a head answers to ``token`` with."""
    done = subprocess.run(
        ["docker", "exec", "-i", "-u", "ray", head.name, PYTHON, "-c", STATUS],
        input=token,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()

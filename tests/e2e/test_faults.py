"""What goes wrong, and what the operator reads then: the documented exit code, one clear
error with the next command, nothing half-changed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from rayfleet.waiting import wait_until
from tests.e2e.conftest import ALLOW
from tests.support.sandbox import ROOT, Ran, SandboxCli

SLEEPER = "python -c 'import time; time.sleep(600)'"


def test_change_that_would_kill_a_job_names_it_and_needs_yes(released: SandboxCli) -> None:
    submit = released("jobs.submit", "--cluster", "us-central2", "--no-wait", SLEEPER, "--json")
    job = submit.must().json()["submission_id"]
    try:
        head = released.status()["us-central2"]["head"]
        before = _rollouts(released)
        refused = released("stop", "--cluster", "us-central2")
        _is_error(refused, 3, job, "1 running job will be killed", "--yes")
        refused = released("restart", "--cluster", "us-central2", "--no-preserve-jobs")
        _is_error(refused, 3, f"KILLS job {job}", "KILL 1 job", "--no-preserve-jobs --yes")
        asked = released("restart", "--cluster", "us-central2")
        _is_error(asked, 3, f"job {job}", "invoke restart --cluster us-central2 --yes")
        assert "KILL" not in asked.err
        assert released.status()["us-central2"]["head"] == head
        assert _rollouts(released) == before
    finally:
        released("jobs.stop", "--cluster", "us-central2", job).must()


def test_unknown_cluster_is_refused_with_what_there_is(released: SandboxCli) -> None:
    _is_error(released("restart", "--cluster", "us-east"), 1, "us-east5", "us-east")
    _is_error(released("stop"), 1, "--all")


def test_pin_that_no_registry_has_stops_nothing(released: SandboxCli) -> None:
    pins = released.state / "sandbox" / "images.lock.yaml"
    good = pins.read_text()
    head = released.status()["europe-west4"]["head"]
    try:
        pins.write_text(re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", good))
        released("update-configs", "--cluster", "europe-west4").must()
        refused = released("restart", "--cluster", "europe-west4", "--yes")
        _is_error(refused, 2, "europe-west4", "000000", "untouched", "invoke rollouts.show")
        assert released.status()["europe-west4"]["head"] == head
    finally:
        pins.write_text(good)
        released("update-configs").must()


def test_registry_that_is_down_stops_the_release_before_anything_changes(
    released: SandboxCli,
) -> None:
    pins = (released.state / "sandbox" / "images.lock.yaml").read_text()
    name = f"rf-{released.place.id}-registry-europe-west4"
    released.engine.client.containers.get(name).stop(timeout=1)
    try:
        _is_error(released("cluster-docker", ALLOW), 4, "europe-west4", "invoke sandbox.up")
        assert (released.state / "sandbox" / "images.lock.yaml").read_text() == pins
    finally:
        released("sandbox.up").must()
    released("cluster-docker", ALLOW).must()


def test_registry_that_refuses_the_password_says_so(released: SandboxCli) -> None:
    kept = released.place.credentials.read_text()
    wrong = {host: {"username": "rayfleet", "password": "wr0ng"} for host in json.loads(kept)}
    try:
        released.place.credentials.write_text(json.dumps(wrong))
        refused = released("cluster-docker", ALLOW)
        _is_error(refused, 1, "127.0.0.1")
        assert "wr0ng" not in refused.err + refused.out
    finally:
        released.place.credentials.write_text(kept)


def test_head_that_never_answers_holds_up_nobody(released: SandboxCli) -> None:
    (head,) = released.vms("us-east5", "head")
    container = released.engine.client.containers.get(head.name)
    container.pause()
    try:
        seen = released.status()
        assert seen["us-east5"]["state"] == "unhealthy"
        assert seen["us-east5"]["trouble"]
        assert seen["us-central2"]["state"] == "healthy"
        logs = released("tail-logs", "--no-follow", "--tail", "1")
        assert logs.code == 2
        assert "us-east5" in logs.err
        assert "us-central2" in logs.out
        alone = released("tail-logs", "--no-follow", "--cluster", "us-east5")
        _is_error(alone, 4, "us-east5")
    finally:
        container.unpause()
    wait_until(
        lambda: released.status()["us-east5"]["state"] == "healthy",
        what="the head to answer again",
        timeout=60,
    )


def test_no_engine_is_one_clear_error(released: SandboxCli) -> None:
    for task in ("sandbox.up", "sandbox.status", "cluster-docker"):
        ran = released(task, DOCKER_HOST="unix:///nowhere/docker.sock")
        _is_error(ran, 1, "unix:///nowhere/docker.sock")


def test_dirty_build_context_is_refused_with_the_files(
    released: SandboxCli, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    (clone / "docker" / "sandbox-vm").write_text("changed")
    (clone / "README.md").write_text("not part of the build")
    refused = SandboxCli(released.state, root=clone)("cluster-docker")
    _is_error(refused, 1, "docker/sandbox-vm", "--allow-dirty")
    assert "README" not in refused.err


def test_two_sandboxes_do_not_disturb_each_other(released: SandboxCli, tmp_path: Path) -> None:
    other = SandboxCli(tmp_path / "state")
    moments = ("registry of us-central2", "registry of us-east5", "artifact registry: started")
    try:
        for moment in moments:
            other.kill_when(["sandbox.up"], lambda line, moment=moment: moment in line)
        other("sandbox.up").must()
        assert other.place.id != released.place.id
        assert {row.kind for row in other.engine.rows()} == {"registry"}
        assert json.loads(other("sandbox.status", "--json").must().out)["up"]
    finally:
        other("sandbox.down").must()
    assert other.engine.leftovers() == ()
    assert not other.place.folder.exists()
    assert all(entry["state"] == "healthy" for entry in released.status().values())


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Path:
    """A folder on a file system of 4 MiB; mounted by the test that takes it."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    return folder


def test_full_disk_leaves_the_configs_as_they_were(released: SandboxCli, tiny_disk: Path) -> None:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "rayfleet-test", tiny_disk], check=True
    )
    try:
        shutil.copytree(
            released.state / "sandbox",
            tiny_disk / "sandbox",
            ignore=shutil.ignore_patterns("registry", "clusters"),
        )
        _fill(tiny_disk)
        cli = SandboxCli(tiny_disk)
        _is_error(cli("update-configs"), 1, "No space left on device")
        written = list((tiny_disk / "sandbox" / "clusters").glob("*"))
        assert written == []
    finally:
        subprocess.run(["umount", tiny_disk], check=True)


def _fill(folder: Path) -> None:
    """Use up the last block of the file system that ``folder`` is on."""
    with (folder / "fill").open("ab", buffering=0) as full, suppress(OSError):
        while full.write(b"x" * 4096):
            pass


def _rollouts(cli: SandboxCli) -> list[str]:
    shown = cli("rollouts.list", "--all", "--json").must().json()["rollouts"]
    return [row["rollout"] for row in shown]


def _is_error(ran: Ran, code: int, *words: str) -> None:
    assert ran.code == code, f"exit {ran.code}\n{ran.err}"
    assert "error: " in ran.err, ran.err
    for word in words:
        assert word in ran.err, f"{word!r} is not in\n{ran.err}"

"""A release as its operator sees it."""

from __future__ import annotations

import importlib.metadata
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from rayfleet.fleet.pins import read_pins
from rayfleet.sandbox.node_provider import SandboxNodeProvider
from rayfleet.waiting import wait_until
from scripts.jobs import source_statistics
from tests.e2e.conftest import ALLOW
from tests.support.sandbox import SandboxCli

CLUSTERS = {"us-central2-staging", "us-central2", "europe-west4", "us-east5"}


def test_every_cluster_runs_the_digest_that_was_published(released: SandboxCli) -> None:
    seen = released.status()
    assert set(seen) == CLUSTERS
    pinned = read_pins(_pin_file(released))["cluster"].digest
    for entry in seen.values():
        assert entry["state"] == "healthy", entry
        assert entry["image_digest"] == pinned
        assert entry["runs_pinned_image"]
        assert entry["config_current"]
        assert entry["ray_version"] == importlib.metadata.version("ray")
        assert entry["workers"]["joined"] >= entry["workers"]["minimum"] == 1


def test_second_release_with_nothing_changed_touches_no_cluster(released: SandboxCli) -> None:
    heads = {name: entry["head"] for name, entry in released.status().items()}
    done = released("release", "--yes", ALLOW, "--json").must().json()
    assert done["clusters"] == dict.fromkeys(done["clusters"], "nothing")
    assert set(done["clusters"]) == CLUSTERS
    assert not done["pinned"]
    assert {name: entry["head"] for name, entry in released.status().items()} == heads


def test_release_plan_shows_all_steps_and_changes_nothing(released: SandboxCli) -> None:
    before = _pins(released)
    plan = released("release", "--dry-run", "--json").must().json()
    assert {target["cluster"] for target in plan["clusters"]} == CLUSTERS
    assert set(plan["image"]["tags"]) >= {"latest"}
    assert _pins(released) == before


def test_policies_are_on_every_region(released: SandboxCli) -> None:
    shown = released("registry.show", "--json").must().out
    for region in ("us-central2", "europe-west4", "us-east5"):
        assert region in shown
    assert shown.count("delete-older-than-30d") >= 3
    assert shown.count("keep-16") >= 3
    forecasts = released("registry.preview", "--json").must().json()
    assert [each["endangered"] + each["not_asked"] for each in forecasts] == [[], [], []]


def test_logs_of_all_heads_come_prefixed(released: SandboxCli) -> None:
    lines = released("tail-logs", "--no-follow", "--tail", "3").must().out.splitlines()
    sources = {tuple(line.partition("|")[0].split()) for line in lines}
    assert {cluster for cluster, _ in sources} == CLUSTERS
    assert {file for _, file in sources} >= {"monitor.log", "monitor.out"}


def test_logs_are_filtered_on_the_heads_and_come_as_json(released: SandboxCli) -> None:
    words = ("--no-follow", "--cluster", "us-east5", "--tail", "-1", "--level", "INFO")
    found = released("tail-logs", *words, "--include", "Adding 1 node", "--output", "jsonl").must()
    lines = [json.loads(line) for line in found.out.splitlines()]
    assert lines
    assert all("Adding 1 node" in line["message"] for line in lines)
    assert {(line["cluster"], line["level"]) for line in lines} == {("us-east5", "INFO")}
    assert all(line["time"] for line in lines)


def test_logs_of_workers_are_read_too(released: SandboxCli) -> None:
    words = ("--cluster", "us-east5", "--nodes", "workers", "--log", "raylet")
    lines = released("tail-logs", "--no-follow", *words).must().out.splitlines()
    assert lines
    assert all(line.startswith("us-east5/") for line in lines)


def test_batch_job_counts_what_a_serial_computation_counts(released: SandboxCli) -> None:
    output = "/bucket/e2e-statistics"
    command = f"python source_statistics.py --package ray --limit 60 --output {output}"
    submit = ("jobs.submit", "--cluster", "us-east5", "--working-dir", "scripts/jobs", command)
    first = _last_json(released(*submit).must().out)
    expected = _serially(60)
    assert {key: first[key] for key in expected} == expected
    assert (first["done"], first["skipped"], first["failed"]) == (60, 0, 0)
    second = _last_json(released(*submit).must().out)
    assert (second["done"], second["skipped"]) == (0, 60)
    assert {key: second[key] for key in expected} == expected
    jobs = released("jobs.list", "--cluster", "us-east5", "--json").must().out
    assert jobs.count("SUCCEEDED") >= 2


def test_tags_that_one_side_sets_are_what_the_other_side_reads(released: SandboxCli) -> None:
    config = yaml.safe_load((released.state / "sandbox/clusters/us-east5.yaml").read_text())
    operator, head = (
        SandboxNodeProvider(config["provider"], config["cluster_name"]) for _ in range(2)
    )
    worker = released.vms("us-east5", "worker")[0].name
    for value in ("one", "two"):
        head.set_node_tags(worker, {"test-tag": value})
        assert operator.node_tags(worker)["test-tag"] == value
    operator.set_node_tags(worker, {"other-tag": "three"})
    assert {"test-tag": "two", "other-tag": "three"}.items() <= head.node_tags(worker).items()


def test_preempted_worker_is_replaced_by_the_autoscaler_and_its_logs_by_the_new_ones(
    released: SandboxCli, tmp_path: Path
) -> None:
    (before,) = released.vms("europe-west4", "worker")

    def replaced() -> bool:
        entry = released.status()["europe-west4"]
        names = {row.name for row in released.vms("europe-west4", "worker")}
        return entry["state"] == "healthy" and bool(names - {before.name})

    with following(released, tmp_path, "--cluster", "europe-west4", "--log", "raylet") as tail:
        tail.wait_for_lines("")
        released("sandbox.preempt", "--cluster", "europe-west4").must()
        assert before.name not in {row.name for row in released.vms("europe-west4", "worker")}
        wait_until(replaced, what="a new worker", timeout=180, interval=3)
        old, new = tail.wait_for_note("is gone"), tail.wait_for_note("joined")
        assert before.name.endswith(old.removeprefix("europe-west4/"))
        assert old != new
        tail.wait_for_lines(new)
        tail.process.send_signal(signal.SIGINT)
        assert tail.process.wait(timeout=60) == 0, tail.said()


@dataclass
class Tail:
    """A ``tail-logs`` of workers that runs."""

    process: subprocess.Popen[str]
    out: Path
    err: Path

    def said(self) -> str:
        return self.err.read_text()

    def wait_for_lines(self, name: str) -> None:
        """Wait for a line of a node whose name begins so."""
        wait_until(
            lambda: any(line.startswith(name) for line in self.out.read_text().splitlines()),
            what=f"a line of {name or 'any node'}",
            timeout=120,
            interval=0.2,
            reason=self.said,
        )

    def wait_for_note(self, news: str) -> str:
        """Wait until ``NODE news`` or ``NODE: news`` is told; the node."""
        found = wait_until(
            lambda: re.search(rf"^(\S+?):? {news}$", self.said(), re.MULTILINE),
            what=news,
            timeout=120,
            interval=0.2,
            reason=self.said,
        )
        return found[1]


@contextmanager
def following(cli: SandboxCli, folder: Path, *words: str) -> Iterator[Tail]:
    out, err = folder / "tail.out", folder / "tail.err"
    with out.open("w") as stdout, err.open("w") as stderr:
        words = ("tail-logs", "--nodes", "workers", *words)
        process = cli.start(*words, stdout=stdout, stderr=stderr)
    try:
        yield Tail(process, out, err)
    finally:
        process.kill()
        process.wait(timeout=30)


def _serially(limit: int) -> dict[str, int]:
    """What the job must count: the same version of Ray is installed here, from one lock."""
    folder = source_statistics.package_folder("ray")
    files = source_statistics.source_files(folder, limit)
    texts = [(folder / file).read_bytes() for file in files]
    return {
        "files": len(texts),
        "lines": sum(text.count(b"\n") for text in texts),
        "words": sum(len(text.split()) for text in texts),
        "bytes": sum(len(text) for text in texts),
    }


def _last_json(text: str) -> dict[str, int]:
    lines = [line for line in text.splitlines() if line.strip().startswith("{")]
    return dict(json.loads(lines[-1]))


def _pins(cli: SandboxCli) -> str:
    return _pin_file(cli).read_text()


def _pin_file(cli: SandboxCli) -> Path:
    return cli.state / "sandbox" / "images.lock.yaml"

"""Workers that Ray cannot make, against the emulated Google Cloud."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.console import Console
from rayfleet.errors import ToolFailed, Unreachable, UsageError
from rayfleet.rollout.model import Step
from rayfleet.rollout.steps import machines
from rayfleet.rollout.uses.clusters import Asker
from rayfleet.waiting import DeadlineExceeded
from rayfleet.worker.care import Care, take_along, tell_who_stays
from rayfleet.worker.model import Added, Capacity, full_name
from rayfleet.worker.queue import Queue
from rayfleet.worker.show import show_all
from tests.support.google import Google
from tests.support.google_cluster import GoogleCluster, google_cluster
from tests.support.leftovers import ROOT, Littered
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.support.rollout_world import Way
from tests.support.rollout_world import World as RolloutWorld

pytestmark = pytest.mark.integration

CLUSTER = "us-east5-a"
IDENTITY = "marin-us-east5-a"
QUEUED = "tpu.projects.locations.queuedResources"
NODES = "tpu.projects.locations.nodes"
FAULTS: dict[str, dict[str, Any]] = {
    "503": {"status": 503},
    "too many requests": {"status": 429, "message": "Rate limit"},
    "cut before": {"cut": "before"},
    "cut after": {"cut": "after"},
}


class World:
    """The production cluster of us-east5-a, whose config leads to the emulator."""

    def __init__(self, google: Google, folder: Path) -> None:
        self.google, self.heard = google, list[str]()
        self.littered = Littered(google=google, folder=folder)
        self.fleet, self.cluster = self.littered.fleet, self.littered.cluster(CLUSTER)

    @property
    def care(self) -> Care:
        """As `invoke workers.*` has it; who waits moves the cloud's clock."""
        config = read_launch_config(self.fleet, self.cluster)
        return Care(
            cluster=CLUSTER, config=config, narrate=self.heard.append, connect=self._connect
        )

    def _connect(self, config: LaunchConfig) -> Queue:
        return Queue(config, self.google.clock)

    def add(self, name: str = "mine", capacity: Capacity = Capacity.RESERVED, **more: Any) -> Added:
        care = self.care
        addition = care.plan("v6e-8", capacity, name=name)
        return care.add(addition, owner="ann@host", wait=more.pop("wait", 3600.0))

    def pin(self, image: str) -> None:
        """Let the generated config have another image."""
        path = self.fleet.config_path(self.cluster)
        content = read_yaml(path.read_bytes())
        content["docker"]["image"] = image
        path.write_text(write_yaml(content))

    def tell(self, word: str, name: str = "mine") -> None:
        """As a machine does it."""
        image = self.care.all()[0].image
        assert self.google.write(full_name(IDENTITY, name), "rayfleet/state", f"{word} {image} ")


@pytest.fixture
def world(google: Google, tmp_path: Path) -> World:
    google.cloud.clock.step = 0.0
    return World(google, tmp_path)


@pytest.mark.parametrize("capacity", Capacity)
def test_a_worker_is_added_waits_in_the_queue_joins_and_goes(
    world: World, capacity: Capacity
) -> None:
    made = world.add(capacity=capacity)
    assert (made.state, made.node, made.capacity) == ("ACTIVE", "READY", capacity)
    assert world.heard == [
        "mine: WAITING_FOR_RESOURCES",
        "mine: PROVISIONING",
        "mine: ACTIVE",
    ]
    assert made.trouble == "silent: 1"
    world.tell("joined")
    (seen,) = world.care.all()
    assert (seen.joined, seen.machines, seen.trouble) == (1, 1, "")
    assert (seen.owner, seen.accelerator_type) == ("ann-host", "v6e-8")
    world.care.remove(["mine"])
    assert world.care.all() == ()
    assert world.google.states("nodes") == world.google.states("queuedResources") == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_passes_is_tried_again(world: World, fault: str) -> None:
    for method in ("create", "get", "list", "delete"):
        world.google.inject(f"{QUEUED}.{method}", times=2, **FAULTS[fault])
        world.google.inject(f"{NODES}.{method}", times=1, **FAULTS[fault])
    world.google.inject(f"{NODES}.patch", times=2, **FAULTS[fault])
    world.add()
    assert len(world.care.roll(again=True)) == 1
    world.care.remove(["mine"])
    assert world.google.states("nodes") == world.google.states("queuedResources") == {}


def test_the_wait_has_an_end_and_the_request_stays(world: World) -> None:
    world.google.cloud.stockouts.add(("v6e-8", "us-east5-a"))
    start = world.google.cloud.now()
    with pytest.raises(DeadlineExceeded, match="mine: it is WAITING_FOR_RESOURCES") as error:
        world.add(wait=600.0)
    assert error.value.next_step == f"invoke workers.list --cluster {CLUSTER}"
    assert world.google.cloud.now() - start < 1200
    assert world.add(wait=0.0).state == "WAITING_FOR_RESOURCES"  # still the same one
    assert len(world.google.seen(f"{QUEUED}.create")) == 1
    world.google.cloud.stockouts.clear()
    assert world.add().state == "ACTIVE"


def test_what_google_could_not_give_is_said_and_makes_place(world: World) -> None:
    world.google.inject(f"{QUEUED}.create", fails="INTERNAL", message="The reservation is full.")
    with pytest.raises(ToolFailed, match=r"FAILED: The reservation is full\.") as error:
        world.add()
    assert error.value.next_step == f"invoke workers.remove mine --cluster {CLUSTER}"
    (failed,) = world.care.all()
    assert failed.trouble == "The reservation is full."
    assert world.add().state == "ACTIVE"
    assert "mine is FAILED (The reservation is full.): it makes place" in world.heard


def test_without_quota_or_permission_nothing_is_left(world: World) -> None:
    world.google.inject(f"{QUEUED}.create", status=403, message="Permission denied.")
    with pytest.raises(Unreachable, match=r"cannot ask for .*mine-tpu: 403: Permission denied\."):
        world.add()
    assert world.care.all() == ()
    assert len(world.google.seen(f"{QUEUED}.create")) == 1


def test_a_deletion_that_never_ends_is_said(world: World) -> None:
    world.add()
    world.google.inject(f"{QUEUED}.delete", never=True)
    with pytest.raises(DeadlineExceeded, match="Google to delete"):
        world.care.remove(["mine"])
    (left,) = world.care.all()
    assert left.state == "DELETING"


def test_a_spot_worker_that_was_taken_back_is_seen_and_replaced(world: World) -> None:
    made = world.add(capacity=Capacity.SPOT)
    world.google.preempt(made.name)
    world.google.advance(600)
    (seen,) = world.care.all()
    assert seen.state == "SUSPENDED"
    assert "Google took it back" in seen.trouble
    assert world.care.roll(again=True) == ()  # nobody is there to be told
    assert world.add(capacity=Capacity.SPOT).node == "READY"


def test_a_name_that_is_taken_is_not_made_over(world: World) -> None:
    world.add()
    with pytest.raises(UsageError, match="mine is there already: as v6e-8, reserved"):
        world.add(capacity=Capacity.SPOT)
    with pytest.raises(UsageError, match="has no added worker other: it has mine"):
        world.care.remove(["mine", "other"])
    assert len(world.care.all()) == 1


def test_the_image_is_rolled_when_the_pin_has_moved_and_only_then(world: World) -> None:
    world.add()
    assert world.care.roll() == ()
    world.tell("joined")
    world.pin(image := f"registry/marin/marin_cluster:new@sha256:{'5e' * 32}")
    assert len(world.care.roll()) == 1
    assert world.care.roll() == ()
    (seen,) = world.care.all()
    assert (seen.image, seen.digest) == (image, f"sha256:{'5e' * 32}")
    assert seen.script == world.care.script
    assert (seen.joined, seen.trouble) == (0, "another image")
    world.tell("joined")
    assert world.care.all()[0].trouble == ""
    assert [one.name for one in world.care.roll(["mine"], again=True)] == [seen.name]
    assert world.care.all()[0].script.startswith(world.care.script)


def test_ray_and_a_stop_leave_an_added_worker_alone(world: World) -> None:
    made = world.add()
    ours: GoogleCluster = google_cluster(world.google, CLUSTER)
    ours.add("head_default")
    ours.add("tpu_worker")
    full = next(node for node in ours.provider.non_terminated_nodes({}) if made.name in node)
    # What its autoscaler asks of every node: another name or no mark would be the end of it.
    assert ours.provider.internal_ip(full)
    assert ours.provider.node_tags(full)["ray-node-type"] == "unmanaged"
    assert len(ours.nodes.everything()) == 2
    grounds = ours.machines(world.littered.project)
    assert grounds.terminate() == 2
    grounds.require_none()
    assert world.google.states("nodes") == {made.name: "READY"}


def test_workers_of_others_are_neither_shown_nor_touched(world: World) -> None:
    world.add()
    other = replace(world.care.config, identity="marin-us-east5")
    theirs = replace(world.care, config=other)
    assert theirs.all() == ()
    with pytest.raises(UsageError, match="no added worker of marin-us-east5"):
        Queue(other, world.google.clock).get(full_name(IDENTITY, "mine"))


def test_the_list_has_all_clusters_and_what_is_wrong(world: World) -> None:
    world.add()
    out = io.StringIO()
    console = Console(out=out, err=io.StringIO())
    show_all(world.fleet, tuple(world.fleet.clusters.values()), console, as_json=True)
    (entry,) = json.loads(out.getvalue())["workers"]
    assert (entry["cluster"], entry["name"], entry["state"]) == (CLUSTER, "mine", "ACTIVE")
    assert (entry["current"], entry["trouble"]) == (True, "silent: 1")
    out.truncate(0)
    show_all(world.fleet, [world.cluster], console, as_json=False)
    assert "mine" in out.getvalue()
    world.google.inject(f"{QUEUED}.list", times=-1, status=403, message="Permission denied.")
    with pytest.raises(Unreachable, match=r"403: Permission denied\."):
        show_all(world.fleet, [world.cluster], console, as_json=False)


def test_a_start_takes_added_workers_along_and_a_stop_names_them(world: World) -> None:
    world.add()
    world.pin("registry/marin/marin_cluster:new")
    config, heard = world.care.config, list[str]()
    world.google.cloud.clock.step = 600.0  # nobody waits
    take_along(CLUSTER, config, heard.append)
    assert heard == ["mine: registry/marin/marin_cluster:new"]
    assert world.care.all()[0].image == "registry/marin/marin_cluster:new"
    take_along(CLUSTER, config, heard.append)
    tell_who_stays(CLUSTER, config, heard.append)
    assert heard[1:] == ["workers that were added stay, and join the next head: mine"]
    world.google.inject(f"{NODES}.list", times=-1, status=403, message="No.")
    tell_who_stays(CLUSTER, config, heard.append)
    assert heard[2:] == ["whether workers were added is not known: 403: No."]
    with pytest.raises(Unreachable):
        take_along(CLUSTER, config, heard.append)


def test_a_restart_takes_added_workers_along(world: World, tmp_path: Path) -> None:
    world.add()
    world.pin("registry/marin/marin_cluster:new")
    way = Way(RolloutWorld(tmp_path / "rollout"))
    config = world.care.config
    way.ground.config = replace(
        way.ground.config, identity=IDENTITY, provider=config.provider, path=config.path
    )
    world.google.cloud.clock.step = 600.0
    way.do(Step.START, machines.start)
    assert world.care.all()[0].image == "registry/marin/marin_cluster:new"
    assert world.care.all()[0].trouble == "silent: 1"


def test_images_of_added_workers_are_in_use_even_while_they_wait(world: World) -> None:
    world.google.cloud.stockouts.add(("v6e-8", "us-east5-a"))
    digest = f"sha256:{'5e' * 32}"
    world.pin(f"registry/marin/marin_cluster:new@{digest}")
    world.add(wait=0.0)
    asker = Asker(project=world.littered.project, fleet=world.fleet)
    (use,) = asker.ask(world.cluster).known
    assert (use.by, use.digest) == (f"the added worker mine of {CLUSTER}", digest)
    world.google.inject(f"{QUEUED}.list", times=-1, status=403, message="No.")
    (unknown,) = asker.ask(world.cluster).unknown
    assert "403: No." in unknown.why


def test_a_project_that_does_not_use_tpus_has_none(world: World) -> None:
    message = "Cloud TPU API has not been used in project 1 before or it is disabled."
    for method in (f"{QUEUED}.list", f"{NODES}.list"):
        world.google.inject(method, times=-1, status=403, message=message)
    assert world.care.all() == world.care.roll() == ()


def test_the_tasks_add_list_roll_and_remove(google: Google, tmp_path: Path) -> None:
    google.cloud.clock.step = 600.0

    def invoke(*words: str) -> subprocess.CompletedProcess[str]:
        settings = {
            "INVOKE_FLEET": "infra/fleet.yaml",
            "INVOKE_STATE": str(tmp_path / "state"),
        }
        return subprocess.run(
            [Path(sys.executable).with_name("invoke"), *words],
            cwd=ROOT,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    place = ("--cluster", CLUSTER)
    planned = invoke("workers.add", "v6e-8", *place, "--capacity", "spot", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith(
        "would ask Google for v6e-8, spot, as ray-marin-us-east5-a-added"
    )
    assert google.states("nodes") == google.states("queuedResources") == {}
    made = invoke("workers.add", "v6e-8", *place, "--capacity", "spot", "--name", "mine")
    assert made.returncode == 0, made.stderr
    listed = json.loads(invoke("workers.list", *place, "--json").stdout)["workers"]
    assert [(one["name"], one["state"], one["current"]) for one in listed] == [
        ("mine", "ACTIVE", True)
    ]
    before = google.seen()
    for words, expected in (
        (
            ("add", "v6e-8", *place, "--capacity", "spot", "--name", "mine"),
            "would ask for nothing: ray-",
        ),
        (("init", *place, "--again"), "would set up mine anew, with us-east5-docker.pkg.dev/"),
        (("remove", "mine", *place), "would delete ray-marin-us-east5-a-mine-tpu (v6e-8, spot)"),
    ):
        planned = invoke(f"workers.{words[0]}", *words[1:], "--dry-run")
        assert (planned.returncode, planned.stdout.startswith(expected)) == (0, True), planned
    asked_for = {one.method.rpartition(".")[2] for one in google.seen()[len(before) :]}
    assert asked_for <= {"get", "list", "getGuestAttributes"}
    told = invoke("workers.init", *place, "--name", "mine", "--again")
    assert "1 workers were told" in told.stderr, told.stderr
    asked = invoke("workers.remove", "mine", *place)
    assert (asked.returncode, "--yes" in asked.stderr) == (3, True)
    gone = invoke("workers.remove", "mine", *place, "--yes")
    assert gone.returncode == 0, gone.stderr
    assert google.states("nodes") == google.states("queuedResources") == {}
    refused = invoke("workers.add", "v6e-8", "--capacity", "spot")
    assert (refused.returncode, "no cluster is chosen" in refused.stderr) == (1, True)

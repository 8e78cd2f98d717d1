"""``invoke gc`` against the emulated Google Cloud: the cluster's own leftovers and nothing else."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.config import read_launch_config
from rayfleet.cluster.lifecycle import alone
from rayfleet.console import Console
from rayfleet.errors import Locked, PartialFailure, RayfleetError, Unreachable
from rayfleet.health.garbage import collect
from rayfleet.worker.model import Capacity, full_name, slice_of
from rayfleet.worker.queue import Queue
from tests.support.google import Google
from tests.support.leftovers import PARENT, ROOT, Littered

pytestmark = pytest.mark.integration

NAME = "us-central2"
OURS = "marin-us-central2"
THEIRS = "marin-us-central2-staging"  # an identity that begins with ours


def node(kind: str, number: int, owner: str = OURS, what: str = "tpu") -> str:
    """An id as Ray gives it out."""
    return f"ray-{owner}-{kind}-{number:08x}-{what}"


@pytest.fixture
def littered(google: Google, tmp_path: Path) -> Littered:
    google.cloud.clock.step = 0.0
    return Littered(google=google, folder=tmp_path)


def litter(littered: Littered, owner: str = OURS) -> set[str]:
    """One of each kind of leftover; returns their names."""
    request = f"request-{owner}"
    return {
        littered.slice(node("worker", 1, owner), "PREEMPTED", owner=owner),
        littered.slice(node("worker", 2, owner), "TERMINATED", owner=owner),
        littered.slice(node("worker", 3, owner), "STOPPED", owner=owner),
        littered.slice(
            f"reserved-{owner}",
            "PREEMPTED",
            owner=owner,
            queuedResource=f"{PARENT}/queuedResources/{request}",
        ),
        littered.queued(request, "SUSPENDED", {f"reserved-{owner}": owner}),
        littered.queued(f"failed-{owner}", "FAILED", {f"never-{owner}": owner}),
        littered.machine(node("head", 4, owner, "compute"), "TERMINATED", owner=owner),
        littered.rule(f"tpu-pod-{node('worker', 5, owner)}"),
        littered.rule(f"tpu-pod-{node('worker', 6, owner)}-ssh"),
    }


def live(littered: Littered, owner: str = OURS) -> set[str]:
    """What looks like leftovers at a glance, and is none; returns the names."""
    states = ("READY", "CREATING", "STARTING", "RESTARTING", "REPAIRING", "UNKNOWN")
    running = ("RUNNING", "PROVISIONING", "STAGING", "REPAIRING")
    return {
        *(
            littered.slice(node("worker", 16 + number, owner), state, owner=owner)
            for number, state in enumerate(states)
        ),
        *(
            littered.machine(node("head", 32 + number, owner, "compute"), state, owner=owner)
            for number, state in enumerate(running)
        ),
        littered.queued(f"waiting-{owner}", "WAITING_FOR_RESOURCES", {f"later-{owner}": owner}),
        littered.rule(f"tpu-pod-{node('worker', 16, owner)}"),  # its node is alive
        littered.rule(f"tpu-pod-{node('worker', 64, owner)}", age=60.0),  # being made
        littered.rule(f"allow-ssh-{owner}"),
    }


def run(littered: Littered, *names: str, remove: bool = True) -> dict[str, Any]:
    out = io.StringIO()
    console = Console(out=out, err=io.StringIO())
    clusters = [littered.cluster(name) for name in names or (NAME,)]
    collect(littered.garbage, clusters, console, remove=remove, as_json=True)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def fates(found: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["fate"] for one in found["clusters"] for row in one["leftovers"]}


def test_its_own_leftovers_go_and_nothing_else(littered: Littered) -> None:
    others = litter(littered, THEIRS) | live(littered) | live(littered, THEIRS)
    others |= {
        littered.slice("somebodys", "PREEMPTED"),
        littered.machine("somebodys-vm", "TERMINATED"),
        littered.queued("unlabelled", "FAILED", {"x": ""}),
        littered.rule(f"tpu-pod-ray-x-{node('worker', 5)}"),
        littered.rule("tpu-pod-ray-marin-us-central2-worker-xyz-tpu"),
    }
    mine = litter(littered)
    found = run(littered)
    fresh = f"tpu-pod-{node('worker', 64)}"
    assert fates(found) == dict.fromkeys(mine, "gone") | {fresh: "stays"}
    assert littered.left() == others
    assert fates(run(littered)) == {fresh: "stays"}


def test_without_yes_nothing_is_changed(littered: Littered) -> None:
    mine, others = litter(littered), live(littered)
    asked = len(littered.google.seen())
    found = fates(run(littered, remove=False))
    assert {name for name, fate in found.items() if fate == "would go"} == mine
    assert littered.left() == mine | others
    methods = {seen.method.rpartition(".")[2] for seen in littered.google.seen()[asked:]}
    assert methods == {"list"}


def test_the_clusters_are_told_apart(littered: Littered) -> None:
    litter(littered)
    theirs = litter(littered, THEIRS)
    assert set(fates(run(littered, NAME, "us-central2-compress", remove=False))) & theirs == set()
    assert set(fates(run(littered, "us-central2-staging"))) == theirs


def test_what_the_operator_or_ray_keeps_stays_with_the_reason(littered: Littered) -> None:
    littered.reuse_stopped(NAME)
    kept = {
        littered.machine(node("worker", 1, what="compute"), "TERMINATED", owner=OURS),
        littered.machine(
            node("worker", 2, what="compute"), "TERMINATED", owner=OURS, deletionProtection=True
        ),
        littered.queued("shared", "SUSPENDED", {"mine": OURS, "yours": THEIRS}),
        littered.slice("one-of-two", "READY", owner=OURS),
        littered.queued("half", "SUSPENDED", {"one-of-two": OURS, "gone": OURS}),
        littered.slice(
            "of-active",
            "PREEMPTED",
            owner=OURS,
            queuedResource=f"{PARENT}/queuedResources/active",
        ),
        littered.queued("active", "SUSPENDING", {"of-active": OURS}),
    }
    littered.google.cloud.state.table("queuedResources")[f"{PARENT}/queuedResources/active"][
        "ends"
    ] = 1e12
    found = run(littered)
    assert littered.left() == kept
    assert set(fates(found).values()) == {"stays"}
    why = {row["name"]: row["why"] for row in found["clusters"][0]["leftovers"]}
    assert why["shared"].endswith("but slices of other owners are asked for with it")
    assert why["half"].endswith("but its slice one-of-two is READY")
    assert why["of-active"].endswith("but its queued resource is SUSPENDING")


def test_what_came_back_to_life_meanwhile_is_left_alone(littered: Littered) -> None:
    mine = litter(littered)
    cloud = littered.google.cloud
    list_once = littered.garbage.look

    def look(config: Any) -> Any:
        place = list_once(config)
        everything = place.all()
        for table in ("nodes", "instances"):
            for row in cloud.state.table(table).values():
                row["view"]["state" if table == "nodes" else "status"] = "STARTING"
        object.__setattr__(place, "all", lambda: everything)
        return place

    garbage = littered.garbage
    object.__setattr__(garbage, "look", look)
    console = Console(out=io.StringIO(), err=io.StringIO())
    with pytest.raises(PartialFailure):  # the request of a slice that lives is refused by Google
        collect(garbage, [littered.cluster(NAME)], console, remove=True, as_json=True)
    gone = mine - littered.left()
    assert gone == {"failed-marin-us-central2", *(name for name in mine if "tpu-pod" in name)}


def test_a_rollout_that_has_the_cluster_is_respected(littered: Littered) -> None:
    mine = litter(littered)
    with alone(littered.project, littered.cluster(NAME)):
        assert fates(run(littered, remove=False)) == dict.fromkeys(mine, "would go")
        with pytest.raises(Locked):
            run(littered)
        with pytest.raises(PartialFailure, match=NAME):
            run(littered, NAME, "us-central2-compress")
    assert littered.left() == mine


NODES = "tpu.projects.locations.nodes"
LISTS = (
    f"{NODES}.list",
    "tpu.projects.locations.queuedResources.list",
    "compute.instances.list",
    "compute.firewalls.list",
)


@pytest.mark.parametrize("method", LISTS)
def test_what_could_not_be_listed_is_never_taken_for_absent(
    littered: Littered, method: str
) -> None:
    mine = litter(littered)
    littered.google.inject(method, times=-1, status=503, message="Try later.")
    with pytest.raises(Unreachable, match="Try later"):
        run(littered)
    assert littered.left() == mine


@pytest.mark.parametrize(
    "fault",
    [{"status": 503, "times": 2}, {"status": 429, "times": 2}, {"cut": "after", "times": 1}],
    ids=str,
)
def test_what_passes_is_tried_again(littered: Littered, fault: dict[str, Any]) -> None:
    mine = litter(littered)
    for method in (*LISTS, f"{NODES}.delete", "compute.*.delete", "*perations.get"):
        littered.google.inject(method, **fault)
    assert set(fates(run(littered))) == mine
    assert littered.left() == set()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"status": 403, "message": "Permission 'tpu.nodes.delete' denied"}, "tpu.nodes.delete"),
        ({"fails": "13", "message": "An internal error occurred."}, "13: An internal error"),
        ({"never": True}, "still being deleted"),
    ],
    ids=str,
)
def test_what_does_not_go_is_named_and_the_rest_goes(
    littered: Littered, fault: dict[str, Any], why: str
) -> None:
    mine = litter(littered)
    stuck = node("worker", 1)
    littered.google.inject(f"{NODES}.delete", resource=f"*{stuck}", times=-1, **fault)
    out = io.StringIO()
    console = Console(out=out, err=io.StringIO())
    with pytest.raises(PartialFailure, match=stuck) as caught:
        collect(littered.garbage, [littered.cluster(NAME)], console, remove=True, as_json=True)
    assert caught.value.next_step == "invoke gc --cluster us-central2"
    rows = json.loads(out.getvalue())["clusters"][0]["leftovers"]
    failed = [row for row in rows if row["fate"] == "failed"]
    assert [(row["name"], why in row["why"]) for row in failed] == [(stuck, True)]
    assert littered.left() <= {stuck}
    assert mine - {stuck} == {row["name"] for row in rows if row["fate"] == "gone"}


def test_the_sandbox_has_none(littered: Littered) -> None:
    path = littered.fleet.config_path(littered.cluster(NAME))
    path.write_text(path.read_text().replace("availability_zone", "somewhere"))
    (found,) = run(littered)["clusters"]
    assert found == {"cluster": NAME, "looked": False, "problem": "", "leftovers": []}


def test_errors_of_one_cluster_do_not_hide_the_others(littered: Littered) -> None:
    mine = litter(littered)
    littered.fleet.config_path(littered.cluster("us-central2-compress")).unlink()
    with pytest.raises(RayfleetError, match="us-central2-compress"):
        run(littered, NAME, "us-central2-compress")
    assert littered.left() & mine == set()


def test_an_added_worker_goes_with_its_request_once_google_has_given_it_up(
    littered: Littered,
) -> None:
    config = read_launch_config(littered.fleet, littered.cluster(NAME))
    name = full_name(OURS, "reserved-1")
    Queue(config, littered.google.clock).ask_for(
        name, slice_of("v4-8"), Capacity.SPOT, owner="me", image="i:1", script="#!/bin/sh\n"
    )
    run(littered)
    assert littered.google.states("queuedResources") == {name: "WAITING_FOR_RESOURCES"}
    for seconds in (40, 70):
        littered.google.advance(seconds)
    assert fates(run(littered)) == {}
    assert littered.google.states("queuedResources") == {name: "ACTIVE"}

    littered.google.preempt(f"{PARENT}/nodes/{name}")
    found = run(littered)["clusters"][0]["leftovers"]
    assert [(row["fate"], row["why"].partition("; but ")[2]) for row in found] == [
        ("stays", "its queued resource is SUSPENDING")
    ]
    littered.google.advance(60)
    swept = run(littered)["clusters"][0]["leftovers"]
    assert [(row["kind"], row["fate"]) for row in swept] == [
        ("TPU slice", "gone"),
        ("queued resource", "gone"),
    ]
    assert littered.google.states("nodes") == littered.google.states("queuedResources") == {}


def types(littered: Littered, *words: str) -> subprocess.CompletedProcess[str]:
    """``invoke WORDS`` in the project, with the production fleet's own files."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("invoke")), *words],
        cwd=ROOT,
        env=os.environ
        | {
            "INVOKE_FLEET": "infra/fleet.yaml",
            "INVOKE_STATE": str(littered.folder / "state"),
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_as_an_operator_types_it(littered: Littered) -> None:
    mine = litter(littered)
    shown = types(littered, "gc", "--cluster", NAME)
    assert shown.returncode == 0, shown.stderr
    assert all(name in shown.stdout for name in mine)
    assert "nothing was changed" in shown.stderr
    assert littered.left() == mine
    planned = types(littered, "gc", "--all", "--yes", "--dry-run", "--json")
    assert json.loads(planned.stdout)["dry_run"] is True
    refused = types(littered, "gc", "--yes")
    assert (refused.returncode, "no cluster is chosen" in refused.stderr) == (1, True)
    assert littered.left() == mine

    littered.google.cloud.clock.step = 60.0  # nobody else moves it: gc waits in real time here
    removed = types(littered, "gc", "--cluster", NAME, "--yes", "--json")
    assert removed.returncode == 0, removed.stderr
    assert fates(json.loads(removed.stdout)) == dict.fromkeys(mine, "gone")
    assert littered.left() == set()

    why = "Required 'compute.firewalls.list' permission"
    littered.google.inject("compute.firewalls.list", times=-1, status=403, message=why)
    refused = types(littered, "gc", "--cluster", NAME)
    assert refused.returncode == 4
    assert f"cannot list the firewall rules: 403: {why}" in " ".join(refused.stderr.split())

"""Stop, nothing left, start: each looks first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rayfleet.errors import Locked, ToolFailed
from rayfleet.rollout.model import Step
from rayfleet.rollout.steps import machines
from rayfleet.rollout.steps.site import marked
from tests.support.rollout_world import CLUSTER, PLAN_ID, Way, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


def started(world: World) -> dict[str, str]:
    return dict(json.loads((world.home / ".rayfleet" / "started.json").read_text()))


def test_a_stop_takes_the_mark_with_it_and_may_run_twice(world: World) -> None:
    way = Way(world)
    way.site().mark()
    assert marked(way.folder, CLUSTER.name).exists()
    assert way.do(Step.STOP, machines.stop)["nodes"] == 1
    assert not marked(way.folder, CLUSTER.name).exists()
    assert way.do(Step.STOP, machines.stop)["nodes"] == 0


def test_a_cluster_that_another_machine_has_marked_is_not_stopped(world: World) -> None:
    way = Way(world)
    way.site().head()
    folder = world.home / ".rayfleet"
    folder.mkdir()
    (folder / "held.json").write_text('{"rollout": "R2", "operator": "bob@x", "since": "noon"}')
    with pytest.raises(Locked):
        way.do(Step.STOP, machines.stop)
    assert way.ground.calls == []


def test_a_start_launches_trusts_and_records_what_it_started(world: World) -> None:
    world.lose()
    way = Way(world)
    assert way.do(Step.START, machines.start) == {"head": "head-2", "launched": True}
    assert way.ground.calls == ["launch", "trust head-2"]
    assert started(world) == {
        "config": "h" * 64,
        "image": way.ground.config.image,
        "rollout": PLAN_ID,
    }
    assert (world.home / ".rayfleet" / "started.yaml").read_text() == "cluster_name: x\n"


def test_a_head_that_is_up_on_the_image_is_trusted_first_and_not_launched_again(
    world: World,
) -> None:
    way = Way(world)
    assert way.do(Step.START, machines.start) == {"head": "head-1", "launched": False}
    assert way.ground.calls == ["trust head-1"]
    assert started(world)["config"] == "h" * 64


@pytest.mark.parametrize("fault", ["image", "config", "dashboard", "ssh"])
def test_a_head_that_is_not_up_whole_is_launched(world: World, fault: str) -> None:
    way = Way(world)
    if fault == "image":
        way.ground.image = f"sha256:{'b' * 64}"
    elif fault == "config":
        (world.home / ".rayfleet").mkdir()
        (world.home / ".rayfleet" / "started.json").write_text('{"config": "another"}')
    elif fault == "dashboard":
        world.dashboard = False
    else:
        world.answers = False
    assert way.do(Step.START, machines.start)["launched"] is True
    assert way.ground.calls == ["trust head-1", "launch", "trust head-2"]


def test_a_ray_that_does_not_start_fails_the_step(world: World) -> None:
    world.lose()
    way = Way(world)
    way.ground.launch_error = ToolFailed("us-east5: ray up failed (exit 1)")
    with pytest.raises(ToolFailed):
        way.do(Step.START, machines.start)


def test_a_cluster_that_moves_is_stopped_at_both_places(world: World, tmp_path: Path) -> None:
    from rayfleet.rollout.steps.site import Site

    way = Way(world)
    zones = {"configs": "us-east5-c", "previous": "us-east5-b"}
    text = (
        "cluster_name: ml-us-east5\nprovider: {{type: x, availability_zone: {zone}}}\n"
        "head_node_type: h\ndocker: {{image: i}}\n"
        "available_node_types: {{h: {{min_workers: 0, node_config: {{}}}}}}\n"
    )
    for name, zone in zones.items():
        (way.folder / name / f"{CLUSTER.name}.yaml").write_text(text.format(zone=zone))
    inner = way.site()
    site = Site(
        **{
            name: getattr(inner, name)
            for name in (
                "project",
                "fleet",
                "cluster",
                "folder",
                "operator",
                "links",
                "task",
                "note",
                "narrate",
            )
        }
    )
    found = [ground.config.provider["availability_zone"] for ground in site.grounds]
    assert found == ["us-east5-c", "us-east5-b"]

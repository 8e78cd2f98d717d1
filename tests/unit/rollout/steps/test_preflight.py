"""Before anything is touched: what is refused, and what goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rayfleet.errors import Drift, Locked, Unreachable, UsageError
from rayfleet.job.dashboard import Unauthorized
from rayfleet.rollout.model import Change, Direction, Output, Settings, Step, Unhealthy
from rayfleet.rollout.performer import LeftAlone
from rayfleet.rollout.steps.preflight import preflight
from tests.support.rollout_world import PLAN_ID, Way, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


def look(way: Way) -> Output:
    return way.do(Step.PREFLIGHT, preflight)


def record(world: World, **fields: str) -> None:
    folder = world.home / ".rayfleet"
    folder.mkdir(exist_ok=True)
    (folder / "started.json").write_text(json.dumps(fields))


def test_a_healthy_cluster_is_told_as_it_is_and_marked(world: World) -> None:
    record(world, config="c" * 64)
    way = Way(world)
    assert look(way) == {
        "head": "head-1",
        "session": "session_1",
        "workers": {"worker": 1},
        "config": "c" * 64,
    }
    assert way.ground.calls == ["require image"]
    mark = json.loads((world.home / ".rayfleet" / "held.json").read_text())
    assert (mark["rollout"], mark["operator"]) == (PLAN_ID, "ana@ops-1")
    # Again, as after a kill.
    assert look(way)["head"] == "head-1"


def test_an_image_that_the_region_lacks_fails_before_anything_is_marked(world: World) -> None:
    way = Way(world)
    way.ground.image_error = UsageError("us-east5: the registry does not have it")
    with pytest.raises(UsageError, match="does not have it"):
        look(way)
    assert not (world.home / ".rayfleet" / "held.json").exists()


def test_a_head_that_was_replaced_since_the_plan_is_drift(world: World) -> None:
    with pytest.raises(Drift, match="was replaced since the plan was made"):
        look(Way(world, planned_head="head-0"))


def test_a_head_that_this_rollout_started_is_fine(world: World) -> None:
    record(world, config="c", rollout=PLAN_ID)
    assert look(Way(world, planned_head="head-0"))["head"] == "head-1"


def test_a_cluster_that_was_planned_as_down_and_came_up_is_drift(world: World) -> None:
    with pytest.raises(Drift):
        look(Way(world, planned_head="", change=Change.START))


def test_a_cluster_that_is_down_needs_only_its_image(world: World) -> None:
    world.lose()
    way = Way(world, planned_head="", change=Change.START)
    assert look(way)["head"] == ""
    assert way.ground.calls == ["require image"]


@pytest.mark.parametrize("fault", ["gone", "silent", "dashboard", "store"])
def test_an_unhealthy_head_fails_is_skipped_or_is_repaired_as_the_operator_said(
    world: World, fault: str
) -> None:
    if fault == "gone":
        world.lose()
    elif fault == "silent":
        world.answers = False
    elif fault == "dashboard":
        world.dashboard = False
    else:
        world.pages["/api/gcs_healthz"] = (503, "GCS is down")
    with pytest.raises(Unreachable, match="us-east5 is not healthy"):
        look(Way(world))
    with pytest.raises(LeftAlone, match="is not healthy"):
        look(Way(world, settings=Settings(unhealthy=Unhealthy.SKIP)))
    way = Way(world, settings=Settings(unhealthy=Unhealthy.REPAIR))
    assert look(way)["trouble"]
    assert way.said[0].startswith("not healthy, to be repaired: ")


@pytest.mark.parametrize("wish", Unhealthy)
def test_a_token_that_is_refused_always_fails(world: World, wish: Unhealthy) -> None:
    world.refuses = True
    with pytest.raises(Unauthorized):
        look(Way(world, settings=Settings(unhealthy=wish)))


def test_another_machines_rollout_refuses_and_is_named(world: World) -> None:
    folder = world.home / ".rayfleet"
    folder.mkdir()
    mark = {"rollout": "R2", "operator": "bob@laptop", "since": "2026-11-21 12:00:00 UTC"}
    (folder / "held.json").write_text(json.dumps(mark))
    with pytest.raises(Locked) as caught:
        look(Way(world))
    assert "rollout R2 of bob@laptop since 2026-11-21" in caught.value.why
    assert "invoke rollouts.unlock --cluster us-east5" in caught.value.next_step


def test_the_way_back_asks_for_the_old_image_and_not_for_a_healthy_head(world: World) -> None:
    world.answers = False
    way = Way(world, direction=Direction.BACK)
    assert look(way)["head"] == "head-1"
    assert way.ground.calls == ["require image"]


def test_without_a_config_to_go_back_to_there_is_no_way_back(world: World) -> None:
    way = Way(world, direction=Direction.BACK)
    way.fleet.config_path(way.site().cluster).unlink()
    with pytest.raises(UsageError, match="us-east5 cannot go back"):
        look(way)

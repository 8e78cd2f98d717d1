"""What a cluster was started with is known later: whole, and only what is certain."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.started import Started, previous_config, read_start, record_start
from rayfleet.errors import Unreachable
from rayfleet.project import Project
from tests.support.rollout_world import CLUSTER, World, WorldShell

LINES = b"cluster_name: x\n# 'quotes', \"more\", $HOME and `date`, \xc3\xbc\n"
RAW = LINES + b"x" * 20_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


@pytest.fixture
def config(tmp_path: Path) -> LaunchConfig:
    path = tmp_path / "config.yaml"
    path.write_bytes(RAW)
    return LaunchConfig(
        path=path,
        identity="ml-us-east5",
        provider={},
        image="registry/name:tag@sha256:1",
        min_workers={},
        hash=hashlib.sha256(RAW).hexdigest(),
    )


def test_the_config_and_what_it_was_are_left_on_the_head_and_here(
    world: World, config: LaunchConfig, tmp_path: Path
) -> None:
    head = WorldShell(world)
    assert read_start(head) == Started()  # type: ignore[arg-type]
    for _ in range(2):
        record_start(head, config, state=tmp_path, node="head-1", rollout="R1")  # type: ignore[arg-type]
    kept = Started(config=config.hash, image=config.image, rollout="R1")
    assert read_start(head) == kept  # type: ignore[arg-type]
    assert (world.home / ".rayfleet" / "started.yaml").read_bytes() == RAW
    here = tmp_path / "started"
    assert (here / "ml-us-east5.yaml").read_bytes() == RAW
    assert json.loads((here / "ml-us-east5.json").read_text())["node"] == "head-1"
    assert {path.stat().st_mode & 0o777 for path in here.iterdir()} == {0o600}


def test_an_older_record_has_no_rollout(world: World) -> None:
    folder = world.home / ".rayfleet"
    folder.mkdir()
    (folder / "started.json").write_text('{"config": "abc", "image": "i"}')
    found = read_start(WorldShell(world))  # type: ignore[arg-type]
    assert found == Started(config="abc", image="i")
    for damage in ("", "{", "[]", "null"):
        (folder / "started.json").write_text(damage)
        assert read_start(WorldShell(world)) == Started()  # type: ignore[arg-type]


def test_a_head_that_does_not_take_it_is_an_error(
    world: World, config: LaunchConfig, tmp_path: Path
) -> None:
    (world.home / ".rayfleet").write_text("a file where the folder should be")
    with pytest.raises(Unreachable, match="could not be recorded"):
        record_start(WorldShell(world), config, state=tmp_path, node="head-1")  # type: ignore[arg-type]


class Fleetwide:
    """A project whose cluster has the head of a world, as the planner asks for it."""

    def __init__(self, world: World, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.state = world, state
        self.fleet: Any = SimpleNamespace()

        def connect(address: object) -> Any:
            if not world.answers:
                raise Unreachable("us-east5: cannot reach the head")
            return nullcontext(WorldShell(world))

        nodes = SimpleNamespace(config=None, head=lambda: world.node, address=lambda node: node)
        monkeypatch.setattr("rayfleet.cluster.nodes.Nodes", lambda config: nodes)
        monkeypatch.setattr("rayfleet.cluster.nodes.address_of", lambda *_: None)
        monkeypatch.setattr("rayfleet.cluster.config.read_launch_config", lambda *_: None)
        monkeypatch.setattr("rayfleet.cluster.head.Head.open", connect)

    def previous(self) -> bytes | None:
        project = Project(root=self.state, fleet_file=self.state / "f.yaml", state=self.state)
        return previous_config(project, self.fleet, CLUSTER)


@pytest.fixture
def fleetwide(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleetwide:
    return Fleetwide(world, tmp_path / "state", monkeypatch)


def start(fleetwide: Fleetwide, config: LaunchConfig) -> None:
    head: Any = WorldShell(fleetwide.world)
    record_start(head, config, state=fleetwide.state, node="head-1")


def test_any_operator_reads_from_the_head_what_it_was_started_with(
    fleetwide: Fleetwide, config: LaunchConfig
) -> None:
    assert fleetwide.previous() is None
    start(fleetwide, config)
    assert fleetwide.previous() == RAW
    shutil.rmtree(fleetwide.state)
    assert fleetwide.previous() == RAW


def test_what_is_kept_here_is_taken_only_for_the_head_that_it_is_of(
    fleetwide: Fleetwide, config: LaunchConfig
) -> None:
    start(fleetwide, config)
    folder = fleetwide.world.home / ".rayfleet"
    (folder / "started.yaml").write_bytes(b"half a con")
    assert fleetwide.previous() == RAW
    (folder / "started.json").write_text('{"config": "of another start"}')
    assert fleetwide.previous() is None
    fleetwide.world.answers = False
    assert fleetwide.previous() == RAW
    fleetwide.world.node = "head-7"
    assert fleetwide.previous() is None
    fleetwide.world.lose()
    assert fleetwide.previous() == RAW
    (fleetwide.state / "started" / "ml-us-east5.yaml").write_bytes(b"damaged")
    assert fleetwide.previous() is None

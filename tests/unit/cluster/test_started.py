"""What a cluster was started with is known later: whole, and only what is certain."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.started import Started, read_start, record_start
from rayfleet.errors import Unreachable
from tests.support.rollout_world import World, WorldShell

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

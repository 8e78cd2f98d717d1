"""Machines go and come in small operations, each of which may be done twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rayfleet.cluster import machines as module
from rayfleet.cluster.known_hosts import lookup, record_host_key
from rayfleet.cluster.machines import Machines
from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.project import Project
from tests.support.rollout_world import CLUSTER

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1xW1ZTs2mGmcUAnvmSQ1h4CjbeA+OzHpHeqDLrSG6Q"


class FakeNodes:
    """Nodes by id. ``born`` come when the head goes; ``dying`` shut down for so many looks."""

    def __init__(self, *there: str) -> None:
        self.there = list(there)
        self.born: list[str] = []
        self.dying: dict[str, int] = {}
        self.stuck: set[str] = set()

    def head(self) -> str:
        return next((node for node in self.there if node.startswith("head")), "")

    def everything(self) -> tuple[str, ...]:
        return tuple(self.there)

    def remaining(self) -> tuple[str, ...]:
        ending = tuple(node for node, looks in self.dying.items() if looks)
        self.dying = {node: max(looks - 1, 0) for node, looks in self.dying.items()}
        return (*self.there, *ending)

    def terminate(self, node: str) -> None:
        if node in self.there and node not in self.stuck:
            self.there.remove(node)

    def terminate_all(self) -> tuple[str, ...]:
        gone = tuple(self.there)
        for node in gone:
            self.terminate(node)
        self.there += self.born
        return gone

    def host_key(self, node: str) -> str:
        return KEY


class FakeLauncher:
    """``ray up`` and ``ray down`` as effects."""

    def __init__(self, up: Callable[[], None]) -> None:
        self.calls: list[str] = []
        self._up = up

    def up(self, config: Any, on_line: Callable[[str], None]) -> None:
        self.calls.append("up")
        on_line("2026-11-21 16:30:00,123\tVINFO x.py:1 -- New status: syncing-files")
        on_line("2026-11-21 16:30:00,123\tINFO x.py:1 -- something else")
        self._up()

    def down(self, config: Any, on_line: Callable[[str], None]) -> None:
        self.calls.append("down")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(root=tmp_path, fleet_file=tmp_path / "fleet.yaml", state=tmp_path / "state")


@pytest.fixture
def ground(
    project: Project, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Machines, FakeLauncher]]:
    def make(nodes: FakeNodes) -> tuple[Machines, FakeLauncher]:
        launcher = FakeLauncher(lambda: nodes.there.append("head-2"))
        monkeypatch.setattr(module, "Launcher", lambda project: launcher)
        fleet: Any = SimpleNamespace(project="p")
        machines = Machines(
            project=project, fleet=fleet, cluster=CLUSTER, narrate=said.append, interval=0.0
        )
        config = SimpleNamespace(identity=CLUSTER.identity)
        machines.__dict__.update(nodes=nodes, config=config)
        return machines, launcher

    return make


def known(project: Project) -> int:
    return len(lookup(project.state / "known_hosts" / "p", CLUSTER.identity))


def test_where_nothing_is_left_ray_down_is_not_asked(ground: Any, said: list[str]) -> None:
    nodes = FakeNodes("head-1", "worker-1")
    machines, launcher = ground(nodes)
    assert machines.terminate() == 2
    assert machines.terminate() == 0
    assert launcher.calls == []
    assert said == ["terminating 2 nodes"]


def test_where_something_is_left_ray_down_is_asked(ground: Any) -> None:
    nodes = FakeNodes("head-1")
    nodes.born = ["worker-late"]
    machines, launcher = ground(nodes)
    assert machines.terminate() == 1
    assert launcher.calls == ["down"]


def test_the_end_is_waited_for_late_ones_go_too_and_the_key_is_forgotten(
    ground: Any, project: Project
) -> None:
    nodes = FakeNodes("worker-late")
    nodes.dying = {"head-1": 3}
    machines, _ = ground(nodes)
    record_host_key(project.state / "known_hosts" / "p", CLUSTER.identity, KEY)
    machines.require_none()
    assert nodes.everything() == ()
    assert not any(nodes.dying.values())
    assert known(project) == 0
    machines.require_none()


def test_what_does_not_go_is_named(ground: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GONE_TIMEOUT", 0.0)
    nodes = FakeNodes("worker-1")
    nodes.stuck = {"worker-1"}
    machines, _ = ground(nodes)
    with pytest.raises(ToolFailed, match=r"is not all gone: still there: worker-1"):
        machines.require_none()


def test_a_launch_trusts_the_new_heads_own_key(
    ground: Any, project: Project, said: list[str]
) -> None:
    machines, launcher = ground(FakeNodes())
    assert machines.launch() == "head-2"
    assert launcher.calls == ["up"]
    assert known(project) == 1
    assert said == ["ray up", "syncing-files"]


def test_a_head_that_is_gone_right_after_its_start_is_an_error(ground: Any) -> None:
    nodes = FakeNodes()
    machines, launcher = ground(nodes)
    launcher._up = lambda: None
    with pytest.raises(Unreachable, match="is gone right after its start"):
        machines.launch()

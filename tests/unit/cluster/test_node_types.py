"""What the generated configs say of node types: who may be taken back, how many hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.config import NodeType, read_launch_config, read_node_types
from rayfleet.fleet.load import load_fleet

ROOT = Path(__file__).resolve().parents[3]


def kind_of(node_config: dict[str, Any]) -> NodeType:
    content = {
        "head_node_type": "head",
        "available_node_types": {"head": {}, "worker": {"node_config": node_config}},
    }
    return read_node_types(content)[1]


@pytest.mark.parametrize(
    ("node_config", "preemptible"),
    [
        ({}, False),
        ({"image": "x", "shm_size": "512m"}, False),
        ({"schedulingConfig": {"preemptible": True}}, True),
        ({"schedulingConfig": {"preemptible": False}}, False),
        ({"schedulingConfig": {"spot": True}}, True),
        ({"schedulingConfig": {"reserved": True}}, False),
        ({"scheduling": {"preemptible": True}}, True),
        ({"scheduling": {"provisioningModel": "SPOT"}}, True),
        ({"scheduling": {"provisioningModel": "STANDARD"}}, False),
        ({"scheduling": None}, False),
    ],
)
def test_who_may_be_taken_back(node_config: dict[str, Any], preemptible: bool) -> None:
    assert kind_of(node_config).preemptible is preemptible


@pytest.mark.parametrize(
    ("accelerator", "hosts"),
    [
        ("", 1),
        ("v4-8", 1),
        ("v4-16", 2),
        ("v4-4096", 512),
        ("v5p-8", 1),
        ("v5p-64", 8),
        ("v5litepod-4", 1),
        ("v5litepod-8", 1),
        ("v5litepod-16", 4),
        ("v5litepod-256", 64),
        ("v6e-8", 1),
        ("v6e-128", 32),
        ("nvidia-tesla-t4", 1),
    ],
)
def test_how_many_hosts_a_slice_has(accelerator: str, hosts: int) -> None:
    assert kind_of({"acceleratorType": accelerator}).hosts == hosts


def test_hosts_are_counted_as_ray_itself_counts_them() -> None:
    from ray._private.accelerators.tpu import (
        get_num_tpu_visible_chips_per_host,
        get_total_chips_from_accelerator_type,
    )

    for kind in ("v4", "v5p", "v5litepod", "v6e"):
        for size in (8, 16, 32, 64, 128, 256):
            accelerator = f"{kind}-{size}"
            chips = get_total_chips_from_accelerator_type(accelerator)
            theirs = chips // get_num_tpu_visible_chips_per_host(accelerator)
            assert kind_of({"acceleratorType": accelerator}).hosts == theirs, accelerator


def test_workers_of_the_production_fleet_are_preemptible_and_its_heads_are_not(
    tmp_path: Path,
) -> None:
    fleet = load_fleet(ROOT / "infra" / "fleet.yaml", root=ROOT, state=tmp_path)
    for cluster in fleet.clusters.values():
        head, *workers = read_launch_config(fleet, cluster).node_types
        assert not head.preemptible
        assert workers
        assert all(worker.preemptible for worker in workers)

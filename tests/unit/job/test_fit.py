"""A job that no node of a cluster can ever hold is refused, and no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rayfleet.cluster.config import NodeType, read_node_types
from rayfleet.cluster.live import LiveNode, parse_nodes
from rayfleet.errors import ToolFailed, UsageError
from rayfleet.job.fit import require_fit, selects
from rayfleet.job.needs import Needs

HEAD = LiveNode(id="h" * 56, head=True, resources={"memory": 1e9, "head_node": 1.0})
HAND = LiveNode(
    id="abcdef0123456789",
    resources={"CPU": 240.0, "TPU": 4.0, "my-slice": 1.0, "memory": 4e11, "node:10.0.0.1": 1.0},
    labels={"tier": "reserved", "ray.io/node-id": "abc"},
)


SLICE = {
    "min_workers": 0,
    "max_workers": 8,
    "resources": {"CPU": 120, "TPU": 4},
    "node_config": {"acceleratorType": "v6e-4", "runtimeVersion": "v2-alpha-tpuv6e"},
}
CONFIG: Mapping[str, Any] = {
    "max_workers": 1024,
    "head_node_type": "head_default",
    "head_start_ray_commands": ["ray stop", "ray start --head --port=6379"],
    "worker_start_ray_commands": ["ray stop", "ray start --address=$RAY_HEAD_IP:6379"],
    "available_node_types": {
        "head_default": {
            "min_workers": 0,
            "max_workers": 0,
            "resources": {"CPU": 0, "head_node": 1},
            "node_config": {"machineType": "n2-standard-8"},
        },
        **dict.fromkeys(("tpu_worker", "slice_8", "slice_16", "slice_32", "slice_64"), SLICE),
    },
}
TYPES = read_node_types(CONFIG)


def types_with(worker: Mapping[str, Any], **changes: object) -> tuple[NodeType, ...]:
    """The node types of a config with a head and one type of worker."""
    head = CONFIG["available_node_types"]["head_default"]
    kinds = {
        "head_default": head,
        "worker": {"min_workers": 0, "max_workers": 2, "node_config": {}} | dict(worker),
    }
    return read_node_types({**CONFIG, "available_node_types": kinds, **changes})


def check(needs: Needs, types: Sequence[NodeType], *live: LiveNode) -> None:
    require_fit(needs, types, lambda: live or (HEAD,), cluster="us-east5")


def unreadable() -> Sequence[LiveNode]:
    raise ToolFailed("cannot list the nodes")


def unasked() -> Sequence[LiveNode]:
    raise AssertionError("nobody should ask for the nodes")


@pytest.mark.parametrize(
    "needs",
    [
        Needs(),
        Needs(num_cpus=120, resources={"TPU": 4}),
        Needs(resources={"head_node": 0.5}),
        # Ray finds how much memory a machine has, and how many CPUs where nobody says so.
        Needs(memory=10**15),
        # Ray makes these by itself.
        Needs(resources={"TPU-v6e-8-head": 1, "TPU": 4}),
        Needs(resources={"accelerator_type:TPU-V6E": 0.001}),
        Needs(resources={"node:10.0.0.1": 0.001}),
        Needs(resources={"ray-marin-us-east5-worker-1234-tpu": 1}),
        Needs(num_cpus=1, labels={"ray.io/node-group": "x"}),
        Needs(num_cpus=1, labels={"tier": "!spot"}),
    ],
)
def test_what_a_type_can_hold_is_not_asked_about(needs: Needs) -> None:
    require_fit(needs, TYPES, unasked, cluster="us-east5")


@pytest.mark.parametrize(
    "needs",
    [
        Needs(num_cpus=121),
        Needs(resources={"TPU": 8}),
        Needs(num_gpus=1),
        Needs(resources={"nonesuch": 1}),
        Needs(resources={"head_node": 1, "TPU": 1}),
        Needs(resources={"TPU-v6e-8-head": 1, "TPU": 8}),
        Needs(labels={"tier": "spot"}),
        Needs(num_cpus=1, labels={"tier": "in(spot, cheap)"}),
    ],
)
def test_what_no_type_and_no_node_can_hold_is_refused_with_what_would_fit(needs: Needs) -> None:
    with pytest.raises(UsageError) as caught:
        check(needs, TYPES)
    assert needs.text() in caught.value.why
    assert "head_default: at most head_node 1" in caught.value.why
    assert "tpu_worker, slice_8, slice_16 and 2 more: at most CPU 120, TPU 4" in caught.value.why


def test_a_node_that_joined_by_hand_counts_and_is_offered() -> None:
    check(Needs(num_cpus=200, resources={"my-slice": 1}), TYPES, HEAD, HAND)
    check(Needs(num_cpus=200, labels={"tier": "reserved"}), TYPES, HEAD, HAND)
    with pytest.raises(UsageError) as caught:
        check(Needs(num_cpus=241), TYPES, HEAD, HAND)
    assert (
        "the node abcdef01: at most CPU 240, TPU 4, my-slice 1, memory 372.5 GiB, "
        "label tier=reserved" in caught.value.why
    )


def test_a_head_that_cannot_tell_its_nodes_refuses_nothing() -> None:
    for live in (unreadable, tuple[LiveNode, ...]):
        require_fit(Needs(num_gpus=1), TYPES, live, cluster="us-east5")


def test_a_type_that_may_have_no_nodes_holds_nothing() -> None:
    worker = {"resources": {"CPU": 4}, "max_workers": 0}
    with pytest.raises(UsageError):
        check(Needs(num_cpus=1), types_with(worker))
    worker["max_workers"] = 2
    with pytest.raises(UsageError):
        check(Needs(num_cpus=1), types_with(worker, max_workers=0))
    check(Needs(num_cpus=1), types_with(worker))


def test_cpus_and_accelerators_that_the_config_does_not_state_may_be_there() -> None:
    bare = types_with({"resources": {}})
    check(Needs(num_cpus=500), bare)
    with pytest.raises(UsageError):
        check(Needs(num_gpus=1), bare)
    gpus = types_with({"node_config": {"machineType": "a2-highgpu-1g"}})
    check(Needs(num_gpus=1), gpus)
    tpus = types_with({"node_config": {"acceleratorType": "v6e-4"}})
    check(Needs(resources={"TPU": 4}), tpus)


def test_the_command_line_of_ray_wins_over_the_config() -> None:
    worker = {"resources": {"CPU": 4}, "labels": {"tier": "spot"}}
    check(Needs(num_cpus=4, labels={"tier": "spot"}), types_with(worker))
    with pytest.raises(UsageError, match="no node that it can have"):
        check(Needs(num_cpus=8), types_with(worker))
    commands = ["ray start --address=x --num-cpus=8 --labels='a=b' --resources='{\"x\": 1}'"]
    told = types_with(worker, worker_start_ray_commands=commands)
    check(Needs(num_cpus=8, resources={"x": 1}, labels={"a": "b"}), told)


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ("spot", True),
        ("other", False),
        ("!spot", False),
        ("!other", True),
        ("in(a, spot)", True),
        ("in(a,b)", False),
        ("!in(a, spot)", False),
        ("!in(a,b)", True),
    ],
)
def test_selectors_mean_what_they_mean_to_ray(selector: str, taken: bool) -> None:
    assert selects(selector, {"tier": "spot"}, "tier") is taken
    assert selects(selector, {}, "tier") is selector.startswith("!")


def test_only_nodes_that_are_up_are_read() -> None:
    row = {
        "node_id": "n1",
        "state": "ALIVE",
        "is_head_node": True,
        "resources_total": {"CPU": 1.0},
        "labels": {"a": "b"},
    }
    document = {"data": {"result": {"result": [row, row | {"state": "DEAD"}]}}}
    assert parse_nodes(document) == (
        LiveNode(id="n1", head=True, resources={"CPU": 1.0}, labels={"a": "b"}),
    )
    for wrong in ({}, [], None, {"data": {"result": {"result": [{"state": "ALIVE"}]}}}):
        with pytest.raises(ToolFailed, match="cannot read the nodes"):
            parse_nodes(wrong)

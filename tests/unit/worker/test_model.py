"""What one asks Google for, and what a worker's state means."""

from __future__ import annotations

import pytest

from rayfleet.errors import UsageError
from rayfleet.worker.model import (
    Added,
    Capacity,
    capacity_of,
    full_name,
    labels_of,
    short_name,
    slice_of,
    terms_of,
)
from rayfleet.worker.show import capacity_named

IMAGE = f"us-docker.pkg.dev/p/marin/marin_cluster:4554f82@sha256:{'5e' * 32}"


@pytest.mark.parametrize(
    ("word", "accelerator", "runtime"),
    [
        ("v4-16", "v4-16", "tpu-ubuntu2204-base"),
        ("v5e-8", "v5litepod-8", "v2-alpha-tpuv5-lite"),
        ("v5litepod-8", "v5litepod-8", "v2-alpha-tpuv5-lite"),
        ("v5p-64", "v5p-64", "v2-alpha-tpuv5"),
        ("v6e-8", "v6e-8", "v2-alpha-tpuv6e"),
    ],
)
def test_a_slice_has_the_clouds_name_and_its_runtime(
    word: str, accelerator: str, runtime: str
) -> None:
    found = slice_of(word)
    assert (found.accelerator_type, found.runtime_version) == (accelerator, runtime)


@pytest.mark.parametrize("word", ["v6e", "v6e-", "v6e-big", "cpu-8", "v7-8", ""])
def test_what_is_no_slice_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="there is no slice"):
        slice_of(word)


@pytest.mark.parametrize("word", ["best_effort", "preemptible", ""])
def test_a_capacity_that_the_api_does_not_have_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="not one of reserved, spot, on-demand"):
        capacity_named(word)
    assert capacity_named("on_demand") is Capacity.ON_DEMAND


@pytest.mark.parametrize("capacity", Capacity)
def test_terms_are_read_back_from_what_was_asked_for(capacity: Capacity) -> None:
    request, node = terms_of(capacity)
    assert capacity_of(request, node) == capacity
    assert capacity_of({}, {"schedulingConfig": {"spot": True}}) == Capacity.SPOT


def test_ray_knows_a_worker_by_its_name_and_leaves_it_alone() -> None:
    from ray.autoscaler._private.gcp.node import GCPNodeType
    from ray.autoscaler.tags import NODE_KIND_UNMANAGED, TAG_RAY_CLUSTER_NAME, TAG_RAY_NODE_KIND

    name = full_name("marin-us-east5", "mine")
    assert GCPNodeType.name_to_type(name) is GCPNodeType.TPU
    assert full_name("marin-us-east5", name) == name
    assert short_name("marin-us-east5", name) == "mine"
    labels = labels_of("marin-us-east5", name, owner="Ann.Lee@host", image=IMAGE)
    assert labels[TAG_RAY_CLUSTER_NAME] == "marin-us-east5"
    assert labels[TAG_RAY_NODE_KIND] == NODE_KIND_UNMANAGED
    assert labels["rayfleet-owner"] == "ann-lee-host"
    assert labels["rayfleet-image"] == ("5e" * 32)[:63]


@pytest.mark.parametrize("name", ["Mine", "a_b", "x" * 60])
def test_a_name_that_google_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no name for a worker"):
        full_name("marin-us-east5", name)


def added(*told: str, **more: object) -> Added:
    rest = {"name": "w", "state": "ACTIVE", "node": "READY", "machines": 2, "image": IMAGE}
    kind = {"accelerator_type": "v6e-8", "capacity": "spot", "owner": "ann"}
    return Added(**{**rest, **kind, "told": told, **more})  # type: ignore[arg-type]


def test_a_worker_is_whole_when_all_its_machines_have_joined_with_its_image() -> None:
    joined = f"joined {IMAGE}"
    assert added(joined, joined).trouble == ""
    assert added(joined).trouble == "silent: 1"
    assert added(joined, "joined old:image").trouble == "another image"
    mismatch = f"version-mismatch {IMAGE} Ray: 2.60.0 Ray: 2.53.0"
    assert added(mismatch, joined).trouble == "version-mismatch: 1, Ray: 2.60.0 Ray: 2.53.0"
    assert added(node="PREEMPTED").trouble == "the slice is PREEMPTED"
    assert added(node="", state="FAILED", cause="no quota").trouble == "no quota"
    assert added(node="", state="WAITING_FOR_RESOURCES").trouble == ""

"""What Google's APIs answer, read with care."""

from __future__ import annotations

from typing import Any

import pytest

from rayfleet.health.cloud import SHARED, GoogleHoldings
from tests.unit.health.sights import CONFIG, IDENTITY


def spec(owner: str, **more: Any) -> dict[str, Any]:
    return {"node": {"labels": {"ray-cluster-name": owner}}, **more}


@pytest.mark.parametrize(
    ("specs", "nodes"),
    [
        ([spec(IDENTITY, nodeId="w")], ("w",)),
        ([spec(IDENTITY, multisliceParams={"nodeCount": 2, "nodeIdPrefix": "x"})], ("x-0", "x-1")),
        ([spec(IDENTITY, multiNodeParams={"nodeCount": 2})], ("q-0", "q-1")),
        ([spec(IDENTITY)], ()),
    ],
)
def test_the_slices_of_a_request_are_known_by_name(
    specs: list[dict[str, Any]], nodes: tuple[str, ...]
) -> None:
    row = {"name": "projects/p/locations/z/queuedResources/q", "tpu": {"nodeSpec": specs}}
    found = GoogleHoldings(CONFIG)._queued(row)
    assert (found.name, found.nodes, found.kept) == ("q", nodes, "")


def test_a_request_with_slices_of_others_is_kept() -> None:
    specs = [spec(IDENTITY, nodeId="a"), spec(f"{IDENTITY}-a", nodeId="b")]
    place = GoogleHoldings(CONFIG)
    row = {"name": "q", "tpu": {"nodeSpec": specs}, "state": {"state": "SUSPENDED"}}
    assert place._asks_for_ours(row)
    assert place._queued(row).kept == SHARED
    assert not place._asks_for_ours({"name": "q", "tpu": {"nodeSpec": specs[1:]}})
    assert not place._asks_for_ours({"name": "q"})

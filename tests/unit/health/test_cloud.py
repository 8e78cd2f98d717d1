"""What Google's APIs answer, read with care."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from rayfleet.errors import Unreachable
from rayfleet.health.cloud import SHARED, GoogleHoldings
from tests.unit.health.sights import CONFIG, IDENTITY


@dataclass
class Canned:
    """A collection of an API whose list has these pages."""

    pages: list[Mapping[str, Any]]
    asked: list[dict[str, Any]] = field(default_factory=list)

    def list(self, **asked: Any) -> Canned:
        self.asked.append(asked)
        return self

    def list_next(self, query: Canned, answer: Mapping[str, Any]) -> Canned | None:
        return self if self.pages else None

    def execute(self) -> Mapping[str, Any]:
        return self.pages.pop(0)


def test_every_page_is_read() -> None:
    place = GoogleHoldings(CONFIG)
    collection = Canned([{"nodes": [{"name": "a"}]}, {}, {"nodes": [{"name": "b"}]}])
    found = place._pages("list", collection, "nodes", parent="p")
    assert [row["name"] for row in found] == ["a", "b"]
    assert collection.asked == [{"parent": "p"}]


def test_a_zone_that_google_does_not_reach_is_not_empty() -> None:
    collection = Canned([{"nodes": []}, {"unreachable": ["us-east5-b"]}])
    with pytest.raises(Unreachable, match="Google does not reach us-east5-b"):
        GoogleHoldings(CONFIG)._pages("list", collection, "nodes", parent="p")


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

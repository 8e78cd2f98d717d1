"""A config that Google would refuse is refused here, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.google import Google
from tests.support.google_cluster import GoogleCluster, google_cluster

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(google: Google) -> GoogleCluster:
    return google_cluster(google)


def _head(change: Callable[[dict[str, Any]], object]) -> tuple[str, Any]:
    return "head_default", change


def _slice(change: Callable[[dict[str, Any]], object]) -> tuple[str, Any]:
    return "tpu_worker", change


def _disk(node: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = node["disks"][0]["initializeParams"]
    return made


WRONG = {
    "a machine that there is not": (
        _head(lambda node: node.update(machineType="n2-standard-7")),
        "Machine type with name 'n2-standard-7' does not exist",
    ),
    "a misspelt field": (
        _head(lambda node: node.update(scheduler={})),
        'Unknown name "scheduler"',
    ),
    "no disk": (_head(lambda node: node.pop("disks")), "boot disk"),
    "no image": (
        _head(lambda node: _disk(node).update(sourceImage="projects/x/global/images/none")),
        "'projects/x/global/images/none' was not found",
    ),
    "no network": (_head(lambda node: node.update(networkInterfaces=[])), "network interface"),
    "a label in capitals": (
        _head(lambda node: node.update(labels={"Owner": "me"})),
        "Label keys",
    ),
    "a slice of another zone": (
        _slice(lambda node: node.update(acceleratorType="v5p-8")),
        "'v5p-8' is not found in zone us-central2-b",
    ),
    "a size that there is not": (
        _slice(lambda node: node.update(acceleratorType="v4-24")),
        "'v4-24' is not found",
    ),
    "the runtime of another generation": (
        _slice(lambda node: node.update(runtimeVersion="v2-alpha-tpuv6e")),
        "'v2-alpha-tpuv6e' does not run on v4-8",
    ),
    "no runtime": (_slice(lambda node: node.pop("runtimeVersion")), "not a runtime version"),
    "two kinds of capacity": (
        _slice(lambda node: node["schedulingConfig"].update(reserved=True)),
        "only one kind of capacity",
    ),
    "a flag that is a word": (
        _slice(lambda node: node["schedulingConfig"].update(preemptible="true")),
        "node.schedulingConfig.preemptible",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_config_is_refused(cluster: GoogleCluster, wrong: str) -> None:
    (node_type, change), said = WRONG[wrong]
    change(cluster.content["available_node_types"][node_type]["node_config"])
    with pytest.raises(Exception, match=said):
        cluster.add(node_type)
    assert cluster.nodes.remaining() == ()

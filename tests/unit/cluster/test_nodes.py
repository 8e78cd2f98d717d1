"""What is shutting down is not gone: Ray does not count it, and its processes may still run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rayfleet.cluster.nodes import ENDING, shutting_down

pytest.importorskip("ray")

OURS = {"ray-cluster-name": "marin"}
VMS = [
    {"name": "runs", "status": "RUNNING", "labels": OURS},
    {"name": "stops", "status": "STOPPING", "labels": OURS},
    {"name": "stopped", "status": "TERMINATED", "labels": OURS},
    {"name": "others", "status": "STOPPING", "labels": {"ray-cluster-name": "else"}},
    {"name": "nobodys", "status": "STOPPING"},
]
TPUS = [
    {"name": "projects/p/locations/z/nodes/tpu", "state": "DELETING", "labels": OURS},
    {"name": "projects/p/locations/z/nodes/old", "state": "PREEMPTED", "labels": OURS},
]


class Query:
    """A request to Google's API that is answered from memory."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    def execute(self, http: object) -> dict[str, Any]:
        assert http == "a new connection"
        return self.answer


def resource(api: object) -> SimpleNamespace:
    """What Ray's GCPCompute and GCPTPU have."""
    return SimpleNamespace(
        resource=api,
        cluster_name="marin",
        project_id="p",
        availability_zone="z",
        path="projects/p/locations/z",
        get_new_authorized_http=lambda http: "a new connection",
    )


def compute(rows: list[Any]) -> SimpleNamespace:
    def query(*, project: str, zone: str, filter: str) -> Query:
        assert (project, zone, filter) == ("p", "z", "labels.ray-cluster-name = marin")
        return Query({"items": rows} if rows else {})

    instances = SimpleNamespace(list=query)
    return resource(SimpleNamespace(_http=None, instances=lambda: instances))


def tpus(rows: list[Any]) -> SimpleNamespace:
    nodes = SimpleNamespace(list=lambda *, parent: Query({"nodes": rows}))
    locations = SimpleNamespace(nodes=lambda: nodes)
    projects = SimpleNamespace(locations=lambda: locations)
    return resource(SimpleNamespace(_http=None, projects=lambda: projects))


def test_vms_and_tpus_of_the_cluster_that_are_shutting_down_are_listed() -> None:
    provider = SimpleNamespace(resources={"compute": compute(VMS), "tpu": tpus(TPUS)})
    assert shutting_down(provider) == ("stops", "projects/p/locations/z/nodes/tpu")
    assert shutting_down(SimpleNamespace(resources={"compute": compute([])})) == ()


def test_a_provider_that_is_not_googles_has_none() -> None:
    assert shutting_down(object()) == ()


def test_ray_counts_none_of_these_states_as_alive() -> None:
    node = pytest.importorskip("ray.autoscaler._private.gcp.node")
    alive = node.GCPComputeNode.NON_TERMINATED_STATUSES | node.GCPTPUNode.NON_TERMINATED_STATUSES
    assert not ENDING & alive
    assert not ENDING & node.GCPComputeNode.TERMINATED_STATUSES

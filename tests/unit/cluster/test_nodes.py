"""What is shutting down is not gone, and what was preempted exists: Ray counts neither."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rayfleet.cluster.google import (
    ALIVE,
    ENDING,
    HAS_TPUS,
    alive,
    existing,
    is_google,
    remaining,
    section,
)

OURS = {"ray-cluster-name": "marin"}
VMS = [
    {"name": "runs", "status": "RUNNING", "labels": OURS | {"ray-node-type": "head"}},
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
        return self.answer


def next_page(query: Query, answer: dict[str, Any]) -> Query | None:
    return Query(answer["next"]) if "next" in answer else None


def resource(api: object) -> SimpleNamespace:
    """What Ray's GCPCompute and GCPTPU have."""
    return SimpleNamespace(
        resource=api,
        cluster_name="marin",
        project_id="p",
        availability_zone="z",
        path="projects/p/locations/z",
    )


def compute(rows: list[Any]) -> SimpleNamespace:
    def query(*, project: str, zone: str, filter: str) -> Query:
        assert (project, zone, filter) == ("p", "z", "labels.ray-cluster-name = marin")
        return Query({"items": rows} if rows else {})

    instances = SimpleNamespace(list=query, list_next=next_page)
    http = SimpleNamespace(credentials=None)
    return resource(SimpleNamespace(_http=http, instances=lambda: instances))


def tpus(rows: list[Any]) -> SimpleNamespace:
    first, second = {"nodes": rows[:1]}, {"nodes": rows[1:]}
    nodes = SimpleNamespace(
        list=lambda *, parent: Query(first | {"next": second}), list_next=next_page
    )
    locations = SimpleNamespace(nodes=lambda: nodes)
    projects = SimpleNamespace(locations=lambda: locations)
    http = SimpleNamespace(credentials=None)
    return resource(SimpleNamespace(_http=http, projects=lambda: projects))


@pytest.fixture
def provider() -> SimpleNamespace:
    return SimpleNamespace(resources={"compute": compute(VMS), "tpu": tpus(TPUS)})


def test_all_vms_and_tpus_of_the_cluster_remain_until_they_are_gone(
    provider: SimpleNamespace,
) -> None:
    old, tpu = "projects/p/locations/z/nodes/old", "projects/p/locations/z/nodes/tpu"
    assert remaining(provider) == ("runs", "stops", "stopped", tpu, old)
    assert existing(provider, {}) == ("runs", "stopped", old)
    assert alive(provider, {}) == ("runs",)
    assert alive(provider, {"ray-node-type": "worker"}) == ()
    assert remaining(SimpleNamespace(resources={"compute": compute([])})) == ()


def test_another_provider_is_not_googles(provider: SimpleNamespace) -> None:
    assert is_google(provider)
    assert not is_google(object())


def test_ray_counts_these_states_as_alive_and_no_other() -> None:
    from ray.autoscaler._private.gcp.node import GCPComputeNode, GCPTPUNode

    both = GCPComputeNode.NON_TERMINATED_STATUSES | GCPTPUNode.NON_TERMINATED_STATUSES
    assert both == ALIVE
    assert not ENDING & (ALIVE | GCPComputeNode.TERMINATED_STATUSES)


def test_ray_is_told_of_tpus_by_its_launchers_own_mark() -> None:
    from ray.autoscaler._private.gcp.config import HAS_TPU_PROVIDER_FIELD

    assert HAS_TPU_PROVIDER_FIELD == HAS_TPUS
    assert section({"type": "gcp"}, tpus=True) == {"type": "gcp", HAS_TPUS: True}
    assert section({"type": "gcp"}, tpus=False) == {"type": "gcp"}

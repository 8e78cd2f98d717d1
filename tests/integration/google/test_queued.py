"""Queued resources, by Google's own client."""

from __future__ import annotations

from typing import Any

import pytest

from rayfleet.google_api import said, service, status_of
from tests.support.google import PROJECT, Google

pytestmark = pytest.mark.integration

ZONE = "us-east5-a"
PARENT = f"projects/{PROJECT}/locations/{ZONE}"
NAME = f"{PARENT}/queuedResources/q"
NODE = {
    "acceleratorType": "v6e-8",
    "runtimeVersion": "v2-alpha-tpuv6e",
    "labels": {"rayfleet-owner": "me"},
    "networkConfig": {"enableExternalIps": True},
}


@pytest.fixture(params=["v2", "v2alpha1"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(google: Google, version: str) -> Any:
    google.cloud.clock.step = 0.0
    return service("tpu", version).projects().locations().queuedResources()


def ask(queue: Any, node: dict[str, Any] = NODE, **more: Any) -> None:
    spec = {"parent": PARENT, "nodeId": "w1", "node": node}
    body = {"tpu": {"nodeSpec": [spec]}, **more}
    queue.create(parent=PARENT, queuedResourceId="q", body=body).execute()


def state(queue: Any) -> str:
    return str(queue.get(name=NAME).execute()["state"]["state"])


def refused(request: Any) -> tuple[int, str]:
    with pytest.raises(Exception) as error:
        request.execute()
    return status_of(error.value), said(error.value)


def test_a_request_waits_is_fulfilled_and_ends_with_force(
    google: Google, queue: Any, version: str
) -> None:
    if version == "v2alpha1":
        ask(queue, guaranteed={"reserved": True})
    else:  # only v2alpha1 has it beside the slice
        ask(queue, NODE | {"schedulingConfig": {"reserved": True}})
    assert state(queue) == "WAITING_FOR_RESOURCES"
    google.advance(40)
    assert state(queue) == "PROVISIONING"
    assert google.states("nodes") == {"w1": "CREATING"}
    google.advance(70)
    assert state(queue) == "ACTIVE"
    node = service("tpu", "v2").projects().locations().nodes()
    found = node.get(name=f"{PARENT}/nodes/w1").execute()
    assert found["queuedResource"] == NAME
    assert found["schedulingConfig"] == {"reserved": True}
    assert found["networkEndpoints"][0]["accessConfig"]["externalIp"].startswith("127.")

    code, why = refused(queue.delete(name=NAME))
    assert (code, "set force" in why) == (400, True)
    queue.delete(name=NAME, force=True).execute()
    assert state(queue) == "DELETING"
    google.advance(60)
    assert refused(queue.get(name=NAME))[0] == 404
    assert google.states("nodes") == {}


def test_without_capacity_it_waits_until_it_may_not_any_more(google: Google, queue: Any) -> None:
    google.cloud.stockouts.add(("v6e-8", ZONE))
    ask(queue, spot={}, queueingPolicy={"validUntilDuration": "600s"})
    google.advance(500)
    assert state(queue) == "WAITING_FOR_RESOURCES"
    google.advance(200)
    shown = queue.get(name=NAME).execute()["state"]
    assert shown["state"] == "FAILED"
    assert "expired" in shown["failedData"]["error"]["message"]
    assert google.states("nodes") == {}
    queue.delete(name=NAME).execute()


def test_capacity_that_comes_is_taken(google: Google, queue: Any) -> None:
    google.cloud.stockouts.add(("v6e-8", ZONE))
    ask(queue)
    google.advance(3600)
    google.cloud.stockouts.clear()
    google.advance(1)
    assert state(queue) == "PROVISIONING"


def test_a_preempted_slice_suspends_its_request(google: Google, queue: Any) -> None:
    ask(queue, spot={})
    google.advance(40)
    google.advance(70)
    google.preempt("w1")
    assert state(queue) == "SUSPENDING"
    google.advance(60)
    shown = queue.get(name=NAME).execute()["state"]
    assert (shown["state"], shown["stateInitiator"]) == ("SUSPENDED", "SERVICE")
    assert google.states("nodes") == {"w1": "PREEMPTED"}
    assert refused(queue.delete(name=NAME))[0] == 400  # its slice is still there
    queue.delete(name=NAME, force=True).execute()


def test_a_slice_that_is_deleted_alone_leaves_a_suspended_request(
    google: Google, queue: Any
) -> None:
    ask(queue)
    google.advance(40)
    google.advance(70)
    service("tpu", "v2").projects().locations().nodes().delete(name=f"{PARENT}/nodes/w1").execute()
    google.advance(60)
    assert state(queue) == "SUSPENDED"
    queue.delete(name=NAME).execute()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"spot": {}, "guaranteed": {}}, "only one of"),
        ({"tpu": {"nodeSpec": []}}, "node_spec"),
        ({"tpu": {"nodeSpec": [{"parent": PARENT, "node": NODE}]}}, "either node_id"),
        ({"tpu": {"nodeSpec": [{"parent": "x", "nodeId": "w", "node": NODE}]}}, "parent"),
        ({"besteffort": {}}, "Unknown name"),
    ],
)
def test_a_wrong_request_is_refused(queue: Any, more: dict[str, Any], said: str) -> None:
    spec = {"parent": PARENT, "nodeId": "w1", "node": NODE}
    body = {"tpu": {"nodeSpec": [spec]}, **more}
    code, why = refused(queue.create(parent=PARENT, queuedResourceId="q", body=body))
    assert code == 400
    assert said in why


def test_several_slices_are_one_request(google: Google, queue: Any, version: str) -> None:
    key = "multisliceParams" if version == "v2" else "multiNodeParams"
    spec = {"parent": PARENT, "node": NODE, key: {"nodeCount": 2, "nodeIdPrefix": "w"}}
    queue.create(parent=PARENT, queuedResourceId="q", body={"tpu": {"nodeSpec": [spec]}}).execute()
    google.advance(40)
    google.advance(70)
    assert google.states("nodes") == {"w-0": "READY", "w-1": "READY"}
    assert state(queue) == "ACTIVE"

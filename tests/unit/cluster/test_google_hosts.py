"""The machines of slices, and the host keys that machines write down themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rayfleet.cluster.google_hosts import address, addresses, host_keys
from rayfleet.cluster.known_hosts import lookup, record_host_key

OURS = {"ray-node-type": "worker", "ray-cluster-name": "marin"}
SLICE = "projects/p/locations/z/nodes/ray-marin-worker-ab-tpu"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIPUHODfVrlx7GzfyGe3FbGof/j0pqgVCYfo8DvOxlF7q"
ENDS = [
    {"ipAddress": "10.0.0.4", "accessConfig": {"externalIp": "34.1.1.4"}},
    {"ipAddress": "10.0.0.5", "accessConfig": {}},
]
ITEMS = {"items": [{"namespace": "hostkeys", "key": "ssh-ed25519", "value": KEY}]}


class Refusal(Exception):
    """What googleapiclient raises, as far as it is looked at."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.resp = SimpleNamespace(status=status)


class Api:
    """Compute Engine or Cloud TPU, answered from memory; it keeps what was asked."""

    def __init__(self, **answers: Any) -> None:
        self._http = SimpleNamespace(credentials=None)
        self._answers = answers
        self.asked: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        if name in {"projects", "locations", "nodes"}:
            return lambda: self
        if name not in self._answers:
            raise AttributeError(name)

        def method(*_: Any, **arguments: Any) -> Any:
            self.asked.append(arguments)
            return SimpleNamespace(execute=lambda http: self._answer(name))

        return method

    def _answer(self, name: str) -> Any:
        if isinstance(self._answers[name], Exception):
            raise self._answers[name]
        return self._answers[name]

    def list_next(self, *_: Any) -> None:
        return None


def provider(api: Api) -> Any:
    resource = SimpleNamespace(
        resource=api,
        cluster_name="marin",
        project_id="p",
        availability_zone="z",
        path="projects/p/locations/z",
    )
    return SimpleNamespace(
        resources={"tpu": resource},
        _get_resource_depending_on_node_name=lambda node: resource,
    )


class Compute(Api):
    def instances(self) -> Compute:
        return self


def test_a_slice_has_as_many_machines_as_endpoints() -> None:
    nodes = [
        {"name": SLICE, "state": "READY", "labels": OURS, "networkEndpoints": ENDS},
        {"name": "one", "state": "READY", "labels": OURS, "networkEndpoints": ENDS[:1]},
        {"name": "new", "state": "CREATING", "labels": OURS},
        {"name": "old", "state": "PREEMPTED", "labels": OURS, "networkEndpoints": ENDS},
        {"name": "head", "state": "READY", "labels": OURS | {"ray-node-type": "head"}},
    ]
    outside = {f"{SLICE}#0": "34.1.1.4", f"{SLICE}#1": "", "one": "34.1.1.4", "new": ""}
    inside = {f"{SLICE}#0": "10.0.0.4", f"{SLICE}#1": "10.0.0.5", "one": "10.0.0.4", "new": ""}
    there = provider(Api(list={"nodes": nodes}))
    assert addresses(there, inside=False) == outside
    assert addresses(there, inside=True) == inside


def test_a_vm_has_the_addresses_of_its_first_card() -> None:
    cards = [
        {"networkIP": "10.0.0.6", "accessConfigs": [{"natIP": "34.1.1.6"}]},
        {"networkIP": "10.9.0.6"},
    ]
    rows = [
        {"name": "vm", "status": "RUNNING", "labels": OURS, "networkInterfaces": cards},
        {"name": "inner", "status": "RUNNING", "labels": OURS, "networkInterfaces": cards[1:]},
    ]
    there = provider(Compute(list={"items": rows}))
    assert addresses(there, inside=False) == {"vm": "34.1.1.6", "inner": ""}
    assert addresses(there, inside=True) == {"vm": "10.0.0.6", "inner": "10.9.0.6"}


def test_machines_that_were_added_by_hand_are_workers_too() -> None:
    by_hand = OURS | {"ray-node-type": "unmanaged"}
    theirs = by_hand | {"ray-cluster-name": "marin-staging"}
    nodes = [
        {"name": SLICE, "state": "READY", "labels": by_hand, "networkEndpoints": ENDS},
        {"name": "theirs", "state": "READY", "labels": theirs},
        {"name": "gone", "state": "DELETING", "labels": by_hand},
    ]
    found = addresses(provider(Api(list={"nodes": nodes})), inside=True)
    assert [*found] == [f"{SLICE}#0", f"{SLICE}#1"]


@pytest.mark.parametrize(
    ("machine", "inside", "expected"),
    [
        (0, True, "10.0.0.4"),
        (0, False, "34.1.1.4"),
        (1, True, "10.0.0.5"),
        (1, False, ""),
        (2, True, ""),
    ],
)
def test_each_machine_has_addresses_of_its_own(machine: int, inside: bool, expected: str) -> None:
    api = Api(get={"networkEndpoints": ENDS})
    assert address(provider(api), f"{SLICE}#{machine}", inside=inside) == expected
    assert api.asked == [{"name": SLICE}]


def test_the_keys_of_a_vm_and_of_one_machine_of_a_slice_are_asked_for(tmp_path: Any) -> None:
    vm = Compute(getGuestAttributes={"queryValue": ITEMS})
    tpu = Api(getGuestAttributes={"guestAttributes": [{"queryValue": ITEMS}]})
    lines = {host_keys(provider(vm), "ray-marin-head"), host_keys(provider(tpu), f"{SLICE}#1")}
    assert lines == {f"ssh-ed25519 {KEY}"}
    place = {"project": "p", "zone": "z", "instance": "ray-marin-head"}
    assert vm.asked == [place | {"queryPath": "hostkeys/"}]
    assert tpu.asked == [{"name": SLICE, "body": {"queryPath": "hostkeys/", "workerIds": ["1"]}}]
    record_host_key(tmp_path / "known", "marin", lines.pop())
    assert [key.data for key in lookup(tmp_path / "known", "marin")] == [KEY]


@pytest.mark.parametrize("status", [403, 404])
def test_a_machine_that_wrote_nothing_has_no_keys(status: int) -> None:
    assert host_keys(provider(Compute(getGuestAttributes=Refusal(status))), "vm") == ""
    assert host_keys(provider(Api(getGuestAttributes={})), SLICE) == ""


def test_an_api_that_fails_is_no_machine_without_keys() -> None:
    with pytest.raises(Refusal):
        host_keys(provider(Compute(getGuestAttributes=Refusal(500))), "vm")

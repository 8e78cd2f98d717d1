"""Requests are checked against Google's own discovery documents."""

from __future__ import annotations

from typing import Any

import pytest

from rayfleet.emulator.discovery import check_body, check_query, find_method
from rayfleet.emulator.refusals import Refused

INSTANCES = "/compute/v1/projects/p/zones/z/instances"
NODES = "/v2/projects/p/locations/z/nodes"
SECRET = "/v1/projects/p/secrets/s"


@pytest.mark.parametrize(
    ("verb", "path", "method"),
    [
        ("POST", INSTANCES, "compute.instances.insert"),
        ("GET", f"{INSTANCES}/i", "compute.instances.get"),
        ("POST", f"{INSTANCES}/i/setLabels", "compute.instances.setLabels"),
        ("POST", NODES, "tpu.projects.locations.nodes.create"),
        ("POST", f"{NODES}/n:stop", "tpu.projects.locations.nodes.stop"),
        ("DELETE", f"{NODES}/n", "tpu.projects.locations.nodes.delete"),
        ("DELETE", NODES.replace("v2", "v2alpha1") + "/n", "tpu.projects.locations.nodes.delete"),
        ("GET", "/v1/projects/p", "cloudresourcemanager.projects.get"),
        ("POST", "/v1/projects/p:getIamPolicy", "cloudresourcemanager.projects.getIamPolicy"),
        ("GET", "/v1/projects/p/serviceAccounts/a@b.c", "iam.projects.serviceAccounts.get"),
        ("POST", f"{SECRET}:addVersion", "secretmanager.projects.secrets.addVersion"),
        (
            "GET",
            f"{SECRET}/versions/latest:access",
            "secretmanager.projects.secrets.versions.access",
        ),
    ],
)
def test_a_path_is_one_method(verb: str, path: str, method: str) -> None:
    found = find_method(verb, path)
    assert found is not None
    assert found[0].id == method


def test_what_no_document_has_is_no_method() -> None:
    assert find_method("PUT", f"{NODES}/n") is None
    assert find_method("GET", "/v3/projects/p") is None


def found(verb: str, path: str) -> Any:
    method = find_method(verb, path)
    assert method is not None
    return method[0]


NODE = {
    "acceleratorType": "v4-8",
    "runtimeVersion": "tpu-ubuntu2204-base",
    "schedulingConfig": {"preemptible": True},
    "labels": {"a": "b"},
}
MACHINE = {
    "name": "i",
    "machineType": "zones/z/machineTypes/n2-standard-8",
    "disks": [{"boot": True, "type": "PERSISTENT", "initializeParams": {"diskSizeGb": 200}}],
}


def test_what_google_takes_is_taken() -> None:
    check_body(found("POST", NODES), NODE)
    check_body(found("POST", INSTANCES), MACHINE)
    check_body(found("POST", INSTANCES), MACHINE | {"description": None})
    check_query(found("POST", NODES), {"nodeId": "n", "alt": "json"})


@pytest.mark.parametrize(
    ("path", "change", "said"),
    [
        (NODES, {"acceleratorTyp": "v4-8"}, "Unknown name \"acceleratorTyp\" at 'node'"),
        (NODES, {"schedulingConfig": {"premptible": True}}, "'node.schedulingConfig'"),
        (NODES, {"schedulingConfig": {"preemptible": "yes"}}, "schedulingConfig.preemptible"),
        (NODES, {"runtimeVersion": 3}, r"node.runtimeVersion' \(TYPE_STRING\), 3"),
        (NODES, {"labels": {"a": 1}}, r"node.labels\[a\]"),
        (NODES, {"labels": ["a"]}, "'node.labels'"),
        (INSTANCES, {"disks": {"boot": True}}, r"'instance.disks' \(TYPE_ARRAY\)"),
        (INSTANCES, {"disks": [{"type": "SSD"}]}, r"disks\[0\].type"),
        (INSTANCES, {"disks": [{"initializeParams": {"diskSizeGb": "big"}}]}, "diskSizeGb"),
        (INSTANCES, {"machineTyp": "n2"}, 'Unknown name "machineTyp"'),
        (INSTANCES, {"scheduling": {"provisioningModel": "spot"}}, "provisioningModel"),
    ],
)
def test_a_field_that_google_does_not_know_is_refused(
    path: str, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said) as refused:
        check_body(found("POST", path), (NODE if path == NODES else MACHINE) | change)
    assert refused.value.code == 400


def test_a_parameter_that_google_does_not_know_is_refused() -> None:
    with pytest.raises(Refused, match='Unknown name "node"'):
        check_query(found("POST", NODES), {"node": "n"})

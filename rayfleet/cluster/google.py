"""The VMs and TPU VMs of a cluster on Google Cloud, in whichever state.

Ray 2.60 leaves out what it does not count as alive, and deletes one node after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rayfleet.google_api import connection, failure, pages, status_of

CLUSTER = "ray-cluster-name"
KIND, UNMANAGED = "ray-node-type", "unmanaged"
"""Ray's own mark of a node of the cluster that its autoscaler neither counts nor ends."""
ENDING = frozenset(
    {"STOPPING", "SUSPENDING", "DEPROVISIONING", "DELETING", "HIDING", "PENDING_STOP"}
)
"""The states of a VM (status) and of a TPU VM (state) of Google Cloud in which its processes may
still run and that Ray does not count as alive.
https://cloud.google.com/compute/docs/instances/instance-life-cycle"""
ALIVE = frozenset(
    {"PROVISIONING", "STAGING", "RUNNING", "CREATING", "STARTING", "RESTARTING", "READY"}
)
"""The states that Ray 2.60 counts as alive, of a VM and of a TPU VM."""
DELETE_TIMEOUT = 120.0  # seconds; Google gives a VM up to 90 s to shut down
DELETE_INTERVAL = 2.0
NOT_FOUND = 404
HAS_TPUS = "_has_tpus"


def section(provider: Mapping[str, Any], *, tpus: bool) -> dict[str, Any]:
    """The ``provider`` section for Ray's provider of a cluster with TPUs or without.

    Ray's launcher adds a mark of its own before it makes the provider. Without it the provider
    sees no TPU VM at all, and says nothing about that.
    """
    return {**provider, HAS_TPUS: True} if tpus else dict(provider)


def is_google(provider: Any) -> bool:
    """Whether ``provider`` is Ray's for Google Cloud, or one made of it."""
    return bool(getattr(provider, "resources", None))


def patient(provider: Any) -> Any:
    """``provider``, which now gives up on an API that does not answer: Ray waits for ever."""
    for resource in getattr(provider, "resources", {}).values():
        resource.get_new_authorized_http = connection
    return provider


def rows(provider: Any) -> list[dict[str, Any]]:
    """All VMs and TPU VMs with the cluster's label, as the APIs describe them."""
    return [
        row
        for resource in provider.resources.values()
        for row in _rows(resource)
        if row.get("labels", {}).get(CLUSTER) == resource.cluster_name
    ]


def state(row: dict[str, Any]) -> str:
    """The state of a VM or a TPU VM."""
    return str(row.get("status") or row.get("state") or "")


def alive(provider: Any, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of what Ray counts as alive and has these labels."""
    return tuple(
        name for name, now, kept in _found(provider) if now in ALIVE and _has(kept, labels)
    )


def existing(provider: Any, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of what exists with these labels and is not on its way out: what was preempted or
    stopped counts, for it eats quota and may come back."""
    return tuple(
        name for name, now, kept in _found(provider) if now not in ENDING and _has(kept, labels)
    )


def remaining(provider: Any) -> tuple[str, ...]:
    """The ids of everything, what is on its way out included."""
    return tuple(name for name, _, _ in _found(provider))


def _found(provider: Any) -> list[tuple[str, str, dict[str, str]]]:
    # What was added by hand is not Ray's: it outlives a stop, and joins the next head.
    return [
        (str(row["name"]), state(row), row["labels"])
        for row in rows(provider)
        if row["labels"].get(KIND) != UNMANAGED
    ]


def _has(kept: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return wanted.items() <= kept.items()


def start_deletion(provider: Any, node: str) -> dict[str, Any] | None:
    """Let Google delete one node; returns the operation, or nothing when the node is gone.

    Beside Ray's ``terminate_node``, which keeps a lock until the node has gone: of a
    hundred slices each would wait for the one before.
    """
    resource = provider._get_resource_depending_on_node_name(node)
    try:
        return _execute(resource, _deletion(resource, node))
    except Exception as error:
        if status_of(error) == NOT_FOUND:
            return None
        raise


def has_ended(provider: Any, node: str, operation: dict[str, Any]) -> bool:
    """Whether an operation on ``node`` is over.

    Raises:
        RuntimeError: Google accepted it, and could not do it.
    """
    return _ended(provider._get_resource_depending_on_node_name(node), operation)


def _ended(resource: Any, operation: dict[str, Any]) -> bool:
    api, project, zone = resource.resource, resource.project_id, resource.availability_zone
    name = operation["name"]
    if hasattr(api, "instances"):
        query = api.zoneOperations().get(project=project, zone=zone, operation=name)
    else:
        query = api.projects().locations().operations().get(name=name)
    seen = _execute(resource, query)
    if "error" in seen:
        raise RuntimeError(failure(seen["error"]))
    return bool(seen.get("done") or seen.get("status") == "DONE")


def _deletion(resource: Any, node: str) -> Any:
    api, project, zone = resource.resource, resource.project_id, resource.availability_zone
    if hasattr(api, "instances"):
        return api.instances().delete(project=project, zone=zone, instance=node)
    return api.projects().locations().nodes().delete(name=node)


def _rows(resource: Any) -> list[dict[str, Any]]:
    """Everything in the resource's zone; Ray reads the first page only, and takes half an answer
    for a whole one."""
    api, project, zone = resource.resource, resource.project_id, resource.availability_zone
    send = partial(_execute, resource)
    if hasattr(api, "instances"):
        rule = f"labels.{CLUSTER} = {resource.cluster_name}"
        asked = {"project": project, "zone": zone, "filter": rule}
        return pages(api.instances(), "items", asked, send=send)
    nodes = api.projects().locations().nodes()
    return pages(nodes, "nodes", {"parent": resource.path}, send=send)


def _execute(resource: Any, query: Any) -> dict[str, Any]:
    answer: dict[str, Any] = query.execute(http=connection(resource.resource._http))
    return answer

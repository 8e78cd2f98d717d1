"""The single machines of nodes on Google Cloud, and their own records of their host keys.

A slice of TPUs is one node for Ray's launcher and has several machines; those are called
``NODE#0``, ``NODE#1`` … here. A machine whose metadata has ``enable-guest-attributes=TRUE``
writes its public host keys where nobody but itself can write, and the API reads them:
https://cloud.google.com/compute/docs/metadata/manage-guest-attributes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayfleet.cluster.google import ALIVE, KIND, UNMANAGED, rows, state
from rayfleet.google_api import connection, status_of

HOST_KEYS = "hostkeys/"
WORKERS = frozenset({"worker", UNMANAGED})
NO_RECORD = frozenset({403, 404})  # not for us to read, or nothing written


def addresses(provider: Any, *, inside: bool) -> dict[str, str]:
    """All machines of workers that Ray counts as alive, by id, with the address of each; empty
    where it has none ``inside`` or outside of its network. Those that were added by hand are
    among them: they can be entered, although nothing that ends nodes knows of them."""
    return {
        machine: address
        for row in rows(provider)
        if state(row) in ALIVE and row["labels"].get(KIND) in WORKERS
        for machine, address in _machines(row, inside).items()
    }


def address(provider: Any, machine: str, *, inside: bool) -> str:
    """The address of one machine of a slice; empty when it has none ``inside`` or outside of its
    network."""
    node = machine.partition("#")[0]
    resource = provider._get_resource_depending_on_node_name(node)
    row = _execute(resource, resource.resource.projects().locations().nodes().get(name=node))
    return _machines({**row, "name": node}, inside).get(machine, "")


def host_keys(provider: Any, machine: str) -> str:
    """The public host keys of a machine, a line each, as it wrote them itself; empty when it has
    not, or when we may not read them."""
    node, _, index = machine.partition("#")
    resource = provider._get_resource_depending_on_node_name(node)
    api, project, zone = resource.resource, resource.project_id, resource.availability_zone
    if hasattr(api, "instances"):
        query = api.instances().getGuestAttributes(
            project=project, zone=zone, instance=node, queryPath=HOST_KEYS
        )
    else:
        body = {"queryPath": HOST_KEYS, "workerIds": [index or "0"]}
        query = api.projects().locations().nodes().getGuestAttributes(name=node, body=body)
    try:
        answer = _execute(resource, query)
    except Exception as error:
        if status_of(error) in NO_RECORD:
            return ""
        raise
    records = answer.get("guestAttributes", [answer])
    items = [item for record in records for item in record.get("queryValue", {}).get("items", [])]
    return "\n".join(f"{item['key']} {item['value']}" for item in items)


def _machines(row: Mapping[str, Any], inside: bool) -> dict[str, str]:
    """The machines of one VM or TPU VM, with their addresses."""
    name = str(row["name"])
    cards = row.get("networkInterfaces", [])[:1]
    found = [str(_of_card(card, inside) or "") for card in cards]
    found += [str(_of_endpoint(end, inside) or "") for end in row.get("networkEndpoints", [])]
    if len(found) > 1:
        return {f"{name}#{index}": address for index, address in enumerate(found)}
    return {name: "".join(found)}


def _of_card(card: Mapping[str, Any], inside: bool) -> object:
    return card.get("networkIP") if inside else (card.get("accessConfigs") or [{}])[0].get("natIP")


def _of_endpoint(end: Mapping[str, Any], inside: bool) -> object:
    return end.get("ipAddress") if inside else end.get("accessConfig", {}).get("externalIp")


def _execute(resource: Any, query: Any) -> dict[str, Any]:
    answer: dict[str, Any] = query.execute(http=connection(resource.resource._http))
    return answer

"""What machines say about themselves: guest attributes, such as their public host keys.

https://cloud.google.com/compute/docs/metadata/manage-guest-attributes
"""

from __future__ import annotations

from typing import Any

from rayfleet.emulator.cloud import Call, Cloud
from rayfleet.emulator.happenings import find
from rayfleet.emulator.refusals import Refused
from rayfleet.emulator.state import Row

ENABLED = "enable-guest-attributes"


def write(cloud: Cloud, name: str, key: str, value: str, *, worker: int = 0) -> bool:
    """Let a machine write ``key`` (``hostkeys/ssh-ed25519``); False when its metadata
    does not let it. ``worker`` is which machine of a slice it is.

    Raises:
        KeyError: there is no such machine or slice.
    """
    with cloud.lock:
        row = find(cloud, name)
        if _enabled(row) != "TRUE":
            return False
        row.setdefault("guest", {}).setdefault(str(worker), {})[key] = value
        cloud.save()
    return True


def of_instance(call: Call) -> dict[str, Any]:
    """What an instance wrote below ``queryPath``."""
    ids = call.ids
    name = f"projects/{ids['project']}/zones/{ids['zone']}/instances/{ids['instance']}"
    path = call.query.get("queryPath", "")
    items = _items(_row(call, "instances", name), "0", path)
    if not items:
        raise _nothing(path)
    return {
        "kind": "compute#guestAttributes",
        "queryPath": path,
        "queryValue": {"items": items},
    }


def of_slice(call: Call) -> dict[str, Any]:
    """What the machines of a slice wrote below ``queryPath``."""
    row, path = _row(call, "nodes", call.name), call.body.get("queryPath", "")
    count = len(row["view"]["networkEndpoints"])
    wanted = call.body.get("workerIds") or [str(worker) for worker in range(count)]
    found = [(worker, _items(row, worker, path)) for worker in wanted]
    if not any(items for _, items in found):
        raise _nothing(path)
    return {
        "guestAttributes": [
            {"queryPath": path, "queryValue": {"items": items}} for _, items in found
        ]
    }


def _row(call: Call, table: str, name: str) -> Row:
    row = call.cloud.state.table(table).get(name)
    if row is None:
        raise Refused(404, f"The resource '{name}' was not found")
    return row


def _items(row: Row, worker: str, path: str) -> list[dict[str, str]]:
    kept = row.get("guest", {}).get(worker, {})
    return [
        {"namespace": key.partition("/")[0], "key": key.partition("/")[2], "value": value}
        for key, value in sorted(kept.items())
        if key.startswith(path)
    ]


def _enabled(row: Row) -> str:
    """An instance has its metadata as a list, a slice as a map."""
    metadata = row["view"].get("metadata", {})
    items = metadata.get("items")
    pairs = {item["key"]: item["value"] for item in items} if items else metadata
    return str(pairs.get(ENABLED, "")).upper()


def _nothing(path: str) -> Refused:
    return Refused(404, f"The resource '{path}' of type 'Guest Attribute' was not found.")


HANDLERS = {
    "compute.instances.getGuestAttributes": of_instance,
    "tpu.projects.locations.nodes.getGuestAttributes": of_slice,
}

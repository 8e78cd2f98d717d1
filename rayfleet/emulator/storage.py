"""Cloud Storage v1: where buckets are."""

from __future__ import annotations

from typing import Any

from rayfleet.emulator.clock import timestamp
from rayfleet.emulator.cloud import Call
from rayfleet.emulator.refusals import Refused


def get(call: Call) -> dict[str, Any]:
    """One bucket."""
    row = call.cloud.state.table("buckets").get(call.ids["bucket"])
    if row is None:
        raise Refused(404, "The specified bucket does not exist.", reason="notFound")
    view: dict[str, Any] = row["view"]
    return view


def insert(call: Call) -> dict[str, Any]:
    """Make a bucket."""
    name, table = str(call.body.get("name", "")), call.cloud.state.table("buckets")
    if name in table:
        raise Refused(409, f"The requested bucket name '{name}' is not available.")
    view = {
        **call.body,
        "kind": "storage#bucket",
        "id": name,
        "location": str(call.body.get("location", "US")).upper(),
        "timeCreated": timestamp(call.cloud.now()),
    }
    table[name] = {"view": view}
    return view


HANDLERS = {"storage.buckets.get": get, "storage.buckets.insert": insert}

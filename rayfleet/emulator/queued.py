"""Cloud TPU v2 and v2alpha1: queued resources, requests for slices that wait until there are any.

https://cloud.google.com/tpu/docs/queued-resources
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rayfleet.emulator.clock import timestamp
from rayfleet.emulator.cloud import Call, Cloud
from rayfleet.emulator.labels import check_name
from rayfleet.emulator.operations import Plan, begin
from rayfleet.emulator.pages import page
from rayfleet.emulator.refusals import Refused, exists, invalid, not_found, unmet
from rayfleet.emulator.state import GONE, Row
from rayfleet.emulator.tpu import (
    PAGE,
    add_node,
    below,
    check_node,
    check_quota,
    lacks,
)

TABLE = "queuedResources"
RESOURCE_ID = re.compile(r"[A-Za-z0-9_.~+%-]+\Z")
# What may be deleted without force.
AT_REST = ("ACCEPTED", "WAITING_FOR_RESOURCES", "FAILED", "SUSPENDED")
EXPIRED = "The request expired before resources became available."


def create(call: Call) -> dict[str, Any]:
    """Take a request into the queue."""
    cloud, body = call.cloud, copy.deepcopy(call.body)
    word = call.query.get("queuedResourceId", "")
    if not RESOURCE_ID.match(word):
        raise invalid("queued_resource_id", f"'{word}'")
    name = f"{call.name}/{word}"
    if name in cloud.state.table(TABLE):
        raise exists(name)
    _check(call, body)
    view = body | {"name": name, "createTime": timestamp(cloud.now())}
    row: Row = {
        "view": view,
        "from": cloud.now() + cloud.durations.queue,
        "until": _until(cloud, body.get("queueingPolicy", {})),
        "plan": None,
    }
    cloud.state.table(TABLE)[name] = row
    _turn(row, "WAITING_FOR_RESOURCES")
    takes = cloud.durations.change
    error = call.fault.fails if call.fault else ""
    if error and call.fault:
        row["until"] = cloud.now()
        row["why"] = call.fault.message
    return begin(call, None, Plan(verb="create", target=name, takes=takes))


def get(call: Call) -> dict[str, Any]:
    """One request."""
    view: dict[str, Any] = _row(call)["view"]
    return view


def listed(call: Call) -> dict[str, Any]:
    """The requests of a zone, or of all zones (``-``)."""
    rows = [row["view"] for _, row in below(call, TABLE)]
    return page(rows, call.query, key="queuedResources", size="pageSize", default=PAGE)


def delete(call: Call) -> dict[str, Any]:
    """Take a request away; with ``force`` its slices, too."""
    cloud, row = call.cloud, _row(call)
    state = row["view"]["state"]["state"]
    force = call.query.get("force", "") == "true"
    left = list(nodes_of(cloud, row))
    if not force and (state not in AT_REST or left):
        raise unmet(
            f"Queued resource {call.name} is in state {state} and has nodes: delete them first, "
            "or set force."
        )
    takes = cloud.durations.tpu_delete
    never = call.fault is not None and call.fault.never
    ends = None if never else cloud.now() + (_takes(call) or takes)
    for _, node in left:
        node["view"]["state"] = "DELETING"
        node["steps"] = [] if ends is None else [[ends, GONE]]
    _turn(row, "DELETING", initiator="USER")
    row["ends"] = ends
    return begin(call, None, Plan(verb="delete", target=call.name, takes=takes))


def reset(call: Call) -> dict[str, Any]:
    """Ask again for what was suspended."""
    row = _row(call)
    if row["view"]["state"]["state"] not in ("SUSPENDED", "FAILED"):
        raise unmet(f"Queued resource {call.name} is not suspended.")
    row["from"] = call.cloud.now() + call.cloud.durations.queue
    _turn(row, "WAITING_FOR_RESOURCES")
    takes = call.cloud.durations.change
    return begin(call, None, Plan(verb="reset", target=call.name, takes=takes))


def settle(cloud: Cloud) -> bool:
    """Let every request go on as far as it can by now; whether one did."""
    changed = False
    for name, row in list(cloud.state.table(TABLE).items()):
        before = row["view"]["state"]["state"]
        step = _STEPS.get(before)
        if step is not None:
            step(cloud, row)
        if before == "DELETING" and row.get("ends") is not None and row["ends"] <= cloud.now():
            del cloud.state.table(TABLE)[name]
            changed = True
        changed = changed or row["view"]["state"]["state"] != before
    return changed


def nodes_of(cloud: Cloud, row: Row) -> Iterator[tuple[str, Row]]:
    """The slices that exist of a request."""
    table = cloud.state.table("nodes")
    for name, _ in _wanted(row):
        if name in table:
            yield name, table[name]


def _waits(cloud: Cloud, row: Row) -> None:
    now = cloud.now()
    if row["until"] is not None and now >= row["until"]:
        _turn(row, "FAILED", error={"code": 4, "message": row.get("why") or EXPIRED})
        return
    if now < row["from"] or not all(_to_be_had(cloud, name, node) for name, node in _wanted(row)):
        return
    for name, node in _wanted(row):
        made = add_node(cloud, name, _on_terms(row, node))
        made["view"]["queuedResource"] = row["view"]["name"]
        made["steps"] = [[now + cloud.durations.tpu_create, "READY"]]
    _turn(row, "PROVISIONING")


def _provisions(cloud: Cloud, row: Row) -> None:
    states = {node["view"]["state"] for _, node in nodes_of(cloud, row)}
    if states == {"READY"}:
        _turn(row, "ACTIVE")
    elif states != {"READY", "CREATING"} and states != {"CREATING"}:
        _turn(row, "SUSPENDED", initiator="SERVICE")


def _is_active(cloud: Cloud, row: Row) -> None:
    left = [node["view"]["state"] for _, node in nodes_of(cloud, row)]
    if "PREEMPTED" in left:
        _turn(row, "SUSPENDING", initiator="SERVICE")
        row["ends"] = cloud.now() + cloud.durations.shut_down
    elif len(left) < len(list(_wanted(row))):
        _turn(row, "SUSPENDED", initiator="USER")


def _suspends(cloud: Cloud, row: Row) -> None:
    if row["ends"] <= cloud.now():
        _turn(row, "SUSPENDED", initiator="SERVICE")


_STEPS = {
    "WAITING_FOR_RESOURCES": _waits,
    "PROVISIONING": _provisions,
    "ACTIVE": _is_active,
    "SUSPENDING": _suspends,
}
# What the API shows beside a state.
_DATA = {"WAITING_FOR_RESOURCES": "", "DELETING": "deletingData", "FAILED": "failedData"}


def _turn(row: Row, state: str, *, initiator: str = "SERVICE", error: Any = None) -> None:
    key = _DATA.get(state, f"{state.lower()}Data")
    shown = {"state": state, "stateInitiator": initiator}
    row["view"]["state"] = shown | ({key: {"error": error} if error else {}} if key else {})


def _to_be_had(cloud: Cloud, name: str, node: dict[str, Any]) -> bool:
    zone = name.split("/")[3]
    kind = check_node(zone, node)
    try:
        check_quota(cloud, zone, kind, node)
    except Refused:
        return False
    return not lacks(cloud, kind, zone)


def _check(call: Call, body: dict[str, Any]) -> None:
    terms = [key for key in ("spot", "guaranteed", "bestEffort") if key in body]
    if len(terms) > 1:
        raise invalid("queued_resource", f"only one of {', '.join(terms)} may be set.")
    row: Row = {"view": body | {"name": f"{call.name}/new"}}
    specs = list(_wanted(row))
    if not specs:
        raise invalid("queued_resource.tpu.node_spec", "[]. Required.")
    parent = f"projects/{call.ids['projectsId']}/locations/{call.ids['locationsId']}"
    for spec in body["tpu"]["nodeSpec"]:
        if spec.get("parent") != parent:
            raise invalid("queued_resource.tpu.node_spec.parent", f"'{spec.get('parent', '')}'")
        if "networkConfig" not in spec.get("node", {}) and "node" not in spec:
            raise invalid("queued_resource.tpu.node_spec.node", "Required.")
    for name, node in specs:
        check_name("node_id", name.rpartition("/")[2])
        check_node(call.ids["locationsId"], node)
        if name in call.cloud.state.table("nodes"):
            raise exists(name)


def _wanted(row: Row) -> Iterator[tuple[str, dict[str, Any]]]:
    """The full names of the slices of a request, with what they shall be."""
    for spec in row["view"].get("tpu", {}).get("nodeSpec", []):
        several = spec.get("multisliceParams") or spec.get("multiNodeParams")
        if ("nodeId" in spec) == (several is not None):
            raise invalid("queued_resource.tpu.node_spec", "either node_id or multislice_params.")
        ids = [spec.get("nodeId", "")]
        if several:
            prefix = several.get("nodeIdPrefix") or row["view"]["name"].rpartition("/")[2]
            ids = [f"{prefix}-{number}" for number in range(int(several.get("nodeCount", 0)))]
        for word in ids:
            yield f"{spec.get('parent', '')}/nodes/{word}", spec.get("node", {})


def _on_terms(row: Row, node: dict[str, Any]) -> dict[str, Any]:
    """A slice of a request has the request's terms."""
    view, terms = row["view"], dict(node.get("schedulingConfig", {}))
    if "spot" in view or view.get("provisioningModel") == "SPOT":
        terms["spot"] = True
    if view.get("guaranteed", {}).get("reserved"):
        terms["reserved"] = True
    return node | {"schedulingConfig": terms}


def _until(cloud: Cloud, policy: dict[str, Any]) -> float | None:
    if "validUntilDuration" in policy:
        return cloud.now() + float(policy["validUntilDuration"].removesuffix("s"))
    end = policy.get("validUntilTime") or policy.get("validInterval", {}).get("endTime")
    return datetime.fromisoformat(end).timestamp() if end else None


def _takes(call: Call) -> float | None:
    return call.fault.takes if call.fault is not None else None


def _row(call: Call) -> Row:
    row = call.cloud.state.table(TABLE).get(call.name)
    if row is None:
        raise not_found(call.name)
    return row


_QUEUE = "tpu.projects.locations.queuedResources"
HANDLERS = {
    f"{_QUEUE}.create": create,
    f"{_QUEUE}.get": get,
    f"{_QUEUE}.list": listed,
    f"{_QUEUE}.delete": delete,
    f"{_QUEUE}.reset": reset,
}

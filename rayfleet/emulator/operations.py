"""Long-running operations: what a request starts, and what polling it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rayfleet.emulator.clock import timestamp
from rayfleet.emulator.cloud import Call, Cloud
from rayfleet.emulator.refusals import not_found
from rayfleet.emulator.state import GONE, Row

COMPUTE = "https://www.googleapis.com/compute/v1/"
# https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation
HTTP_ERRORS = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": (503, "SERVICE UNAVAILABLE"),
    "QUOTA_EXCEEDED": (403, "FORBIDDEN"),
}
CAPACITY = "RESOURCE_EXHAUSTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an operation does to the row of ``target``: the states it goes through, each so many
    seconds after the start, and how long it takes. ``failed`` is where it ends up when the
    operation fails."""

    verb: str
    target: str
    steps: tuple[tuple[float, str], ...] = ()
    takes: float
    failed: str = GONE
    error: tuple[str, str] | None = None


def begin(call: Call, row: Row | None, plan: Plan) -> dict[str, Any]:
    """Start what ``plan`` says, with the faults of ``call``; returns the operation's view."""
    cloud, fault = call.cloud, call.fault
    start, takes, error = cloud.now(), plan.takes, plan.error
    stretch = 1.0
    if fault is not None and fault.takes is not None:
        stretch, takes = fault.takes / takes, fault.takes
    if fault is not None and fault.fails:
        error = (fault.fails, fault.message)
    never = fault is not None and fault.never
    if row is not None:
        row["steps"] = _steps(plan, start, stretch, never=never, failed=error is not None)
    name = f"operation-{int(start)}-{cloud.state.next('operation'):08x}"
    operation: Row = {
        "name": name,
        "id": cloud.number(),
        "verb": plan.verb,
        "target": plan.target,
        "started": start,
        "ends": None if never else start + takes,
        "error": list(error) if error else None,
        "scope": scope_of(call),
        "version": call.method.document.partition(".")[2],
    }
    cloud.state.table("operations")[f"{operation['scope']}/operations/{name}"] = operation
    return view(cloud, operation)


def _steps(
    plan: Plan, start: float, stretch: float, *, never: bool, failed: bool
) -> list[tuple[float, str]]:
    steps = [(start + after * stretch, state) for after, state in plan.steps]
    end = start + plan.takes * stretch
    if never:
        return [step for step in steps if step[0] <= start]
    if failed:
        return [*(step for step in steps if step[0] < end), (end, plan.failed)]
    return steps


def scope_of(call: Call) -> str:
    """Where the operation is: the zone, the region, or the whole project."""
    words = call.name.split("/")
    if len(words) >= 4 and words[2] in ("zones", "regions", "locations"):
        return "/".join(words[:4])
    return "/".join([*words[:2], "global"]) if call.method.id.startswith("compute.") else ""


def find(cloud: Cloud, name: str) -> Row:
    """The operation of this full name."""
    found = cloud.state.table("operations").get(name)
    if found is None:
        raise not_found(name)
    return found


def done(cloud: Cloud, operation: Row) -> bool:
    """Whether it has ended."""
    return operation["ends"] is not None and operation["ends"] <= cloud.now()


def view(cloud: Cloud, operation: Row) -> dict[str, Any]:
    """As its API shows it."""
    in_compute = operation["scope"].split("/")[2:3] in (["zones"], ["regions"], ["global"])
    return _of_compute(cloud, operation) if in_compute else _of_others(cloud, operation)


def _of_compute(cloud: Cloud, operation: Row) -> dict[str, Any]:
    ended = done(cloud, operation)
    where = operation["scope"].split("/")
    shown: dict[str, Any] = {
        "kind": "compute#operation",
        "id": operation["id"],
        "name": operation["name"],
        "operationType": operation["verb"],
        "targetLink": COMPUTE + operation["target"],
        "status": "DONE" if ended else "RUNNING",
        "progress": 100 if ended else 0,
        "insertTime": timestamp(operation["started"]),
        "startTime": timestamp(operation["started"]),
        "selfLink": f"{COMPUTE}{operation['scope']}/operations/{operation['name']}",
    }
    if len(where) == 4:
        shown[where[2][:-1]] = COMPUTE + operation["scope"]
    if ended:
        shown["endTime"] = timestamp(operation["ends"])
        if operation["error"]:
            code, message = operation["error"]
            shown["error"] = {"errors": [{"code": code, "message": message}]}
            status = HTTP_ERRORS.get(code, (400, "BAD REQUEST"))
            shown["httpErrorStatusCode"], shown["httpErrorMessage"] = status
    return shown


def _of_others(cloud: Cloud, operation: Row) -> dict[str, Any]:
    scope = operation["scope"]
    name = f"{scope}/operations/{operation['name']}" if scope else f"operations/{operation['name']}"
    shown: dict[str, Any] = {
        "name": name,
        "done": done(cloud, operation),
        "metadata": {
            "@type": "type.googleapis.com/google.cloud.common.OperationMetadata",
            "createTime": timestamp(operation["started"]),
            "target": operation["target"],
            "verb": operation["verb"],
            "cancelRequested": False,
            "apiVersion": operation["version"],
        },
    }
    if not shown["done"]:
        return shown
    shown["metadata"]["endTime"] = timestamp(operation["ends"])
    if operation["error"]:
        code, message = operation["error"]
        number = 8 if code == CAPACITY else int(code) if code.isdigit() else 13
        shown["error"] = {"code": number, "message": message}
    else:
        shown["response"] = _response(cloud, operation)
    return shown


def _response(cloud: Cloud, operation: Row) -> dict[str, Any]:
    tables = [cloud.state.table(name) for name in ("nodes", "queuedResources", "projects")]
    row = next((table[operation["target"]] for table in tables if operation["target"] in table), {})
    if operation["verb"] == "delete" or not row:
        return {"@type": "type.googleapis.com/google.protobuf.Empty"}
    return {"@type": "type.googleapis.com/google.cloud.tpu.Node", **row["view"]}

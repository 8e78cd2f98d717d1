"""Compute Engine v1: instances."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rayfleet.emulator import catalog, operations
from rayfleet.emulator.clock import timestamp
from rayfleet.emulator.cloud import Call, Cloud
from rayfleet.emulator.filters import matches
from rayfleet.emulator.labels import check_labels, check_name, fingerprint
from rayfleet.emulator.operations import COMPUTE, Plan, begin
from rayfleet.emulator.pages import page
from rayfleet.emulator.refusals import Refused, exists, invalid, not_found, unmet
from rayfleet.emulator.state import GONE, Row

PAGE = 500  # the default, and the most, of every list of Compute Engine
STOCKOUT = "ZONE_RESOURCE_POOL_EXHAUSTED"


def insert(call: Call) -> dict[str, Any]:
    """Make an instance."""
    cloud, body, zone = call.cloud, copy.deepcopy(call.body), call.ids["zone"]
    if "sourceInstanceTemplate" in call.query:
        raise not_found(call.query["sourceInstanceTemplate"])
    check_name("resource.name", body.get("name", ""))
    check_labels("resource.labels", body.get("labels", {}))
    machine = _machine(call, body)
    _check_disks(body)
    _check_networks(body)
    name = f"{call.name}/{body['name']}"
    if name in cloud.state.table("instances"):
        raise exists(name)
    _check_quota(cloud, zone, machine)
    row: Row = {"view": _view(cloud, name, machine, body), "steps": []}
    cloud.state.table("instances")[name] = row
    boot = cloud.durations.boot
    out = {(machine, zone), ("*", zone)} & cloud.stockouts
    plan = Plan(
        verb="insert",
        target=name,
        steps=((boot / 4, "STAGING"), (boot, "RUNNING")),
        takes=boot,
        error=(STOCKOUT, _stockout(cloud, zone)) if out else None,
    )
    return begin(call, row, plan)


def get(call: Call) -> dict[str, Any]:
    """One instance."""
    view: dict[str, Any] = _row(call)["view"]
    return view


def listed(call: Call) -> dict[str, Any]:
    """The instances of a zone."""
    prefix = f"{call.name}/"
    rows = [row["view"] for name, row in _sorted(call.cloud) if name.startswith(prefix)]
    rows = [view for view in rows if matches(call.query.get("filter", ""), view)]
    shown = page(rows, call.query, key="items", size="maxResults", default=PAGE)
    return {
        "kind": "compute#instanceList",
        "id": call.name,
        "selfLink": COMPUTE + call.name,
    } | shown


def aggregated(call: Call) -> dict[str, Any]:
    """The instances of all zones."""
    project = f"projects/{call.ids['project']}/"
    rows = [row["view"] for name, row in _sorted(call.cloud) if name.startswith(project)]
    rows = [view for view in rows if matches(call.query.get("filter", ""), view)]
    shown = page(rows, call.query, key="rows", size="maxResults", default=PAGE)
    items: dict[str, Any] = {}
    for view in shown.pop("rows", []):
        zone = "zones/" + view["zone"].rpartition("/")[2]
        items.setdefault(zone, {"instances": []})["instances"].append(view)
    return {"kind": "compute#instanceAggregatedList", "items": items} | shown


def delete(call: Call) -> dict[str, Any]:
    """Shut an instance down and take it away."""
    row = _row(call)
    if row["view"].get("deletionProtection"):
        raise Refused(400, "Instance is protected from deletion.", reason="resourceNotDeletable")
    takes = call.cloud.durations.delete
    plan = Plan(
        verb="delete",
        target=_target(call),
        steps=((0.0, "STOPPING"), (takes, GONE)),
        takes=takes,
        failed=row["view"]["status"],
    )
    return begin(call, row, plan)


def stop(call: Call) -> dict[str, Any]:
    """Shut an instance down and keep it."""
    row = _row(call)
    takes = call.cloud.durations.shut_down
    steps = ((0.0, "STOPPING"), (takes, "TERMINATED"))
    failed = row["view"]["status"]
    plan = Plan(verb="stop", target=_target(call), steps=steps, takes=takes, failed=failed)
    return begin(call, row, plan)


def start(call: Call) -> dict[str, Any]:
    """Start an instance that was stopped."""
    row = _row(call)
    if row["view"]["status"] not in ("TERMINATED", "RUNNING"):
        raise unmet(f"The resource '{_target(call)}' is not ready")
    boot = call.cloud.durations.boot
    steps = ((0.0, "STAGING"), (boot, "RUNNING"))
    plan = Plan(verb="start", target=_target(call), steps=steps, takes=boot, failed="TERMINATED")
    return begin(call, row, plan)


def reset(call: Call) -> dict[str, Any]:
    """Restart an instance in place."""
    return begin(call, None, _change(call, "reset"))


def set_labels(call: Call) -> dict[str, Any]:
    """Replace all labels, if nobody else did since they were read."""
    view = _row(call)["view"]
    check_labels("resource.labels", call.body.get("labels", {}))
    if call.body.get("labelFingerprint") != view["labelFingerprint"]:
        raise Refused(412, "Labels fingerprint either invalid or resource labels have changed")
    view["labels"] = call.body.get("labels", {})
    view["labelFingerprint"] = fingerprint(view["labels"])
    return begin(call, None, _change(call, "setLabels"))


def set_metadata(call: Call) -> dict[str, Any]:
    """Replace all metadata, if nobody else did since it was read."""
    view = _row(call)["view"]
    if call.body.get("fingerprint") != view["metadata"]["fingerprint"]:
        raise Refused(412, "Supplied fingerprint does not match current metadata fingerprint.")
    view["metadata"] = _metadata(call.body)
    return begin(call, None, _change(call, "setMetadata"))


def _target(call: Call) -> str:
    ids = call.ids
    return f"projects/{ids['project']}/zones/{ids['zone']}/instances/{ids['instance']}"


def _row(call: Call) -> Row:
    row = call.cloud.state.table("instances").get(_target(call))
    if row is None:
        raise not_found(_target(call))
    return row


def _sorted(cloud: Cloud) -> list[tuple[str, Row]]:
    return sorted(cloud.state.table("instances").items())


def _change(call: Call, verb: str) -> Plan:
    return Plan(verb=verb, target=_target(call), takes=call.cloud.durations.change)


def _machine(call: Call, body: Mapping[str, Any]) -> str:
    """The bare name of the machine type, which has to be one of this zone."""
    link = str(body.get("machineType", ""))
    place, _, machine = link.rpartition("/machineTypes/")
    if not place:
        raise invalid("resource.machineType", f"'{link}'. The URL is malformed.")
    if place.rpartition("/")[2] != call.ids["zone"]:
        raise invalid("resource.machineType", f"'{link}'. It is in another zone.")
    if not catalog.machine_cpus(machine):
        raise invalid(
            "resource.machineType",
            f"'{link}'. Machine type with name '{machine}' does not exist in zone "
            f"'{call.ids['zone']}'.",
        )
    return machine


def _check_disks(body: Mapping[str, Any]) -> None:
    disks = body.get("disks", [])
    boot = [disk for disk in disks if disk.get("boot")]
    if len(boot) != 1:
        raise invalid("resource.disks", "[]. One disk has to be the boot disk.")
    made = boot[0].get("initializeParams", {})
    source = made.get("sourceImage", "")
    if not source and not boot[0].get("source"):
        raise invalid("resource.disks[0].initializeParams.sourceImage", "''. Required.")
    if source and not catalog.has_image(source):
        raise Refused(404, f"The resource '{source}' was not found")
    if int(made.get("diskSizeGb", 10)) < 10:
        raise invalid("resource.disks[0].initializeParams.diskSizeGb", "less than 10.")


def _check_networks(body: Mapping[str, Any]) -> None:
    cards = body.get("networkInterfaces", [])
    if not cards:
        raise invalid(
            "resource.networkInterfaces", "[]. At least one network interface is required."
        )
    for card in cards:
        link = card.get("subnetwork", "")
        region = link.partition("/regions/")[2].partition("/")[0]
        if link and region not in catalog.REGIONS:
            raise not_found(link.removeprefix(COMPUTE))


def _check_quota(cloud: Cloud, zone: str, machine: str) -> None:
    region = zone.rpartition("-")[0]
    limit = cloud.quotas.get(("CPUS", region))
    if limit is None:
        return
    used = sum(
        catalog.machine_cpus(row["view"]["machineType"].rpartition("/")[2])
        for name, row in cloud.state.table("instances").items()
        if f"/zones/{region}-" in name and row["view"]["status"] != "TERMINATED"
    )
    if used + catalog.machine_cpus(machine) > limit:
        raise Refused(
            403,
            f"Quota 'CPUS' exceeded.  Limit: {limit:.1f} in region {region}.",
            reason="quotaExceeded",
        )


def _stockout(cloud: Cloud, zone: str) -> str:
    return (
        f"The zone 'projects/{cloud.project}/zones/{zone}' does not have enough resources "
        "available to fulfill the request.  Try a different zone, or try again later."
    )


def _metadata(given: Mapping[str, Any]) -> dict[str, Any]:
    items = given.get("items", [])
    kept = {"items": items} if items else {}
    return {"kind": "compute#metadata", "fingerprint": fingerprint(items), **kept}


def _view(cloud: Cloud, name: str, machine: str, body: dict[str, Any]) -> dict[str, Any]:
    place = name.partition("/instances/")[0]
    cards = body["networkInterfaces"]
    for number, card in enumerate(cards):
        card |= {"name": f"nic{number}", "networkIP": cloud.address()}
        card.setdefault("network", f"{COMPUTE}projects/{cloud.project}/global/networks/default")
        for access in card.get("accessConfigs", []):
            access["natIP"] = cloud.address()
    for disk in body["disks"]:
        disk["source"] = f"{COMPUTE}{place}/disks/{body['name']}"
        disk.pop("initializeParams", None)
    return body | {
        "kind": "compute#instance",
        "id": cloud.number(),
        "status": "PROVISIONING",
        "zone": COMPUTE + place,
        "selfLink": COMPUTE + name,
        "machineType": f"{COMPUTE}{place}/machineTypes/{machine}",
        "creationTimestamp": timestamp(cloud.now()),
        "labels": body.get("labels", {}),
        "labelFingerprint": fingerprint(body.get("labels", {})),
        "metadata": _metadata(body.get("metadata", {})),
        "scheduling": {"provisioningModel": "STANDARD", **body.get("scheduling", {})},
        "deletionProtection": body.get("deletionProtection", False),
    }


def zone_operation(call: Call) -> dict[str, Any]:
    """One operation."""
    return operations.view(call.cloud, operations.find(call.cloud, call.name))


def wait_operation(call: Call) -> dict[str, Any]:
    """As if two minutes had been waited."""
    operation = operations.find(call.cloud, call.name.removesuffix("/wait"))
    if operation["ends"] is not None:
        call.cloud.clock.advance(min(120.0, max(0.0, operation["ends"] - call.cloud.now())))
    return operations.view(call.cloud, operation)


HANDLERS = {
    "compute.instances.insert": insert,
    "compute.instances.get": get,
    "compute.instances.list": listed,
    "compute.instances.aggregatedList": aggregated,
    "compute.instances.delete": delete,
    "compute.instances.stop": stop,
    "compute.instances.start": start,
    "compute.instances.reset": reset,
    "compute.instances.setLabels": set_labels,
    "compute.instances.setMetadata": set_metadata,
    "compute.zoneOperations.get": zone_operation,
    "compute.zoneOperations.wait": wait_operation,
    "compute.globalOperations.get": zone_operation,
    "compute.globalOperations.wait": wait_operation,
}

"""Cloud TPU v2 and v2alpha1: nodes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rayfleet.emulator import catalog, operations
from rayfleet.emulator.clock import timestamp
from rayfleet.emulator.cloud import Call, Cloud
from rayfleet.emulator.labels import check_labels, check_name
from rayfleet.emulator.operations import CAPACITY, Plan, begin
from rayfleet.emulator.pages import page
from rayfleet.emulator.refusals import Refused, exists, invalid, not_found, unmet
from rayfleet.emulator.state import GONE, Row

PAGE = 1000
PORT = "8470"


def create(call: Call) -> dict[str, Any]:
    """Make a slice."""
    cloud, zone = call.cloud, call.ids["locationsId"]
    check_name("node_id", call.query.get("nodeId", ""))
    accelerator = check_node(zone, call.body)
    name = f"{call.name}/{call.query['nodeId']}"
    if name in cloud.state.table("nodes"):
        raise exists(name)
    check_quota(cloud, zone, accelerator, call.body)
    row = add_node(cloud, name, call.body)
    takes = cloud.durations.tpu_create
    error = (CAPACITY, no_capacity(zone)) if lacks(cloud, accelerator, zone) else None
    plan = Plan(verb="create", target=name, steps=((takes, "READY"),), takes=takes, error=error)
    return begin(call, row, plan)


def get(call: Call) -> dict[str, Any]:
    """One slice."""
    view: dict[str, Any] = _row(call)["view"]
    return view


def listed(call: Call) -> dict[str, Any]:
    """The slices of a zone, or of all zones (``-``)."""
    rows = [row["view"] for _, row in below(call, "nodes")]
    return page(rows, call.query, key="nodes", size="pageSize", default=PAGE)


def delete(call: Call) -> dict[str, Any]:
    """Take a slice away."""
    row, takes = _row(call), call.cloud.durations.tpu_delete
    plan = Plan(
        verb="delete",
        target=call.name,
        steps=((0.0, "DELETING"), (takes, GONE)),
        takes=takes,
        failed=row["view"]["state"],
    )
    return begin(call, row, plan)


def patch(call: Call) -> dict[str, Any]:
    """Change what ``updateMask`` names."""
    view = _row(call)["view"]
    fields = [field for field in call.query.get("updateMask", "").split(",") if field]
    # https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes/patch
    if not set(fields) <= {"description", "tags", "labels", "metadata", "networkConfig"}:
        raise invalid("update_mask", f"'{','.join(fields)}'")
    check_labels("node.labels", call.body.get("labels", {}))
    for field in fields:
        view[field] = copy.deepcopy(call.body.get(field, {}))
    takes = call.cloud.durations.change
    return begin(call, None, Plan(verb="update", target=call.name, takes=takes))


def stop(call: Call) -> dict[str, Any]:
    """Stop a slice of one host."""
    row = _row(call)
    if len(row["view"].get("networkEndpoints", ())) > 1:
        raise unmet("Stopping a TPU pod slice is not supported.")
    return _turn(call, "stop", "STOPPING", "STOPPED")


def start(call: Call) -> dict[str, Any]:
    """Start a slice that was stopped."""
    if _row(call)["view"]["state"] != "STOPPED":
        raise unmet(f"The resource '{call.name}' is not stopped.")
    return _turn(call, "start", "STARTING", "READY")


def _turn(call: Call, verb: str, first: str, last: str) -> dict[str, Any]:
    row, takes = _row(call), call.cloud.durations.boot
    failed = row["view"]["state"]
    steps = ((0.0, first), (takes, last))
    plan = Plan(verb=verb, target=call.name, steps=steps, takes=takes, failed=failed)
    return begin(call, row, plan)


def below(call: Call, table: str) -> list[tuple[str, Row]]:
    """The rows of a table in the call's location, which may be ``-``."""
    project, zone = call.ids["projectsId"], call.ids["locationsId"]
    prefix = f"projects/{project}/locations/" + ("" if zone == "-" else f"{zone}/")
    rows = sorted(call.cloud.state.table(table).items())
    return [(name, row) for name, row in rows if name.startswith(prefix)]


def _row(call: Call) -> Row:
    row = call.cloud.state.table("nodes").get(call.name)
    if row is None:
        raise not_found(call.name)
    return row


def check_node(zone: str, node: Mapping[str, Any]) -> str:
    """Refuse a slice that this zone does not have; returns its accelerator type."""
    check_labels("node.labels", node.get("labels", {}))
    if zone not in catalog.ZONES:
        raise Refused(403, f"Permission denied on 'locations/{zone}' (or it may not exist).")
    kind = accelerator_of(node)
    if not catalog.tpu_offered(kind, zone):
        raise invalid("node.accelerator_type", f"'{kind}' is not found in zone {zone}.")
    runtime = node.get("runtimeVersion", "")
    fit = catalog.RUNTIMES.get(runtime)
    if fit is None:
        raise invalid("node.runtime_version", f"'{runtime}' is not a runtime version.")
    if catalog.tpu_parts(kind)[0] not in fit:
        raise invalid("node.runtime_version", f"'{runtime}' does not run on {kind}.")
    terms = node.get("schedulingConfig", {})
    if sum(bool(terms.get(term)) for term in ("preemptible", "spot", "reserved")) > 1:
        raise invalid("node.scheduling_config", "only one kind of capacity may be asked for.")
    return kind


def accelerator_of(node: Mapping[str, Any]) -> str:
    """The accelerator type of a slice, said in either of the two ways."""
    if ("acceleratorType" in node) == ("acceleratorConfig" in node):
        raise invalid("node", "exactly one of accelerator_type and accelerator_config is required.")
    if "acceleratorType" in node:
        return str(node["acceleratorType"])
    given = node["acceleratorConfig"]
    kind = given.get("type", "")
    generation = catalog.GENERATIONS.get(kind, kind.lower())
    chips = 1
    for side in str(given.get("topology", "")).split("x"):
        chips *= int(side) if side.isdigit() else 0
    return f"{generation}-{chips if generation in catalog.ONE_CORE_PER_CHIP else 2 * chips}"


def check_quota(cloud: Cloud, zone: str, accelerator: str, node: Mapping[str, Any]) -> None:
    """Refuse chips beyond the quota. What was preempted counts until it is deleted."""
    generation, terms = catalog.tpu_parts(accelerator)[0], spot(node)
    metric = f"{generation} preemptible" if terms else generation
    limit = cloud.quotas.get((metric, zone))
    if limit is None:
        return
    used = sum(
        catalog.tpu_chips(accelerator_of(row["view"]))
        for name, row in cloud.state.table("nodes").items()
        if f"/locations/{zone}/" in name
        and catalog.tpu_parts(accelerator_of(row["view"]))[0] == generation
        and spot(row["view"]) == terms
    )
    if used + catalog.tpu_chips(accelerator) > limit:
        kind = "Preemptible" if terms else ""
        name = f"TPU{generation.upper()}{kind}PerProjectPerZoneForTPUAPI"
        raise Refused(
            429, f"Quota limit '{name}' has been exceeded. Limit: {limit} in zone {zone}."
        )


def spot(node: Mapping[str, Any]) -> bool:
    """Whether the slice may be taken back."""
    terms = node.get("schedulingConfig", {})
    model = terms.get("provisioningModel")
    return bool(terms.get("preemptible") or terms.get("spot") or model == "SPOT")


def lacks(cloud: Cloud, accelerator: str, zone: str) -> bool:
    """Whether the zone has none of these now."""
    return bool({(accelerator, zone), ("*", zone)} & cloud.stockouts)


def no_capacity(zone: str) -> str:
    """As the API says it."""
    return (
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where '
        "Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions)"
    )


def add_node(cloud: Cloud, name: str, node: Mapping[str, Any]) -> Row:
    """Put a slice into the state, being created."""
    given = copy.deepcopy(dict(node))
    network = {"enableExternalIps": False, **given.get("networkConfig", {})}
    network.setdefault("network", f"projects/{cloud.project}/global/networks/default")
    endpoints = []
    for _ in range(catalog.tpu_hosts(accelerator_of(given))):
        outside = {"externalIp": cloud.address()} if network["enableExternalIps"] else {}
        endpoint = {"ipAddress": cloud.address(), "port": int(PORT), "accessConfig": outside}
        endpoints.append(endpoint)
    view = given | {
        "name": name,
        "id": cloud.number(),
        "state": "CREATING",
        "health": "HEALTHY",
        "apiVersion": "V2_ALPHA1",
        "createTime": timestamp(cloud.now()),
        "acceleratorType": accelerator_of(given),
        "networkConfig": network,
        "networkEndpoints": endpoints,
        "labels": given.get("labels", {}),
        "schedulingConfig": given.get("schedulingConfig", {}),
    }
    row: Row = {"view": view, "steps": []}
    cloud.state.table("nodes")[name] = row
    return row


def accelerator_types(call: Call) -> dict[str, Any]:
    """What a zone offers."""
    zone = call.ids["locationsId"]
    rows = [{"name": f"{call.name}/{kind}", "type": kind} for kind in sorted(catalog.tpus_of(zone))]
    return page(rows, call.query, key="acceleratorTypes", size="pageSize", default=PAGE)


def accelerator_type(call: Call) -> dict[str, Any]:
    """One of them."""
    kind = call.ids["acceleratorTypesId"]
    if not catalog.tpu_offered(kind, call.ids["locationsId"]):
        raise not_found(call.name)
    return {"name": call.name, "type": kind}


def runtime_versions(call: Call) -> dict[str, Any]:
    """The runtimes."""
    rows = [{"name": f"{call.name}/{name}", "version": name} for name in sorted(catalog.RUNTIMES)]
    return page(rows, call.query, key="runtimeVersions", size="pageSize", default=PAGE)


def locations(call: Call) -> dict[str, Any]:
    """The zones with TPUs."""
    zones = sorted({zone for zones in catalog.TPU_ZONES.values() for zone in zones})
    rows = [{"name": f"{call.name}/{zone}", "locationId": zone} for zone in zones]
    return page(rows, call.query, key="locations", size="pageSize", default=PAGE)


def operation(call: Call) -> dict[str, Any]:
    """One operation."""
    return operations.view(call.cloud, operations.find(call.cloud, call.name))


_LOCATIONS = "tpu.projects.locations"
HANDLERS = {
    f"{_LOCATIONS}.list": locations,
    f"{_LOCATIONS}.nodes.create": create,
    f"{_LOCATIONS}.nodes.get": get,
    f"{_LOCATIONS}.nodes.list": listed,
    f"{_LOCATIONS}.nodes.delete": delete,
    f"{_LOCATIONS}.nodes.patch": patch,
    f"{_LOCATIONS}.nodes.stop": stop,
    f"{_LOCATIONS}.nodes.start": start,
    f"{_LOCATIONS}.acceleratorTypes.list": accelerator_types,
    f"{_LOCATIONS}.acceleratorTypes.get": accelerator_type,
    f"{_LOCATIONS}.runtimeVersions.list": runtime_versions,
    f"{_LOCATIONS}.operations.get": operation,
}

"""Compute Engine v1: what a project has beside instances: zones, machine types, images, networks,
firewall rules, metadata."""

from __future__ import annotations

from typing import Any

from rayfleet.emulator import catalog
from rayfleet.emulator.cloud import Call, Cloud
from rayfleet.emulator.compute import PAGE
from rayfleet.emulator.filters import matches
from rayfleet.emulator.labels import check_name, fingerprint
from rayfleet.emulator.operations import COMPUTE, Plan, begin
from rayfleet.emulator.pages import page
from rayfleet.emulator.refusals import Refused, exists, not_found


def _shown(call: Call, rows: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    rows = [row for row in rows if matches(call.query.get("filter", ""), row)]
    found = page(rows, call.query, key="items", size="maxResults", default=PAGE)
    return {"kind": f"compute#{kind}List", "id": call.name} | found


def _zone(cloud: Cloud, name: str) -> dict[str, Any]:
    region = f"{COMPUTE}projects/{cloud.project}/regions/{name.rpartition('-')[0]}"
    link = f"{COMPUTE}projects/{cloud.project}/zones/{name}"
    return {
        "kind": "compute#zone",
        "name": name,
        "status": "UP",
        "region": region,
        "selfLink": link,
    }


def zone(call: Call) -> dict[str, Any]:
    """One zone."""
    if call.ids["zone"] not in catalog.ZONES:
        raise not_found(call.name)
    return _zone(call.cloud, call.ids["zone"])


def zones(call: Call) -> dict[str, Any]:
    """All zones."""
    return _shown(call, [_zone(call.cloud, name) for name in catalog.ZONES], "zone")


def machine_type(call: Call) -> dict[str, Any]:
    """One machine type of a zone."""
    name = call.ids["machineType"]
    cpus = catalog.machine_cpus(name)
    if not cpus:
        raise not_found(call.name)
    return {
        "kind": "compute#machineType",
        "name": name,
        "guestCpus": cpus,
        "memoryMb": cpus * 4096,
        "zone": call.ids["zone"],
        "selfLink": COMPUTE + call.name,
    }


def image(call: Call) -> dict[str, Any]:
    """One image, or the newest of a family."""
    if not catalog.has_image(call.name):
        raise not_found(call.name)
    project = call.ids["project"]
    row = next(row for row in catalog.IMAGES if row[0] == project and row[1:].count(_last(call)))
    link = f"{COMPUTE}projects/{project}/global/images/{row[2]}"
    return {"kind": "compute#image", "name": row[2], "family": row[1], "selfLink": link}


def _last(call: Call) -> str:
    return call.name.rpartition("/")[2]


def _subnet(cloud: Cloud, region: str) -> dict[str, Any]:
    name = f"projects/{cloud.project}/regions/{region}/subnetworks/default"
    return {
        "kind": "compute#subnetwork",
        "name": "default",
        "region": f"{COMPUTE}projects/{cloud.project}/regions/{region}",
        "network": f"{COMPUTE}projects/{cloud.project}/global/networks/default",
        "selfLink": COMPUTE + name,
    }


def subnetworks(call: Call) -> dict[str, Any]:
    """The one subnetwork that an automatic network has in each region."""
    if call.ids["region"] not in catalog.REGIONS:
        raise Refused(400, f"Invalid value for field 'region': '{call.ids['region']}'. Unknown.")
    return _shown(call, [_subnet(call.cloud, call.ids["region"])], "subnetwork")


def subnetwork(call: Call) -> dict[str, Any]:
    """The same by its name."""
    if call.ids["subnetwork"] != "default" or call.ids["region"] not in catalog.REGIONS:
        raise not_found(call.name)
    return _subnet(call.cloud, call.ids["region"])


def firewalls(call: Call) -> dict[str, Any]:
    """All firewall rules."""
    rows = [row["view"] for _, row in sorted(call.cloud.state.table("firewalls").items())]
    return _shown(call, rows, "firewall")


def firewall(call: Call) -> dict[str, Any]:
    """One firewall rule."""
    view: dict[str, Any] = _firewall(call)["view"]
    return view


def _firewall(call: Call) -> dict[str, Any]:
    row = call.cloud.state.table("firewalls").get(call.name)
    if row is None:
        raise not_found(call.name)
    return row


def add_firewall(call: Call) -> dict[str, Any]:
    """Make a firewall rule."""
    check_name("resource.name", call.body.get("name", ""))
    name = f"{call.name}/{call.body['name']}"
    if name in call.cloud.state.table("firewalls"):
        raise exists(name)
    view = {**call.body, "kind": "compute#firewall", "selfLink": COMPUTE + name}
    call.cloud.state.table("firewalls")[name] = {"view": view}
    takes = call.cloud.durations.change
    return begin(call, None, Plan(verb="insert", target=name, takes=takes))


def delete_firewall(call: Call) -> dict[str, Any]:
    """Take a firewall rule away."""
    _firewall(call)
    del call.cloud.state.table("firewalls")[call.name]
    takes = call.cloud.durations.change
    return begin(call, None, Plan(verb="delete", target=call.name, takes=takes))


def project(call: Call) -> dict[str, Any]:
    """The project, with the metadata that all its instances get."""
    if call.ids["project"] != call.cloud.project:
        raise not_found(call.name)
    return {
        "kind": "compute#project",
        "name": call.cloud.project,
        "commonInstanceMetadata": _metadata(call.cloud),
        "selfLink": COMPUTE + call.name,
    }


def set_metadata(call: Call) -> dict[str, Any]:
    """Replace that metadata, if nobody else did since it was read."""
    if call.body.get("fingerprint") != _metadata(call.cloud)["fingerprint"]:
        raise Refused(412, "Supplied fingerprint does not match current metadata fingerprint.")
    items = call.body.get("items", [])
    call.cloud.state.table("metadata")["project"] = {"view": {"items": items}}
    name, takes = f"projects/{call.cloud.project}", call.cloud.durations.change
    return begin(call, None, Plan(verb="setMetadata", target=name, takes=takes))


def _metadata(cloud: Cloud) -> dict[str, Any]:
    row = cloud.state.table("metadata").get("project", {"view": {"items": []}})
    items = row["view"]["items"]
    kept = {"items": items} if items else {}
    return {"kind": "compute#metadata", "fingerprint": fingerprint(items), **kept}


HANDLERS = {
    "compute.zones.get": zone,
    "compute.zones.list": zones,
    "compute.machineTypes.get": machine_type,
    "compute.images.get": image,
    "compute.images.getFromFamily": image,
    "compute.subnetworks.list": subnetworks,
    "compute.subnetworks.get": subnetwork,
    "compute.firewalls.list": firewalls,
    "compute.firewalls.get": firewall,
    "compute.firewalls.insert": add_firewall,
    "compute.firewalls.delete": delete_firewall,
    "compute.projects.get": project,
    "compute.projects.setCommonInstanceMetadata": set_metadata,
}

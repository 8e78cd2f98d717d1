"""Resource Manager v1 and IAM v1: the project, who may do what in it, service accounts."""

from __future__ import annotations

import copy
from typing import Any

from rayfleet.emulator import operations
from rayfleet.emulator.cloud import PROJECT_NUMBER, Call, Cloud
from rayfleet.emulator.labels import check_name, fingerprint
from rayfleet.emulator.operations import Plan, begin
from rayfleet.emulator.refusals import Refused, exists, not_found

DENIED = "The caller does not have permission"


def project(call: Call) -> dict[str, Any]:
    """The project; any other is refused as if it were somebody else's."""
    name = call.ids["projectId"]
    if name != call.cloud.project and name not in call.cloud.state.table("projects"):
        raise Refused(403, DENIED)
    return {
        "projectId": name,
        "name": name,
        "projectNumber": PROJECT_NUMBER,
        "lifecycleState": "ACTIVE",
    }


def create_project(call: Call) -> dict[str, Any]:
    """Make a project."""
    name = call.body.get("projectId", "")
    check_name("projectId", name)
    if name == call.cloud.project or name in call.cloud.state.table("projects"):
        raise exists(f"projects/{name}")
    call.cloud.state.table("projects")[name] = {"view": {"projectId": name}}
    takes = call.cloud.durations.change
    return begin(call, None, Plan(verb="create", target=f"projects/{name}", takes=takes))


def operation(call: Call) -> dict[str, Any]:
    """One operation on a project."""
    return operations.view(call.cloud, operations.find(call.cloud, f"/{call.name}"))


def get_policy(call: Call) -> dict[str, Any]:
    """Who may do what in the project."""
    return policy(call.cloud, call.ids["resource"])


def set_policy(call: Call) -> dict[str, Any]:
    """Replace that, if nobody else did since it was read."""
    return replace_policy(call.cloud, call.ids["resource"], call.body.get("policy", {}))


def policy(cloud: Cloud, resource: str) -> dict[str, Any]:
    """The bindings of a resource, with their etag."""
    row = cloud.state.table("policies").get(resource, {"view": {"bindings": []}})
    bindings = copy.deepcopy(row["view"]["bindings"])
    return {"version": 1, "etag": fingerprint(bindings), "bindings": bindings}


def replace_policy(cloud: Cloud, resource: str, given: dict[str, Any]) -> dict[str, Any]:
    """Set the bindings of a resource."""
    if given.get("etag") not in (None, policy(cloud, resource)["etag"]):
        raise Refused(
            409,
            "There were concurrent policy changes. Please retry the whole read-modify-write with "
            "exponential backoff.",
            status="ABORTED",
            reason="aborted",
        )
    for binding in given.get("bindings", []):
        if not binding.get("role", "").startswith(("roles/", "projects/", "organizations/")):
            raise Refused(400, f"Role {binding.get('role')!r} is not supported for this resource.")
    bindings = copy.deepcopy(given.get("bindings", []))
    cloud.state.table("policies")[resource] = {"view": {"bindings": bindings}}
    return policy(cloud, resource)


def account(call: Call) -> dict[str, Any]:
    """One service account."""
    row = call.cloud.state.table("serviceAccounts").get(call.name)
    if row is None:
        raise not_found(call.name)
    view: dict[str, Any] = row["view"]
    return view


def accounts(call: Call) -> dict[str, Any]:
    """All service accounts."""
    rows = [row["view"] for _, row in sorted(call.cloud.state.table("serviceAccounts").items())]
    return {"accounts": rows} if rows else {}


def create_account(call: Call) -> dict[str, Any]:
    """Make a service account."""
    project_id, word = call.ids["projectsId"], call.body.get("accountId", "")
    check_name("account_id", word)
    email = f"{word}@{project_id}.iam.gserviceaccount.com"
    name = f"projects/{project_id}/serviceAccounts/{email}"
    if name in call.cloud.state.table("serviceAccounts"):
        raise exists(name)
    given = call.body.get("serviceAccount", {})
    view = {"name": name, "email": email, "projectId": project_id, **given}
    view["uniqueId"] = call.cloud.number()
    call.cloud.state.table("serviceAccounts")[name] = {"view": view}
    return view


HANDLERS = {
    "cloudresourcemanager.projects.get": project,
    "cloudresourcemanager.projects.create": create_project,
    "cloudresourcemanager.projects.getIamPolicy": get_policy,
    "cloudresourcemanager.projects.setIamPolicy": set_policy,
    "cloudresourcemanager.operations.get": operation,
    "iam.projects.serviceAccounts.get": account,
    "iam.projects.serviceAccounts.list": accounts,
    "iam.projects.serviceAccounts.create": create_account,
}

"""Secret Manager v1: secrets, their versions, and who may read them."""

from __future__ import annotations

import base64
import binascii
import copy
import re
from collections.abc import Iterator
from typing import Any

from rayfleet.emulator.clock import timestamp
from rayfleet.emulator.cloud import PROJECT_NUMBER, Call, Cloud
from rayfleet.emulator.iam import policy, replace_policy
from rayfleet.emulator.labels import check_labels, fingerprint
from rayfleet.emulator.pages import page
from rayfleet.emulator.refusals import Refused, exists, invalid, unmet
from rayfleet.emulator.state import Row

PAGE = 25000
MOST_BYTES = 65536  # https://cloud.google.com/secret-manager/quotas#content_limits
SECRET_ID = re.compile(r"[-_A-Za-z0-9]{1,255}\Z")
TABLE = "secrets"


def create(call: Call) -> dict[str, Any]:
    """Make a secret without a version."""
    word = call.query.get("secretId", "")
    if not SECRET_ID.match(word):
        raise invalid("secret_id", f"'{word}'")
    if not call.body.get("replication"):
        raise invalid("secret.replication", "'replication' is required.")
    check_labels("secret.labels", call.body.get("labels", {}))
    name = _internal(call.cloud, f"{call.name}/{word}")
    if name in call.cloud.state.table(TABLE):
        raise exists(f"Secret [{_shown(call.cloud, name)}]")
    view = copy.deepcopy(call.body) | {
        "name": _shown(call.cloud, name),
        "createTime": timestamp(call.cloud.now()),
    }
    call.cloud.state.table(TABLE)[name] = {"view": _sealed(view), "versions": []}
    return view


def get(call: Call) -> dict[str, Any]:
    """One secret, without what it says."""
    view: dict[str, Any] = _secret(call.cloud, call.name)["view"]
    return view


def listed(call: Call) -> dict[str, Any]:
    """All secrets."""
    rows = [row["view"] for _, row in sorted(call.cloud.state.table(TABLE).items())]
    shown = page(rows, call.query, key="secrets", size="pageSize", default=PAGE)
    return shown | {"totalSize": len(rows)}


def patch(call: Call) -> dict[str, Any]:
    """Change what ``updateMask`` names."""
    view = _secret(call.cloud, call.name)["view"]
    _check_etag(call.body.get("etag"), view)
    check_labels("secret.labels", call.body.get("labels", {}))
    for field in call.query.get("updateMask", "").split(","):
        view[field] = copy.deepcopy(call.body.get(field))
    return _sealed(view)


def delete(call: Call) -> dict[str, Any]:
    """Take a secret away, with all its versions."""
    _check_etag(call.query.get("etag"), _secret(call.cloud, call.name)["view"])
    del call.cloud.state.table(TABLE)[_internal(call.cloud, call.name)]
    return {}


def add_version(call: Call) -> dict[str, Any]:
    """Say something new; the answer does not repeat it."""
    payload = call.body.get("payload", {})
    try:
        raw = base64.b64decode(payload.get("data", ""), validate=True)
    except binascii.Error as error:
        raise Refused(400, "Invalid value at 'payload.data' (TYPE_BYTES)") from error
    if not raw or len(raw) > MOST_BYTES:
        raise invalid("payload.data", f"{len(raw)} bytes")
    if "dataCrc32c" in payload and int(payload["dataCrc32c"]) != crc32c(raw):
        raise Refused(400, "Mismatched payload checksum in [payload.data_crc32c].")
    secret = _secret(call.cloud, call.name)
    number = len(secret["versions"]) + 1
    view = {
        "name": f"{secret['view']['name']}/versions/{number}",
        "createTime": timestamp(call.cloud.now()),
        "state": "ENABLED",
        "replicationStatus": {"automatic": {}},
        "clientSpecifiedPayloadChecksum": "dataCrc32c" in payload,
    }
    secret["versions"].append({"view": _sealed(view), "data": base64.b64encode(raw).decode()})
    return view


def versions(call: Call) -> dict[str, Any]:
    """The versions of a secret, the newest first."""
    parent = call.name.removesuffix("/versions")
    rows = [version["view"] for version in reversed(_secret(call.cloud, parent)["versions"])]
    wanted = re.fullmatch(r"\s*state\s*[:=]\s*(\w+)\s*", call.query.get("filter", ""))
    if wanted:
        rows = [row for row in rows if row["state"] == wanted[1]]
    shown = page(rows, call.query, key="versions", size="pageSize", default=PAGE)
    return shown | {"totalSize": len(rows)}


def version(call: Call) -> dict[str, Any]:
    """One version, without what it says."""
    view: dict[str, Any] = _version(call)["view"]
    return view


def access(call: Call) -> dict[str, Any]:
    """What a version says."""
    row = _version(call)
    if row["view"]["state"] != "ENABLED":
        name, state = row["view"]["name"], row["view"]["state"]
        raise unmet(f"Secret Version [{name}] is in {state} state.")
    raw = base64.b64decode(row["data"])
    payload = {"data": row["data"], "dataCrc32c": str(crc32c(raw))}
    return {"name": row["view"]["name"], "payload": payload}


def enable(call: Call) -> dict[str, Any]:
    """Let a version be read again."""
    return _turn(call, "ENABLED")


def disable(call: Call) -> dict[str, Any]:
    """Let nobody read a version."""
    return _turn(call, "DISABLED")


def destroy(call: Call) -> dict[str, Any]:
    """Forget what a version says, for ever."""
    row = _version(call)
    view = _turn(call, "DESTROYED")
    view["destroyTime"] = timestamp(call.cloud.now())
    row["data"] = ""
    return view


def get_policy(call: Call) -> dict[str, Any]:
    """Who may do what with a secret."""
    _secret(call.cloud, call.name)
    return policy(call.cloud, _internal(call.cloud, call.name))


def set_policy(call: Call) -> dict[str, Any]:
    """Replace that."""
    _secret(call.cloud, call.name)
    name = _internal(call.cloud, call.name)
    return replace_policy(call.cloud, name, call.body.get("policy", {}))


def crc32c(raw: bytes) -> int:
    """The Castagnoli checksum that goes with every payload."""
    value = 0xFFFFFFFF
    for byte in raw:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def _turn(call: Call, state: str) -> dict[str, Any]:
    view: dict[str, Any] = _version(call)["view"]
    _check_etag(call.body.get("etag"), view)
    if view["state"] == "DESTROYED":
        raise unmet(f"Secret Version [{view['name']}] is in DESTROYED state.")
    view["state"] = state
    return _sealed(view)


def _secret(cloud: Cloud, name: str) -> Row:
    row = cloud.state.table(TABLE).get(_internal(cloud, name))
    if row is None:
        raise Refused(404, f"Secret [{_shown(cloud, name)}] not found or has no versions.")
    return row


def _version(call: Call) -> Row:
    parent, _, word = call.name.rpartition("/versions/")
    secret = _secret(call.cloud, parent)
    aliases = secret["view"].get("versionAliases", {})
    for row in _named(secret["versions"], str(aliases.get(word, word))):
        return row
    raise Refused(404, f"Secret Version [{_shown(call.cloud, call.name)}] not found.")


def _named(rows: list[Row], word: str) -> Iterator[Row]:
    if word == "latest":
        yield from rows[-1:]
    elif word.isdigit():
        yield from rows[int(word) - 1 : int(word)] if int(word) else ()


def _sealed(view: dict[str, Any]) -> dict[str, Any]:
    view["etag"] = f'"{fingerprint({key: view[key] for key in view if key != "etag"})}"'
    return view


def _check_etag(given: str | None, view: dict[str, Any]) -> None:
    if given and given != view["etag"]:
        raise unmet("The etag provided does not match the current etag.")


def _internal(cloud: Cloud, name: str) -> str:
    return name.replace(f"projects/{PROJECT_NUMBER}/", f"projects/{cloud.project}/", 1)


def _shown(cloud: Cloud, name: str) -> str:
    """Secret Manager names projects by their numbers, whatever it is asked with."""
    return name.replace(f"projects/{cloud.project}/", f"projects/{PROJECT_NUMBER}/", 1)


HANDLERS = {
    "secretmanager.projects.secrets.create": create,
    "secretmanager.projects.secrets.get": get,
    "secretmanager.projects.secrets.list": listed,
    "secretmanager.projects.secrets.patch": patch,
    "secretmanager.projects.secrets.delete": delete,
    "secretmanager.projects.secrets.addVersion": add_version,
    "secretmanager.projects.secrets.getIamPolicy": get_policy,
    "secretmanager.projects.secrets.setIamPolicy": set_policy,
    "secretmanager.projects.secrets.versions.list": versions,
    "secretmanager.projects.secrets.versions.get": version,
    "secretmanager.projects.secrets.versions.access": access,
    "secretmanager.projects.secrets.versions.enable": enable,
    "secretmanager.projects.secrets.versions.disable": disable,
    "secretmanager.projects.secrets.versions.destroy": destroy,
}

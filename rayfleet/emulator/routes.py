"""From a request to what answers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rayfleet.emulator import compute, guest, iam, places, queued, secrets, storage, tpu
from rayfleet.emulator.cloud import Call, Cloud
from rayfleet.emulator.discovery import (
    NAMED,
    Method,
    check_body,
    check_query,
    document,
    find_method,
)
from rayfleet.emulator.faults import Fault
from rayfleet.emulator.pages import half
from rayfleet.emulator.refusals import Refused

Handler = Callable[[Call], dict[str, Any]]
HANDLERS: Mapping[str, Handler] = {
    **compute.HANDLERS,
    **places.HANDLERS,
    **guest.HANDLERS,
    **tpu.HANDLERS,
    **queued.HANDLERS,
    **iam.HANDLERS,
    **secrets.HANDLERS,
    **storage.HANDLERS,
}
DISCOVERY = "/$discovery/rest"
# Without a version, tpu.googleapis.com describes v2. Ray 2.60 asks so, whatever it then means.
DISCOVERED = {"": "tpu.v2", "v2": "tpu.v2", "v2alpha1": "tpu.v2alpha1"}
# Where a request that makes something says what it will be called.
NEW_NAMES = ("nodeId", "queuedResourceId", "secretId")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One HTTP request. ``query`` has the last value of each parameter."""

    verb: str
    path: str
    query: Mapping[str, str]
    raw: bytes
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A request whose method is known. ``resource`` is what it is about, as faults name it."""

    method: Method
    ids: Mapping[str, str]
    name: str
    resource: str
    body: dict[str, Any]


def route(asked: Asked) -> Routed:
    """What is asked for.

    Raises:
        Refused: it is no method of these APIs, or not as their documents say.
    """
    found = find_method(asked.verb, asked.path)
    if found is None:
        raise Refused(404, f"{asked.verb} {asked.path}: no such method.")
    method, ids = found
    if not asked.token:
        raise Refused(401, "Request had invalid authentication credentials.")
    check_query(method, asked.query)
    body = _body(asked.raw)
    check_body(method, body)
    name = _name(asked.path, method)
    return Routed(
        method=method,
        ids=ids,
        name=name,
        resource=_resource(method, name, asked.query, body),
        body=body,
    )


def carry_out(cloud: Cloud, routed: Routed, query: Mapping[str, str], fault: Fault | None) -> Any:
    """Do it, and say what the API says."""
    handler = HANDLERS.get(routed.method.id)
    if handler is None:
        raise Refused(501, f"The emulator has no {routed.method.id}.")
    call = Call(
        cloud=cloud,
        method=routed.method,
        name=routed.name,
        ids=routed.ids,
        query=query,
        body=routed.body,
        fault=fault,
    )
    answer = handler(call)
    if fault is not None and fault.unreachable:
        return half(routed.method.id, answer, fault.unreachable)
    return answer


def described(version: str) -> dict[str, Any]:
    """The discovery document of Cloud TPU.

    Raises:
        Refused: there is no such version.
    """
    if version not in DISCOVERED:
        raise Refused(404, f"No discovery document of version {version}.")
    return document(DISCOVERED[version])


def _body(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw or b"{}")
    except ValueError as error:
        raise Refused(400, "Invalid JSON payload received.") from error
    if not isinstance(body, dict):
        raise Refused(400, "Invalid JSON payload received. Root element must be a message.")
    return body


def _name(path: str, method: Method) -> str:
    prefix = 3 if method.document.startswith(NAMED) else 2
    name = "/".join(path.split("/")[prefix:])
    return name.rpartition(":")[0] if ":" in method.pattern.pattern.replace("[^/:]", "") else name


def _resource(method: Method, name: str, query: Mapping[str, str], body: dict[str, Any]) -> str:
    new = next((query[key] for key in NEW_NAMES if key in query), "")
    if method.id.startswith("compute."):
        new = str(body.get("name", "")) if method.id.endswith(".insert") else ""
        words = name.split("/")
        if "instances" in words:
            name = "/".join(words[: words.index("instances") + 2])
    return f"{name}/{new}" if new else name

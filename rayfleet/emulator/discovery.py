"""What Google's APIs take, from the discovery documents that google-api-python-client ships."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from rayfleet.emulator.refusals import Refused

DOCUMENTS = (
    "compute.v1",
    "tpu.v2alpha1",
    "tpu.v2",
    "cloudresourcemanager.v1",
    "iam.v1",
    "secretmanager.v1",
    "storage.v1",
)
# These have their name in the path; the others have only a host of their own, at Google.
NAMED = ("compute", "storage")
INTEGER = re.compile(r"-?\d+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of an API. ``id`` is its name, ``tpu.projects.locations.nodes.create`` for one;
    ``request`` names the schema of its body, ``pattern`` matches its paths."""

    id: str
    document: str
    verb: str
    pattern: re.Pattern[str]
    query: frozenset[str]
    request: str


@lru_cache(maxsize=len(DOCUMENTS))
def document(name: str) -> dict[str, Any]:
    """The discovery document ``name``, such as ``tpu.v2``."""
    folder = files("googleapiclient") / "discovery_cache" / "documents"
    read: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return read


def find_method(verb: str, path: str) -> tuple[Method, dict[str, str]] | None:
    """The method that ``verb`` on ``path`` is, with the parameters of its path."""
    for name in DOCUMENTS:
        if path.startswith(_prefix(name)):
            for method in _methods(name):
                found = method.pattern.fullmatch(path) if method.verb == verb else None
                if found:
                    return method, found.groupdict()
    return None


def check_query(method: Method, query: Mapping[str, str]) -> None:
    """Refuse parameters that the method does not have."""
    for name in query:
        if name not in method.query:
            raise Refused(
                400,
                f'Invalid JSON payload received. Unknown name "{name}": '
                "Cannot bind query parameter. Field could not be found in request message.",
            )


def check_body(method: Method, body: Any) -> None:
    """Refuse a body that is not what the method's schema says, as Google does."""
    if not method.request:
        return
    schemas = document(method.document)["schemas"]
    _check(schemas, {"$ref": method.request}, body, method.request[:1].lower() + method.request[1:])


def _prefix(name: str) -> str:
    service, _, version = name.rpartition(".")
    return f"/{service}/{version}/" if service in NAMED else f"/{version}/"


@lru_cache(maxsize=len(DOCUMENTS))
def _methods(name: str) -> tuple[Method, ...]:
    read = document(name)
    base = "/" + read["servicePath"]
    common = frozenset(read["parameters"])
    found = [
        Method(
            id=entry["id"],
            document=name,
            verb=entry["httpMethod"],
            pattern=_pattern(base + entry.get("flatPath", entry["path"])),
            query=common | _query(entry),
            request=entry.get("request", {}).get("$ref", ""),
        )
        for entry in _entries(read)
    ]
    # A path with a custom verb (`…/nodes/n:stop`) is no name with a colon.
    return tuple(sorted(found, key=lambda method: ":" not in method.pattern.pattern))


def _entries(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from resource.get("methods", {}).values()
    for below in resource.get("resources", {}).values():
        yield from _entries(below)


def _query(entry: Mapping[str, Any]) -> frozenset[str]:
    parameters = entry.get("parameters", {}).items()
    return frozenset(name for name, about in parameters if about["location"] == "query")


def _pattern(path: str) -> re.Pattern[str]:
    literal = re.split(r"\{(\w+)\}", path)
    parts = [
        f"(?P<{part}>[^/:]+)" if place % 2 else re.escape(part)
        for place, part in enumerate(literal)
    ]
    return re.compile("".join(parts))


def _check(schemas: Mapping[str, Any], schema: Mapping[str, Any], value: Any, where: str) -> None:
    if "$ref" in schema:
        schema = schemas[schema["$ref"]]
    kind = schema.get("type", "any")
    if kind == "object":
        _check_object(schemas, schema, value, where)
    elif kind == "array":
        if not isinstance(value, list):
            raise _mistyped(where, kind, value)
        for number, item in enumerate(value):
            _check(schemas, schema["items"], item, f"{where}[{number}]")
    elif kind != "any":
        _check_scalar(schema, kind, value, where)


def _check_object(
    schemas: Mapping[str, Any], schema: Mapping[str, Any], value: Any, where: str
) -> None:
    if not isinstance(value, dict):
        raise _mistyped(where, "object", value)
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, item in value.items():
        if item is None:
            continue
        if name in known:
            _check(schemas, known[name], item, f"{where}.{name}")
        elif others is not None:
            _check(schemas, others, item, f"{where}[{name}]")
        else:
            raise Refused(
                400,
                f'Invalid JSON payload received. Unknown name "{name}" at '
                f"'{where}': Cannot find field.",
            )


def _check_scalar(schema: Mapping[str, Any], kind: str, value: Any, where: str) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    # Numbers may be strings, and 64 bits have to be: https://protobuf.dev/programming-guides/json
    if schema.get("format") in ("int64", "uint64") or kind == "integer":
        fits = whole or (isinstance(value, str) and INTEGER.match(value) is not None)
    elif kind == "number":
        fits = whole or isinstance(value, float)
    elif kind == "boolean":
        fits = isinstance(value, bool)
    else:
        fits = isinstance(value, str) and value in schema.get("enum", (value,))
    if not fits:
        raise _mistyped(where, kind, value)


def _mistyped(where: str, kind: str, value: Any) -> Refused:
    shown = json.dumps(value)[:60]
    return Refused(400, f"Invalid value at '{where}' (TYPE_{kind.upper()}), {shown}")

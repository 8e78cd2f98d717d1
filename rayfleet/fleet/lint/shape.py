"""Keys and types, by the schema that Ray itself holds a config against before it does anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from rayfleet.fleet.document import Trail, Value
from rayfleet.fleet.lint.config import TYPES, Config
from rayfleet.fleet.lint.finding import Finding, printable
from rayfleet.fleet.lint.ray_files import ray_schema

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

KINDS: Mapping[str, str] = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "a mapping of keys",
    "string": "text (in quotes)",
}
# Ray takes these out before it looks at its schema.
DROPPED = ("head_node", "worker_nodes")
# Ray has no key for it, but another way.
INSTEAD: Mapping[str, str] = {
    "auth.port": "Ray knows no port; write it into ~/.ssh/config, or use ssh_proxy_command",
    "auth.ssh_port": "Ray knows no port; write it into ~/.ssh/config, or use ssh_proxy_command",
    "head_node": "Ray dropped it; write the head's machine below available_node_types",
    "worker_nodes": "Ray dropped it; write the workers' machine below available_node_types",
    "initial_workers": "Ray dropped it; write min_workers below a node type",
    "autoscaling_mode": "Ray dropped it; write upscaling_speed",
    "target_utilization_fraction": "Ray dropped it; write upscaling_speed",
}


def check_shape(config: Config) -> Iterator[Finding]:
    """The whole file against Ray's schema, as Ray would see it."""
    from jsonschema import Draft7Validator

    found = Draft7Validator(ray_schema()).iter_errors(_as_ray_sees_it(config))
    for fault in sorted(found, key=lambda one: [str(key) for key in one.path]):
        yield from _findings(config, fault)


def check_nothing_dropped(config: Config) -> Iterator[Finding]:
    """Keys that Ray takes out without a word."""
    if "min_workers" in config.document.value and config.provider != "local":
        text = "Ray ignores it at the top level; write it below a node type"
        yield config.warning("min-workers-ignored", ("min_workers",), text)
    if "no_restart" in config.document.value:
        text = "Ray sets it itself; run ray up --no-restart instead"
        yield config.warning("key-of-ray", ("no_restart",), text)


def _as_ray_sees_it(config: Config) -> dict[str, Value]:
    seen = {**config.defaults, **config.document.value}
    seen.pop("min_workers", None)
    for key in DROPPED:
        if not seen.get(key):
            seen.pop(key, None)
    types = seen.get(TYPES)
    if config.provider == "aws" and isinstance(types, dict):
        # Ray asks Amazon what a machine has where the config does not say.
        seen[TYPES] = {
            name: {"resources": {}, **one} if isinstance(one, dict) else one
            for name, one in types.items()
        }
    return seen


def _findings(config: Config, fault: ValidationError) -> Iterator[Finding]:
    trail: Trail = tuple(fault.absolute_path)
    if trail and trail[0] not in config.document.value:
        text = "missing, and Ray's own schema refuses what Ray fills in; write it"
        yield config.error("key-missing", trail[:1], text)
        return
    kind = str(fault.validator)
    wanted: Any = fault.validator_value
    schema: Any = fault.schema
    if kind == "additionalProperties":
        known = sorted(schema.get("properties", {}))
        for key in fault.instance if isinstance(fault.instance, dict) else ():
            if key not in known:
                yield _unknown(config, (*trail, key), known)
    elif kind == "required":
        present: Any = fault.instance
        for key in wanted:
            if key not in present:
                yield config.error("key-missing", trail, f"lacks {key}, which Ray demands")
    elif kind == "type":
        kinds = [wanted] if isinstance(wanted, str) else list(wanted)
        text = f"is {_kind(fault.instance)}; write {' or '.join(KINDS[one] for one in kinds)}"
        yield config.error("wrong-type", trail, text)
    elif kind == "enum":
        yield config.error("wrong-value", trail, f"write one of: {', '.join(map(str, wanted))}")
    elif kind == "minimum":
        yield config.error("wrong-value", trail, f"is below {wanted}; write {wanted} or more")
    else:
        yield config.error("wrong-value", trail, "Ray's schema refuses the value")


def _unknown(config: Config, trail: Trail, known: list[str]) -> Finding:
    key = str(trail[-1])
    instead = INSTEAD.get(".".join(map(str, trail)))
    alike = get_close_matches(key, known, n=1)
    more = f"did you mean {alike[0]}?" if alike else "remove it"
    return config.error("unknown-key", trail, f"unknown to Ray; {instead or more}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {printable(value)}"
    names = {type(None): "null", str: "text", list: "a list", dict: "a mapping"}
    return names.get(type(value), "something else")

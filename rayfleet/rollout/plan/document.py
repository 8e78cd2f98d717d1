"""A plan as a JSON document, and back: exactly, or not at all."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from rayfleet.rollout.model import Plan

KIND = "rayfleet plan of a rollout"
FORMAT = 1
"""Goes up with every change that an older rayfleet would misread."""


class NotAPlan(ValueError):
    """The document is no plan that this rayfleet can read; the text says why."""


def encode_plan(plan: Plan) -> str:
    """The document of ``plan``. It holds no secrets if the plan holds none.

    Raises:
        ValueError: ``created`` has no time zone.
    """
    # ASCII, because half a surrogate pair is valid in JSON and in no encoding.
    return json.dumps(plan_data(plan), indent=1) + "\n"


def plan_data(plan: Plan) -> dict[str, object]:
    """``plan`` as plain data: what :func:`encode_plan` writes.

    Raises:
        ValueError: ``created`` has no time zone.
    """
    if plan.created.tzinfo is None:
        raise ValueError("the time of a plan needs a time zone")
    return {"kind": KIND, "format": FORMAT, **_plain(plan)}


def decode_plan(text: str) -> Plan:
    """The plan that ``text`` documents. Fields that it lacks take their defaults.

    Raises:
        NotAPlan: it documents none, or in a format that is unknown here.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAPlan("it is no JSON document") from error
    if not isinstance(document, dict) or document.pop("kind", None) != KIND:
        raise NotAPlan("it is something else than the plan of a rollout")
    version = document.pop("format", None)
    if type(version) is not int or version != FORMAT:
        raise NotAPlan(
            f"its format is {version if type(version) is int else 'unknown'}, and this rayfleet"
            f" reads format {FORMAT} only; a newer rayfleet reads it"
        )
    plan: Plan = _read(Plan, document, "the plan")
    _check_waves(plan)
    return plan


def _check_waves(plan: Plan) -> None:
    """Every target is in one wave; else it would never be changed, or twice."""
    named = [name for wave in plan.waves for name in wave.clusters]
    if sorted(named) != sorted(plan.targets):
        raise NotAPlan("its waves do not name each of its targets once")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@cache
def _fields_of(kind: type) -> tuple[tuple[Field[Any], Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field, hints[field.name]) for field in fields(kind))


def _read(kind: Any, value: Any, where: str) -> Any:
    """``value`` as a ``kind``; nothing is coerced but whole numbers into seconds."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _read_fields(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return tuple(_read(arguments[0], item, where) for item in _a(list, value, where))
    if origin is Mapping:
        rows = _a(dict, value, where)
        return {key: _read(arguments[1], row, f"{where} {key}") for key, row in rows.items()}
    if origin in {Union, types.UnionType}:  # X | None is the only one there is
        return None if value is None else _read(arguments[0], value, where)
    if kind is datetime:
        return _moment(_a(str, value, where), where)
    if kind is float:
        return float(value) if type(value) is int else _a(float, value, where)
    if issubclass(kind, StrEnum):
        try:
            return kind(_a(str, value, where))
        except ValueError as error:
            raise NotAPlan(f"{where}: {value} is none of {', '.join(kind)}") from error
    return _a(kind, value, where)


def _read_fields(kind: type, value: Any, where: str) -> Any:
    row = dict(_a(dict, value, where))
    found = {}
    for field, hint in _fields_of(kind):
        if field.name in row:
            found[field.name] = _read(hint, row.pop(field.name), f"{where}, {field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise NotAPlan(f"{where} lacks {field.name}")
    if row:
        raise NotAPlan(f"{where} has {', '.join(sorted(row))}, which format {FORMAT} does not know")
    return kind(**found)


def _a(kind: type, value: Any, where: str) -> Any:
    # Not isinstance: True is no number here.
    if type(value) is not kind:
        raise NotAPlan(f"{where}: no {kind.__name__}")
    return value


def _moment(text: str, where: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise NotAPlan(f"{where}: no time") from error
    if moment.tzinfo is None:
        raise NotAPlan(f"{where}: no time zone")
    return moment.astimezone(UTC)

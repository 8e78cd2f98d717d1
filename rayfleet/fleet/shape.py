"""First reading of a fleet file: are the keys known and the values of the right kind?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from rayfleet.fleet.document import Document, Problem, Trail, Value
from rayfleet.fleet.schema import FleetEntry, example_at, keys_at

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

# pydantic's error types that are one mistake to us: what is expected in plain words.
EXPECTED: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "dataclass_type": "a mapping",
    "dataclass_exact_type": "a mapping",
}
MOST = 100  # problems: who has more mends these first
GUESSES, LISTED, LONGEST = 200, 30, 100
# A number to YAML 1.2 readers, although PyYAML takes it for text.
NUMBER_LIKE = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?")


def read_shape(document: Document) -> tuple[FleetEntry | None, tuple[Problem, ...]]:
    """The file as entries, or None and every mistake of shape."""
    from pydantic import ValidationError

    numbers = tuple(_number_like(document))
    try:
        # Strict JSON mode: the one strict mode in which plain mappings become dataclasses.
        entry = _adapter().validate_json(json.dumps(document.value), strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=True)
        return None, (*numbers, *(_problem(document, detail) for detail in found[:MOST]))
    return (None if numbers else entry), numbers


@cache
def _adapter() -> TypeAdapter[FleetEntry]:
    """Made once: that takes 20 ms."""
    from pydantic import TypeAdapter

    return TypeAdapter(FleetEntry)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """``did you mean X?`` or, if nothing is near, ``known: A, B``.

    Looks for what is near among so many, and so short ones, that it takes no time.
    """
    first = list(islice((one for one in known if len(one) <= LONGEST), GUESSES))
    near = get_close_matches(wrong, first, n=1, cutoff=0.6) if len(wrong) <= LONGEST else []
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(first[:LISTED]) or 'none'}"


def _number_like(document: Document) -> Iterator[Problem]:
    for name, entry in mappings(document.value.get("clusters")):
        tag, trail = entry.get("tag"), ("clusters", name, "tag")
        if isinstance(tag, str) and trail in document.plain and NUMBER_LIKE.fullmatch(tag):
            text = f'{tag} is a number to other YAML readers; quote it: "{tag}"'
            yield document.problem(trail, text)


def mappings(value: Value) -> Iterator[tuple[str, dict[str, Value]]]:
    """The entries of a mapping that are mappings themselves; nothing of anything else."""
    if isinstance(value, dict):
        yield from ((key, entry) for key, entry in value.items() if isinstance(entry, dict))


def _problem(document: Document, detail: ErrorDetails) -> Problem:
    trail: Trail = tuple(detail["loc"])
    kind = detail["type"]
    if kind == "unexpected_keyword_argument":
        hint = did_you_mean(str(trail[-1]), keys_at(trail[:-1]))
        return document.problem(trail, f"unknown key; {hint}")
    if kind == "missing":
        return document.problem(trail, f"missing; write {trail[-1]}: {example_at(trail)}")
    if kind == "enum":
        expected = detail["ctx"]["expected"]
        return document.problem(trail, f"{detail['input']!r} is unknown; write {expected}")
    return document.problem(trail, _wrong_kind(document, trail, kind, detail["input"]))


def _wrong_kind(document: Document, trail: Trail, kind: str, value: object) -> str:
    expected = EXPECTED.get(kind, "something else")
    if expected == "text" and trail in document.plain and isinstance(value, bool | int | float):
        return f'expected text, found {_named(value)}; quote it: "{document.plain[trail]}"'
    example = example_at(trail)
    remedy = f"; write {trail[-1]}: {example}" if example else ""
    return f"expected {expected}, found {_named(value)}{remedy}"


def _named(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    if isinstance(value, bool | int | float):
        return _written(value)
    return f"the text {str(value)[:40]!r}"


def _written(value: object) -> str:
    return json.dumps(value)

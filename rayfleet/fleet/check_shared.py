"""Checks that several parts of the second reading make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rayfleet.fleet.document import Document, Problem, Trail, Value
from rayfleet.project import could_be_path

Entry = dict[str, Value]


def mapping(value: Value) -> Entry:
    """``value`` if it is a mapping; an empty one instead of anything else."""
    return value if isinstance(value, dict) else {}


def check_repeats(document: Document, trail: Trail, items: list[Value]) -> Iterator[Problem]:
    """Every text of the list at ``trail`` that is in it twice."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        if isinstance(item, str) and item in seen:
            yield document.problem((*trail, index), f"{item!r} is in the list twice; remove one")
        elif isinstance(item, str):
            seen.add(item)


def inside(root: Path, path: str) -> Path:
    """``path`` below ``root``; a path that leaves it becomes one that cannot exist."""
    nowhere = root / "\N{BULLET}"
    if not could_be_path(path) or Path(path).is_absolute():
        return nowhere
    try:
        found = (root / path).resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # links that lead in a circle, for one
        return nowhere
    return root / path if found else nowhere

"""Checks that several parts of the second reading make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rayfleet.fleet.document import Document, Problem, Trail, Value


def check_repeats(document: Document, trail: Trail, items: list[Value]) -> Iterator[Problem]:
    """Every text of the list at ``trail`` that is in it twice."""
    for index, item in enumerate(items):
        if isinstance(item, str) and item in items[:index]:
            yield document.problem((*trail, index), f"{item!r} is in the list twice; remove one")


def inside(root: Path, path: str) -> Path:
    """``path`` below ``root``; a path that leaves it becomes one that cannot exist."""
    nowhere = root / "\N{BULLET}"
    if "\0" in path or len(path) > 1024 or Path(path).is_absolute():
        return nowhere
    return root / path if (root / path).resolve().is_relative_to(root.resolve()) else nowhere

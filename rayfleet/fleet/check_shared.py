"""Checks that several parts of the second reading make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rayfleet.fleet.document import Document, Problem, Trail, Value

Entry = dict[str, Value]
LONGEST_NAME = 255  # bytes of one part of a path, on every file system that matters
LONGEST_PATH = 1024


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


def too_long(path: str) -> bool:
    """Whether no file system would take ``path``."""
    parts = path.split("/")
    return len(path) > LONGEST_PATH or any(len(part.encode()) > LONGEST_NAME for part in parts)


def inside(root: Path, path: str) -> Path:
    """``path`` below ``root``; a path that leaves it becomes one that cannot exist."""
    nowhere = root / "\N{BULLET}"
    if "\0" in path or too_long(path) or Path(path).is_absolute():
        return nowhere
    try:
        found = (root / path).resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # links that lead in a circle, for one
        return nowhere
    return root / path if found else nowhere

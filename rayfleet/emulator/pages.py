"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rayfleet.emulator.refusals import invalid


def page(
    rows: Sequence[Any], query: Mapping[str, str], *, key: str, size: str, default: int
) -> dict[str, Any]:
    """The page of ``rows`` that ``query`` asks for: ``size`` is what the API calls the most that
    a page may have. An empty list has no ``key`` at all."""
    token = query.get("pageToken") or "0"
    if not token.isdigit():
        raise invalid("pageToken", f"'{token}'")
    start, count = int(token), int(query.get(size) or 0) or default
    found = rows[start : start + min(count, default)]
    answer: dict[str, Any] = {key: list(found)} if found else {}
    if start + len(found) < len(rows):
        answer["nextPageToken"] = str(start + len(found))
    return answer


def half(method: str, answer: Mapping[str, Any], zone: str) -> dict[str, Any]:
    """The ``answer`` of a list ``method`` that does not reach ``zone``: Cloud TPU names the places
    that it leaves out, Compute Engine warns. Both answer with 200."""
    left: dict[str, Any] = {
        key: [row for row in value if not _is_in(row, zone)] if isinstance(value, list) else value
        for key, value in answer.items()
    }
    if method.startswith("compute."):
        message = f"The scope 'zones/{zone}' cannot be reached."
        return left | {"warning": {"code": "UNREACHABLE", "message": message}}
    return left | {"unreachable": [zone]}


def _is_in(row: Mapping[str, Any], zone: str) -> bool:
    where = f"{row.get('name', '')}/{row.get('zone', '')}/"
    return f"/locations/{zone}/" in where or f"/zones/{zone}/" in where

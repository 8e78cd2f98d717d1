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

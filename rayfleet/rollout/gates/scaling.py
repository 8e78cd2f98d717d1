"""The autoscaler's report, as the dashboard prints it (``/api/cluster_status?format=1``).

Autoscaler v2, the default since Ray 2.50, gives it in no other form over HTTP (Ray 2.60).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

STATUS = "/api/cluster_status?format=1"

_SECTION = re.compile(r"(Pending|Recent failures|Active|Idle|Healthy):")
_LAUNCHING = re.compile(r" (?P<kind>[^,]+), (?P<count>\d+) launching")
_PENDING = re.compile(r" (?P<where>.+): (?P<kind>[^,:]+),.*")
_FAILED = re.compile(r" (?P<kind>[^:]+): (?P<why>\S.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One report. ``asked`` counts by node type what is being launched or set up; a launch of
    several counts as one there. ``failures`` has the latest failures by node type, in Ray's words.
    """

    asked: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def parse_scaling(document: object) -> Scaling | None:
    """Read the answer of :data:`STATUS`; None while the autoscaler has not reported."""
    try:
        text = document["data"]["clusterStatus"]  # type: ignore[index]
    except (KeyError, TypeError):
        return None
    if not isinstance(text, str) or "Autoscaler status:" not in text:
        return None
    asked: Counter[str] = Counter()
    failures: dict[str, tuple[str, ...]] = {}
    section = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            heading = _SECTION.match(line)
            section = heading[1] if heading else ""
        elif section == "Pending":
            found = _LAUNCHING.fullmatch(line) or _PENDING.fullmatch(line)
            if found:
                asked[found["kind"]] += int(found.groupdict().get("count") or 1)
        elif section == "Recent failures" and (found := _FAILED.fullmatch(line)):
            failures[found["kind"]] = (*failures.get(found["kind"], ()), found["why"])
    return Scaling(asked=asked, failures=failures)

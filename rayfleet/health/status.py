"""``invoke status``: one row per cluster, and every known state that one is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

from rayfleet.cluster.lifecycle import brief
from rayfleet.console import Console
from rayfleet.errors import RayfleetError, UsageError
from rayfleet.fleet.model import Cluster
from rayfleet.health.look import Looker, examine_all
from rayfleet.health.sight import Finding, Sight

Answer: TypeAlias = tuple[Sight, tuple[Finding, ...]] | RayfleetError

SHORT_DIGEST = len("sha256:") + 12
# Rows and columns of the first table say these.
SHOWN_ALREADY = frozenset({"head does not answer", "head unknown", "config drift"})


def show_status(looker: Looker, clusters: Sequence[Cluster], *, as_json: bool) -> None:
    """Ask every cluster at once and print tables, or a JSON document with all that is known.

    Raises:
        UsageError: no cluster could be looked at, because nothing was ever rendered.
    """
    console = looker.life.console
    seen = examine_all(looker, clusters)
    errors = [answer for answer in seen.values() if isinstance(answer, UsageError)]
    if errors and len(errors) == len(seen):
        raise errors[0]
    entries = [_entry(cluster, seen[cluster.name]) for cluster in clusters]
    if as_json:
        console.json({"clusters": entries})
        return
    console.table(
        ("cluster", "state", "Ray", "workers", "image", "config", "trouble"),
        [_cells(entry, _rollout(seen[str(entry["cluster"])])) for entry in entries],
    )
    found = {name: answer[1] for name, answer in seen.items() if isinstance(answer, tuple)}
    _show_findings(console, found)


def _show_findings(console: Console, found: Mapping[str, Sequence[Finding]]) -> None:
    rows = [
        (name, finding.state, finding.found, finding.remedy)
        for name, several in found.items()
        for finding in several
        if finding.state not in SHOWN_ALREADY
    ]
    if rows:
        console.table(("cluster", "known state", "found", "mend it with"), rows)


def _entry(cluster: Cluster, answer: Answer) -> dict[str, object]:
    entry: dict[str, object] = {
        "cluster": cluster.name,
        "identity": cluster.identity,
        "region": cluster.region,
        "zone": cluster.zone,
    }
    if isinstance(answer, RayfleetError):
        return entry | {"state": "unknown", "trouble": [brief(answer)]}
    sight, found = answer
    seen = sight.observed
    return entry | {
        "state": sight.word,
        "rollout": sight.rollout.document() if sight.rollout else None,
        "head": seen.head,
        "ray_version": seen.ray_version,
        "workers": {
            "joined": seen.joined,
            "minimum": sum(seen.wanted_workers.values()),
            "by_type": dict(seen.workers),
        },
        "image_digest": seen.image_digest,
        "pinned_digest": seen.wanted_digest,
        "runs_pinned_image": bool(seen.image_digest) and seen.image_digest == seen.wanted_digest,
        "config_current": bool(seen.config_hash) and seen.config_hash == seen.wanted_hash,
        "trouble": _trouble(sight),
        "findings": [asdict(finding) for finding in found],
        "not_seen": dict(sight.blind),
    }


def _trouble(sight: Sight) -> list[str]:
    if sight.in_hand or sight.word == "stopped":
        return []
    return list(sight.observed.failing())


def _rollout(answer: Answer) -> str:
    """Which rollout is changing the cluster now; empty for none."""
    if isinstance(answer, RayfleetError) or answer[0].rollout is None or not answer[0].in_hand:
        return ""
    return f"{answer[0].rollout.text}; {answer[0].rollout.next_step}"


def _cells(entry: dict[str, object], rollout: str) -> tuple[object, ...]:
    workers, digest = entry.get("workers"), str(entry.get("image_digest", ""))
    trouble = entry["trouble"]
    runs = entry["state"] in {"healthy", "unhealthy"}
    return (
        entry["cluster"],
        entry["state"],
        entry.get("ray_version", ""),
        f"{workers['joined']}/{workers['minimum']}" if isinstance(workers, dict) and runs else "",
        digest[:SHORT_DIGEST],
        ("current" if entry.get("config_current") else "differs") if runs else "",
        rollout or ("; ".join(trouble) if isinstance(trouble, list) else ""),
    )

"""``invoke status``: one row per cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rayfleet.cluster.fanout import fan_out
from rayfleet.cluster.health import Observed
from rayfleet.cluster.lifecycle import Lifecycle, brief
from rayfleet.errors import RayfleetError, UsageError
from rayfleet.fleet.model import Cluster

LOOK_LIMIT = 16  # clusters asked at once
ASK_TIMEOUT = 60.0  # seconds per cluster
SHORT_DIGEST = len("sha256:") + 12


def show_status(life: Lifecycle, clusters: Sequence[Cluster], *, as_json: bool) -> None:
    """Ask every cluster at once and print a table, or a JSON document with all that is known.

    Raises:
        UsageError: no cluster could be looked at, because nothing was ever rendered.
    """
    questions = {cluster.name: partial(life.observe, cluster) for cluster in clusters}
    seen = fan_out(questions, limit=LOOK_LIMIT, timeout=ASK_TIMEOUT, what="the cluster")
    errors = [answer for answer in seen.values() if isinstance(answer, UsageError)]
    if errors and len(errors) == len(seen):
        raise errors[0]
    entries = [_entry(cluster, seen[cluster.name]) for cluster in clusters]
    if as_json:
        life.console.json({"clusters": entries})
        return
    life.console.table(
        ("cluster", "state", "Ray", "workers", "image", "config", "trouble"),
        [_cells(entry) for entry in entries],
    )


def _entry(cluster: Cluster, seen: Observed | RayfleetError) -> dict[str, object]:
    entry: dict[str, object] = {
        "cluster": cluster.name,
        "identity": cluster.identity,
        "region": cluster.region,
        "zone": cluster.zone,
    }
    if isinstance(seen, RayfleetError):
        return entry | {"state": "unknown", "trouble": [brief(seen)]}
    return entry | {
        "state": seen.word(),
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
        "trouble": [] if seen.word() == "stopped" else list(seen.failing()),
    }


def _cells(entry: dict[str, object]) -> tuple[object, ...]:
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
        "; ".join(trouble) if isinstance(trouble, list) else "",
    )

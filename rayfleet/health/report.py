"""``invoke doctor --cluster X``: every known state that X is in, with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError
from rayfleet.fleet.model import Cluster
from rayfleet.health.look import Looker, examine_all
from rayfleet.health.sight import Finding, Sight
from rayfleet.health.states import KNOWN

CLUSTERS_AT_ONCE = 4  # each asks all of its workers


def examine_clusters(looker: Looker, clusters: Sequence[Cluster], *, as_json: bool) -> None:
    """Look at ``clusters`` from all sides and show what is wrong with them, or a JSON document.

    Raises:
        PartialFailure: a cluster is in a known state, or something could not be looked at.
        RayfleetError: the only cluster could not be looked at at all.
    """
    console = looker.life.console
    with console.phase("look at " + ", ".join(cluster.name for cluster in clusters)):
        seen = examine_all(looker, clusters, limit=CLUSTERS_AT_ONCE)
    if len(seen) == 1:
        (only,) = seen.values()
        if isinstance(only, RayfleetError):
            raise only
    if as_json:
        console.json({"clusters": [_entry(name, answer) for name, answer in seen.items()]})
    else:
        _show(console, seen)
    bad = [name for name, answer in seen.items() if _is_bad(answer)]
    if bad:
        raise PartialFailure(
            f"{', '.join(bad)}: not as it should be",
            next_step="the commands above; then: invoke doctor"
            + "".join(f" --cluster {name}" for name in bad),
        )


Answer = tuple[Sight, tuple[Finding, ...]] | RayfleetError


def _is_bad(answer: Answer) -> bool:
    if isinstance(answer, RayfleetError):
        return True
    sight, found = answer
    return not sight.in_hand and bool(found or sight.blind)


def _was_seen(check: str, sight: Sight) -> bool:
    """Whether what ``check`` looks at was seen: that it finds nothing then means something."""
    seen = {
        "rollout": True,
        "head": not sight.observed.problem,
        "idle workers": not sight.observed.problem,
        "autoscaler": sight.observed.answers and sight.cluster.name in sight.nodes,
        "workers": sight.scaling is not None and sight.holdings is not None,
        "launches": sight.scaling is not None,
        "slices": sight.observed.answers and sight.holdings is not None,
        "versions": sight.observed.answers,
        "images": sight.observed.answers,
        "bucket": sight.bucket is not None,
        "disks": bool(sight.nodes),
    }
    return seen.get(check, sight.holdings is not None)


def _entry(name: str, answer: Answer) -> dict[str, object]:
    if isinstance(answer, RayfleetError):
        return {"cluster": name, "problem": answer.text(), "findings": [], "not_seen": {}}
    sight, found = answer
    return {
        "cluster": name,
        "problem": "",
        "state": sight.word,
        "rollout": sight.rollout.document() if sight.rollout else None,
        "findings": [asdict(finding) for finding in found],
        "not_seen": dict(sight.blind),
        "disks": {
            node: {
                room.mount: {"size": room.size, "free": room.free, "used": round(room.used, 3)}
                for room in seen.rooms
            }
            for node, seen in sight.nodes.items()
        },
    }


def _show(console: Console, seen: dict[str, Answer]) -> None:
    rows: list[tuple[object, ...]] = []
    for name, answer in seen.items():
        if isinstance(answer, RayfleetError):
            rows.append((name, "cluster", "unknown", answer.text(), ""))
            continue
        sight, found = answer
        if sight.rollout is not None and sight.rollout.running:
            rollout = sight.rollout
            rows.append((name, "rollout", rollout.word, rollout.text, rollout.next_step))
            continue
        for check, state in KNOWN.items():
            told = {(one.state, one.subjects) for one in state(sight)}
            of_it = [one for one in found if (one.state, one.subjects) in told]
            rows += [(name, check, one.state, one.found, one.remedy) for one in of_it]
            if not of_it:
                rows.append((name, check, "ok" if _was_seen(check, sight) else "not seen", "", ""))
        rows += [(name, side, "not seen", why, "") for side, why in sight.blind.items()]
    console.table(("cluster", "check", "state", "found", "mend it with"), rows)

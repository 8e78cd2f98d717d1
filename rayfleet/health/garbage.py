"""``invoke gc``: what clusters left behind in their cloud goes, and nothing else.

Each thing is looked at again right before it is deleted, for it may have come back to life since
the list was made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.cluster.fanout import fan_out, reason
from rayfleet.cluster.lifecycle import alone
from rayfleet.errors import PartialFailure, RayfleetError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.health.cloud import GoogleHoldings
from rayfleet.health.holding import Holdings, Kind, Leftover, leftovers, node_of_rule, removable
from rayfleet.project import Project
from rayfleet.worker.queue import in_google

if TYPE_CHECKING:
    from rayfleet.console import Console

CLUSTERS_AT_ONCE = 4
DELETIONS_AT_ONCE = 16
LIST_SECONDS = 300.0  # per cluster, with all the tries of its four lists
DELETE_SECONDS = 1200.0  # per thing, and per cluster as a whole

STAYS, WOULD_GO, GONE, CAME_BACK, FAILED = "stays", "would go", "gone", "in use again", "failed"
# A queued resource goes after its slices, or Google would refuse.
TURNS = ((Kind.SLICE, Kind.VM), (Kind.QUEUED,), (Kind.FIREWALL,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of one leftover; ``why`` of one that stays or failed is why it did."""

    leftover: Leftover
    word: str
    why: str
    error: RayfleetError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One cluster's leftovers, or the error that kept us from looking, or from touching them.

    ``looked`` is False for a cluster that is not in Google Cloud."""

    cluster: str
    looked: bool = True
    fates: tuple[Fate, ...] = ()
    error: RayfleetError | None = None


@dataclass(frozen=True)
class Garbage:
    """The leftovers of one fleet's clusters. ``look`` finds a cluster's things."""

    project: Project
    fleet: Fleet
    look: Callable[[LaunchConfig], GoogleHoldings] = GoogleHoldings
    now: Callable[[], float] = time.time

    def sweep(self, clusters: Sequence[Cluster], *, remove: bool) -> tuple[Swept, ...]:
        """Find the leftovers of ``clusters`` and, with ``remove``, delete them.

        No error is raised but a defect: each is in its cluster's result.
        """
        results = fan_out(
            {cluster.name: partial(self._sweep, cluster, remove) for cluster in clusters},
            limit=CLUSTERS_AT_ONCE,
            timeout=LIST_SECONDS + (DELETE_SECONDS if remove else 0.0),
            what="its cloud",
        )
        return tuple(
            Swept(cluster=name, error=result) if isinstance(result, RayfleetError) else result
            for name, result in results.items()
        )

    def _sweep(self, cluster: Cluster, remove: bool) -> Swept:
        config = read_launch_config(self.fleet, cluster)
        if not in_google(config):
            return Swept(cluster=cluster.name, looked=False)
        place = self.look(config)
        if not remove:
            return Swept(cluster=cluster.name, fates=_planned(self._found(place)))
        with alone(self.project, cluster):
            found = self._found(place)
            fates = [fate for fate in _planned(found) if fate.word == STAYS]
            for turn in TURNS:
                wanted = [one for one in removable(found) if one.holding.kind in turn]
                fates += self._delete_all(place, wanted)
        return Swept(cluster=cluster.name, fates=tuple(fates))

    def _found(self, place: GoogleHoldings) -> tuple[Leftover, ...]:
        return leftovers(place.config.identity, place.all(), now=self.now())

    def _delete_all(self, place: GoogleHoldings, wanted: Sequence[Leftover]) -> list[Fate]:
        results = fan_out(
            {one.holding.name: partial(self._delete, place, one) for one in wanted},
            limit=DELETIONS_AT_ONCE,
            timeout=DELETE_SECONDS,
            what="its deletion",
        )
        return [
            Fate(leftover=one, word=FAILED, why=reason(result), error=result)
            if isinstance(result, RayfleetError)
            else result
            for one, result in ((one, results[one.holding.name]) for one in wanted)
        ]

    def _delete(self, place: GoogleHoldings, one: Leftover) -> Fate:
        thing = place.again(one.holding)
        if thing is None:
            return Fate(leftover=one, word=GONE, why="somebody else removed it")
        if thing.kind is Kind.FIREWALL:
            again = not place.node_exists(node_of_rule(place.config.identity, thing.name))
        else:
            # Its own state is what may have changed; what it depends on is Google's to check.
            alone_now = replace(thing, queued="", nodes=())
            again = bool(removable(leftovers("", Holdings(things=(alone_now,)), now=self.now())))
        if not again:
            return Fate(leftover=one, word=CAME_BACK, why=f"now it is {thing.state}")
        place.delete(thing)
        return Fate(leftover=one, word=GONE, why=one.why)


def collect(
    garbage: Garbage,
    clusters: Sequence[Cluster],
    console: Console,
    *,
    remove: bool,
    as_json: bool,
) -> None:
    """Remove the leftovers of ``clusters``, or show what would go; a table or a JSON document.

    Raises:
        RayfleetError: the only cluster could not be looked at or touched.
        PartialFailure: some of several could not, or something was not deleted.
    """
    with console.phase("remove leftovers" if remove else "look for leftovers"):
        swept = garbage.sweep(clusters, remove=remove)
    if as_json:
        console.json({"dry_run": not remove, "clusters": [_entry(one) for one in swept]})
    else:
        _show(swept, console, remove=remove)
    _conclude(swept, console)


def _planned(found: Sequence[Leftover]) -> tuple[Fate, ...]:
    return tuple(
        Fate(leftover=one, word=STAYS, why=f"{one.why}; but {one.kept}")
        if one.kept
        else Fate(leftover=one, word=WOULD_GO, why=one.why)
        for one in found
    )


def _show(swept: Sequence[Swept], console: Console, *, remove: bool) -> None:
    rows = [
        (one.cluster, fate.leftover.holding.kind, fate.leftover.holding.name, fate.word, fate.why)
        for one in swept
        for fate in one.fates
    ]
    if rows:
        console.table(("cluster", "kind", "name", "fate", "why"), rows)
    elif not any(one.looked for one in swept):
        console.say("none of these clusters is in Google Cloud: there is nothing to look for")
    elif not any(one.error for one in swept):
        console.say("nothing is left behind")
    names = [one.cluster for one in swept if any(fate.word == WOULD_GO for fate in one.fates)]
    if names and not remove:
        flags = "".join(f" --cluster {name}" for name in names)
        console.say(f"nothing was changed; to remove it: invoke gc{flags} --yes")


def _entry(one: Swept) -> dict[str, object]:
    return {
        "cluster": one.cluster,
        "looked": one.looked,
        "problem": reason(one.error) if one.error else "",
        "leftovers": [
            {
                "kind": fate.leftover.holding.kind.value,
                "name": fate.leftover.holding.name,
                "zone": fate.leftover.holding.zone,
                "state": fate.leftover.holding.state,
                "fate": fate.word,
                "why": fate.why,
            }
            for fate in one.fates
        ],
    }


def _conclude(swept: Sequence[Swept], console: Console) -> None:
    blind = [one for one in swept if one.error is not None]
    if len(swept) == 1 and blind and blind[0].error:
        raise blind[0].error
    for one in blind:
        if one.error:
            console.say(one.error.text())
    failed = [
        fate.leftover.holding.name for one in swept for fate in one.fates if fate.word == FAILED
    ]
    if not blind and not failed:
        return
    names = [one.cluster for one in swept if one.error or any(f.error for f in one.fates)]
    raise PartialFailure(
        f"leftovers of {', '.join(names)} may be there still",
        why=f"not deleted: {', '.join(failed)}" if failed else "they could not be looked at",
        next_step="invoke gc" + "".join(f" --cluster {name}" for name in names),
    )

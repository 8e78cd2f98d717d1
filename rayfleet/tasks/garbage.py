"""``invoke gc``: what clusters left behind in their cloud."""

from __future__ import annotations

from invoke.context import Context

from rayfleet.tasks.edge import chosen, open_session
from rayfleet.tasks.words import task


@task(
    iterable=["cluster"],
    help={
        "cluster": "a cluster's name or a glob (default: all)",
        "yes": "remove it; without this it is only shown",
        "json": "print JSON",
    },
)
def gc(context: Context, cluster: list[str], yes: bool = False, json: bool = False) -> None:
    """Remove what clusters left behind; without --yes show it.

    Preempted and stopped TPU slices, failed and suspended queued resources, stopped VMs, all by
    Ray's label of the cluster, and firewall rules of nodes that are gone. Nothing that runs or is
    being made. Exit codes: 0 done, 2 something was not removed, 4 the cloud does not answer,
    5 another run changes the cluster.
    """
    from rayfleet.health.garbage import Garbage, collect

    session = open_session(context)
    fleet = session.fleet()
    clusters = chosen(fleet, cluster, every=not cluster)
    garbage = Garbage(session.project, fleet)
    collect(garbage, clusters, session.console, remove=yes, as_json=json)

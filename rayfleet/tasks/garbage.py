"""``invoke gc``: what clusters left behind in their cloud."""

from __future__ import annotations

from invoke.context import Context

from rayfleet.tasks.edge import chosen, open_session
from rayfleet.tasks.words import task


@task(
    iterable=["cluster"],
    help={
        "cluster": "a cluster's name or a glob; repeat it for more (default, to look: all)",
        "all": "all clusters of the fleet",
        "dry-run": "only show it, as without --yes",
        "yes": "remove it, of the clusters of --cluster or --all",
        "json": "print JSON",
    },
)
def gc(
    context: Context,
    cluster: list[str],
    all: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Remove what clusters left behind; without --yes show it.

    Preempted and stopped TPU slices, failed and suspended queued resources, stopped VMs, all by
    Ray's label of the cluster, and firewall rules of nodes that are gone. Nothing that runs or is
    being made. Exit codes: 0 done, 2 something was not removed, 4 the cloud does not answer,
    5 another run changes the cluster.
    """
    from rayfleet.health.garbage import Garbage, collect

    session = open_session(context)
    fleet = session.fleet()
    remove = yes and not dry_run
    clusters = chosen(fleet, cluster, every=all or not (cluster or remove))
    garbage = Garbage(session.project, fleet)
    collect(garbage, clusters, session.console, remove=remove, as_json=json)

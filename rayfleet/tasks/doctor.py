"""``invoke doctor``: what this machine lacks, or what is wrong with a cluster."""

from __future__ import annotations

from invoke.context import Context

from rayfleet.tasks.edge import chosen, open_session
from rayfleet.tasks.words import task


@task(
    iterable=["cluster"],
    help={
        "cluster": "look at clusters instead of this machine: a name or a glob",
        "json": "Print JSON instead of a table.",
    },
)
def doctor(context: Context, cluster: list[str], json: bool = False) -> None:
    """List what the tasks need and what is missing.

    What is checked depends on the fleet. Each missing thing is shown with the command that
    mends it. Exits with 1 when something is missing.

    With --cluster, clusters are looked at from all sides: the head, every worker, the cloud, the
    bucket. Each known state is shown with its remedy. Exits with 2 when there is one, or when
    something could not be looked at.
    """
    session = open_session(context)
    fleet = session.fleet()
    if cluster:
        from rayfleet.cluster.lifecycle import Lifecycle
        from rayfleet.health.look import Looker
        from rayfleet.health.report import examine_clusters

        life = Lifecycle(session.project, fleet, session.console)
        clusters = chosen(fleet, cluster, every=False)
        examine_clusters(Looker(life, deep=True), clusters, as_json=json)
        return
    from rayfleet.doctor.examine import examine

    report = examine(fleet, session.project)
    report.show(session.console, as_json=json)
    report.raise_missing()

"""``invoke tail-logs``."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from rayfleet.tasks.edge import chosen, open_session


@task(
    auto_shortflags=False,
    iterable=["cluster"],
    help={
        "cluster": "A cluster by name or glob; repeat it for more. Default: all.",
        "tail": "Start with this many last lines of each file.",
        "follow": "Go on with new lines until Ctrl-C; --no-follow prints and ends.",
        "grep": "Show only lines in which this regular expression is found.",
        "json": "Print one JSON object per line: cluster, file, line.",
    },
)
def tail_logs(
    context: Context,
    cluster: list[str],
    tail: str = "10",
    follow: bool = True,
    grep: str = "",
    json: bool = False,
) -> None:
    """Follow the autoscaler logs of every head.

    A lost connection is reported and taken up again. Exits with 2 when some heads could not
    be read, and with 4 when none could.
    """
    from rayfleet.arguments import parse_count
    from rayfleet.log.sources import Reading
    from rayfleet.log.tail import tail_clusters

    session = open_session(context)
    fleet = session.fleet()
    clusters = chosen(fleet, cluster, every=not cluster)
    reading = Reading(tail=parse_count(tail, "--tail", smallest=0), follow=follow)
    tail_clusters(
        session.project, fleet, clusters, reading, grep=grep, as_json=json, console=session.console
    )

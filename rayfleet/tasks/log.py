"""``invoke tail-logs``."""

from __future__ import annotations

from invoke.context import Context

from rayfleet.tasks.edge import chosen, open_session
from rayfleet.tasks.words import task


@task(
    iterable=["cluster", "log", "include", "exclude", "highlight"],
    optional=["merge"],
    help={
        "cluster": "a cluster's name or a glob; repeat it (default: all)",
        "all": "all clusters of the fleet",
        "log": "autoscaler (default), gcs_server, dashboard, raylet, job:<id> or a glob; repeat it",
        "nodes": "head, workers or all (default: head; all for jobs)",
        "tail": "begin with that many last lines of each file, before any filter; -1: all"
        " (default: 10; all with --since or --until)",
        "since": "only what was logged after: 5m, 1h30m (ago), 20:00, '2026-11-21 20:00'",
        "until": "only what was logged before, likewise; following ends there",
        "follow": "go on with new lines until Ctrl-C; --no-follow prints and ends",
        "include": "only records with this regular expression; repeat it for others",
        "exclude": "no records with this regular expression; repeat it for others",
        "highlight": "show what this regular expression matches bold; repeat it",
        "level": "only records of this level or above, such as WARNING",
        "merge": "lines of all files in the order of their times, up to this late (2s)",
        "output": "text (default), raw (the bytes, no prefix) or jsonl",
        "template": "the form of each line, such as '{time} {cluster} {file}: {message}'",
        "color": "auto (default), always or never",
        "fail-on": "exit with 3 at the first record with this regular expression",
        "until-match": "exit with 0 at the first record with it, with 2 if none came",
        "drop": "drop and count lines that come faster than they are read, instead of waiting",
    },
)
def tail_logs(
    context: Context,
    cluster: list[str],
    log: list[str],
    include: list[str],
    exclude: list[str],
    highlight: list[str],
    all: bool = False,
    nodes: str | None = None,
    tail: str | None = None,
    since: str | None = None,
    until: str | None = None,
    follow: bool = True,
    level: str | None = None,
    merge: str | bool | None = None,
    output: str | None = None,
    template: str | None = None,
    color: str | None = None,
    fail_on: str | None = None,
    until_match: str | None = None,
    drop: bool = False,
) -> None:
    """Follow logs of many clusters, the autoscalers' by default.

    A lost connection is taken up again where it was, and workers that join are followed as well.
    Exits with 2 when some nodes could not be read, and with 4 when none could.
    """
    from rayfleet.log.options import Flags, read_options
    from rayfleet.log.tail import tail_clusters

    options = read_options(
        Flags(
            log=log,
            nodes=nodes,
            tail=tail,
            since=since,
            until=until,
            follow=follow,
            include=include,
            exclude=exclude,
            highlight=highlight,
            level=level,
            merge=merge,
            output=output,
            template=template,
            color=color,
            fail_on=fail_on,
            until_match=until_match,
            drop=drop,
        )
    )
    session = open_session(context)
    fleet = session.fleet()
    clusters = chosen(fleet, cluster, every=all or not cluster)
    tail_clusters(session.project, fleet, clusters, options, console=session.console)

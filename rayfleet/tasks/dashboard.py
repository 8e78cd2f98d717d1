"""``invoke dashboard``."""

from __future__ import annotations

from invoke.context import Context

from rayfleet.tasks.edge import chosen, open_session
from rayfleet.tasks.words import task


@task(
    iterable=["cluster"],
    help={
        "cluster": "a cluster's name or a glob; repeat it for more; default: all",
        "port": "port of the page on 127.0.0.1; default: any that is free",
        "open": "show the page in the browser; --no-open prints its address only",
    },
)
def dashboard(context: Context, cluster: list[str], port: str = "0", open: bool = True) -> None:
    """Show the Ray dashboards of all clusters on one page.

    Prints the one address to open and serves until Ctrl-C: a local port per cluster, over SSH,
    with the cluster's token added on the way. The address lets in whoever has
    it. A cluster that cannot be reached is listed with the cause and tried again.
    """
    from rayfleet.arguments import parse_count
    from rayfleet.dashboard.show import show_dashboards

    session = open_session(context)
    fleet = session.fleet()
    show_dashboards(
        session.project,
        fleet,
        chosen(fleet, cluster, every=not cluster),
        port=parse_count(port, "--port", smallest=0),
        browse=open,
        console=session.console,
    )

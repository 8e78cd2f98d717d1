"""``invoke auth.*``: Ray's tokens, and the key that opens the heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from invoke.context import Context

from rayfleet.tasks.edge import ROLLOUT_HELP, chosen, one_cluster, open_session, with_rollout_flags
from rayfleet.tasks.words import task

CLUSTER = "a cluster's name or a glob; repeat it for more (default: all)"


DRY_RUN = "say what would be done, change nothing"


@task(
    iterable=["cluster"],
    help={
        "cluster": "a cluster's name or a glob; repeat it for more",
        "all": "all clusters of the fleet",
        "dry-run": DRY_RUN,
    },
)
def init(context: Context, cluster: list[str], all: bool = False, dry_run: bool = False) -> None:
    """Make the secrets of clusters that have none.

    What is there stays. Configs name the version from then on.
    """
    from rayfleet.auth.begin import begin

    session = open_session(context)
    fleet = session.fleet()
    clusters = chosen(fleet, cluster, every=all)
    begin(session.project, fleet, clusters, session.console, dry_run=dry_run)


@task(iterable=["cluster"], help={"cluster": CLUSTER})
def fetch(context: Context, cluster: list[str]) -> None:
    """Keep the tokens of clusters on this machine.

    Each in a file of its own that only you can read; prints the files. Other tasks do it
    themselves when they need one.
    """
    from rayfleet.auth.check import fetch as fetch_tokens

    session = open_session(context)
    fleet = session.fleet()
    clusters = chosen(fleet, cluster, every=not cluster)
    for path in fetch_tokens(session.project, fleet, clusters, session.console).values():
        session.console.data(path)


@task(help={"cluster": "the cluster's name"})
def env(context: Context, cluster: str) -> None:
    """Print what a shell needs for Ray's own commands.

    eval "$(invoke auth.env --cluster us-east5)". It names the file of the token, never the token.
    """
    from rayfleet.auth.env import exports

    session = open_session(context)
    fleet = session.fleet()
    target = one_cluster(fleet, cluster)
    for line in exports(session.project, fleet, target, session.console):
        session.console.data(line)


@task(
    iterable=["cluster"],
    help={
        "cluster": "a cluster's name or a glob; those that share its secret come along",
        "all": "every cluster",
        "dry-run": DRY_RUN,
        "yes": "do not ask",
        **ROLLOUT_HELP,
    },
)
@with_rollout_flags
def rotate(
    context: Context,
    cluster: list[str],
    all: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    *,
    rollout: Mapping[str, Any],
) -> None:
    """Give running clusters a new token by a staged restart.

    The old one ends when every cluster takes the new one and nothing else; clients try both
    meanwhile. Whatever else the configs have changed comes along. Run again, it goes on.
    """
    from rayfleet.auth.rotate import plan_rotation
    from rayfleet.auth.rotate import rotate as rotate_tokens
    from rayfleet.rollout.plan.options import Options

    session = open_session(context)
    fleet = session.fleet()
    options = Options(**rollout, only_outdated=True)
    clusters = chosen(fleet, cluster, every=all)
    if dry_run:
        plan_rotation(session.project, fleet, clusters, session.console)
        return
    rotate_tokens(session.project, fleet, clusters, session.console, options=options, yes=yes)


@task(
    iterable=["cluster"],
    help={"cluster": CLUSTER, "json": "print JSON"},
)
def check(context: Context, cluster: list[str], json: bool = False) -> None:
    """Ask heads which token they take, and who else comes in.

    Exit codes: 0 as it should be, 2 something is wrong somewhere.
    """
    from rayfleet.auth.check import check as check_tokens
    from rayfleet.auth.check import show_checks

    session = open_session(context)
    fleet = session.fleet()
    clusters = chosen(fleet, cluster, every=not cluster)
    checked = check_tokens(session.project, fleet, clusters)
    show_checks(checked, session.console, as_json=json)


@task(
    name="open",
    help={
        "cluster": "the cluster's name",
        "open": "show the page in the browser; --no-open prints its address only",
    },
)
def open_dashboard(context: Context, cluster: str, open: bool = True) -> None:
    """Show one cluster's dashboard, its token added on the way.

    As invoke dashboard --cluster does.
    """
    from rayfleet.dashboard.show import show_dashboards

    session = open_session(context)
    fleet = session.fleet()
    target = one_cluster(fleet, cluster)
    show_dashboards(session.project, fleet, [target], port=0, browse=open, console=session.console)


@task(help={"dry-run": DRY_RUN})
def keys(context: Context, dry_run: bool = False) -> None:
    """Fetch the SSH key pair of the heads from Secret Manager.

    To where the fleet file has ssh.private_key and public_key; another key there stays.
    """
    from rayfleet.auth.keys import fetch_keys

    session = open_session(context)
    fetch_keys(session.fleet(), session.console, dry_run=dry_run)

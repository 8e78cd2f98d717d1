"""``invoke start | stop | restart | status``: the clusters themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rayfleet.tasks.edge import chosen, open_session

if TYPE_CHECKING:
    from rayfleet.rollout.restart import Action

PARALLEL = "2"

HELP = {
    "cluster": "a cluster's name or a glob; repeat it for more",
    "all": "all clusters of the fleet",
    "dry_run": "print what would be done, change nothing",
    "yes": "go on although running jobs will be killed",
    "parallel": "clusters changed at once, after the first ones of the fleet's order",
}


@task(auto_shortflags=False, iterable=["cluster"], help={k: HELP[k] for k in HELP if k != "yes"})
def start(
    context: Context,
    cluster: list[str],
    all: bool = False,
    dry_run: bool = False,
    parallel: str = PARALLEL,
) -> None:
    """Start clusters and wait until they are healthy.

    A healthy cluster is left as it is.
    """
    from rayfleet.rollout.restart import Action

    _run(context, Action.START, cluster, all, dry_run=dry_run, yes=True, parallel=parallel)


@task(auto_shortflags=False, iterable=["cluster"], help=HELP)
def stop(
    context: Context,
    cluster: list[str],
    all: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    parallel: str = PARALLEL,
) -> None:
    """Stop clusters and prove that nothing is left.

    Running jobs die: they are listed first, and you are asked.
    """
    from rayfleet.rollout.restart import Action

    _run(context, Action.STOP, cluster, all, dry_run=dry_run, yes=yes, parallel=parallel)


@task(auto_shortflags=False, iterable=["cluster"], help=HELP)
def restart(
    context: Context,
    cluster: list[str],
    all: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    parallel: str = PARALLEL,
) -> None:
    """Restart clusters onto their pinned image.

    Each one stops, is proved gone, starts, and passes its gates: the head answers, it runs
    the pinned digest, the minimum of workers has joined.
    """
    from rayfleet.rollout.restart import Action

    _run(context, Action.RESTART, cluster, all, dry_run=dry_run, yes=yes, parallel=parallel)


@task(
    auto_shortflags=False,
    iterable=["cluster"],
    help={"cluster": "a cluster's name or a glob (default: all)", "json": "print JSON"},
)
def status(context: Context, cluster: list[str], json: bool = False) -> None:
    """Show what every cluster runs."""
    from rayfleet.cluster.lifecycle import Lifecycle
    from rayfleet.cluster.report import show_status

    session = open_session(context)
    fleet = session.fleet()
    life = Lifecycle(session.project, fleet, session.console)
    show_status(life, chosen(fleet, cluster, every=not cluster), as_json=json)


def _run(
    context: Context,
    action: Action,
    names: list[str],
    every: bool,
    *,
    dry_run: bool,
    yes: bool,
    parallel: str,
) -> None:
    from rayfleet.arguments import parse_count
    from rayfleet.cluster.lifecycle import Lifecycle
    from rayfleet.rollout.restart import run

    session = open_session(context)
    fleet = session.fleet()
    targets = chosen(fleet, names, every=every)
    life = Lifecycle(session.project, fleet, session.console)
    count = parse_count(parallel, "--parallel")
    run(life, targets, action, dry_run=dry_run, yes=yes, parallel=count)

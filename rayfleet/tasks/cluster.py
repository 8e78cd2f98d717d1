"""``invoke start | stop | restart | status``: the clusters themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from rayfleet.tasks.edge import ROLLOUT_HELP, chosen, open_session, with_rollout_flags
from rayfleet.tasks.words import task

if TYPE_CHECKING:
    from rayfleet.rollout.change import Action

PARALLEL = "2"

CHOICE = {
    "cluster": "a cluster's name or a glob; repeat it for more",
    "all": "all clusters of the fleet",
}

HELP = {
    **CHOICE,
    "dry_run": "print what would be done, change nothing",
    "yes": "go on although running jobs will be killed",
    "parallel": "clusters changed at once, after the first ones of the fleet's order",
}


@task(iterable=["cluster"], help={k: HELP[k] for k in HELP if k != "yes"})
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
    from rayfleet.rollout.change import Action

    _run(context, Action.START, cluster, all, dry_run=dry_run, yes=True, parallel=parallel)


@task(iterable=["cluster"], help=HELP)
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
    from rayfleet.rollout.change import Action

    _run(context, Action.STOP, cluster, all, dry_run=dry_run, yes=yes, parallel=parallel)


@task(
    iterable=["cluster"],
    help={
        **CHOICE,
        **ROLLOUT_HELP,
        "only-outdated": "leave out clusters that run the wanted image and config already",
        "unhealthy": "a head that is not healthy: fail (default), skip or repair it",
        "dry-run": "print the plan, change nothing",
        "yes": "do not ask",
        "json": "a line of JSON per event on stdout; with --dry-run the plan as JSON",
    },
)
@with_rollout_flags
def restart(
    context: Context,
    cluster: list[str],
    all: bool = False,
    only_outdated: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
    unhealthy: str = "",
    *,
    rollout: Mapping[str, Any],
) -> None:
    """Restart clusters in stages; their jobs survive.

    Onto the pinned image and the generated config, one cluster before many. For each:
    preflight, backup of its jobs, stop, nothing left, start, gates, jobs given back. What no
    flag says, the fleet file does, under rollout:.

    Ctrl-C finishes what is in hand and pauses; invoke rollouts.resume goes on.

    Exit codes: 0 done, 1 usage, 2 clusters failed, 3 declined or aborted, 4 unreachable, 5 locked,
    6 paused, 7 done but a job was not given back, 130 interrupted.
    """
    from rayfleet.rollout.plan.options import Options, command_line
    from rayfleet.rollout.restart import Restart, run_restart

    session = open_session(context)
    fleet = session.fleet()
    options = Options(**rollout, unhealthy=unhealthy, only_outdated=only_outdated)
    named = [word for name in cluster for word in ("--cluster", name)]
    words = ["--all"] if all else named
    wish = Restart(
        clusters=chosen(fleet, cluster, every=all),
        options=options,
        command=command_line("restart", [*words, *options.flags()]),
        dry_run=dry_run,
        yes=yes,
        as_json=json,
    )
    run_restart(session.project, fleet, session.console, wish)


@task(
    iterable=["cluster"],
    help={"cluster": "a cluster's name or a glob (default: all)", "json": "print JSON"},
)
def status(context: Context, cluster: list[str], json: bool = False) -> None:
    """Show what every cluster runs, and what is wrong with it.

    Known states, such as leftovers that eat quota or workers that the autoscaler lost, are shown
    with the command that mends them; invoke doctor --cluster NAME looks deeper.
    """
    from rayfleet.cluster.lifecycle import Lifecycle
    from rayfleet.health.look import Looker
    from rayfleet.health.status import show_status

    session = open_session(context)
    fleet = session.fleet()
    life = Lifecycle(session.project, fleet, session.console)
    show_status(Looker(life), chosen(fleet, cluster, every=not cluster), as_json=json)


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
    from rayfleet.rollout.change import run

    session = open_session(context)
    fleet = session.fleet()
    targets = chosen(fleet, names, every=every)
    life = Lifecycle(session.project, fleet, session.console)
    count = parse_count(parallel, "--parallel")
    run(life, targets, action, dry_run=dry_run, yes=yes, parallel=count)

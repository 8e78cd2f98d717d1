"""``invoke jobs.backup | jobs.restore | jobs.vault``: keep the jobs of a cluster, and give them
back."""

from __future__ import annotations

from functools import partial

from invoke.context import Context

from rayfleet.tasks.edge import chosen, one_cluster, open_session
from rayfleet.tasks.words import task

ONE_CLUSTER = "The cluster, one of the fleet."


@task(
    help={"cluster": ONE_CLUSTER, "json": "Print the backup as JSON, without any secret."},
)
def backup(context: Context, cluster: str, json: bool = False) -> None:
    """Save every job of a cluster that has not ended.

    Exit codes: 0 saved and complete, 2 saved and incomplete, 4 the jobs could not be listed.
    """
    from rayfleet.job.preserve import Preserver, require_complete
    from rayfleet.job.vault.listing import show_saved

    session = open_session(context)
    fleet = session.fleet()
    target = one_cluster(fleet, cluster)
    with session.console.phase(f"back up the jobs of {target.name}"):
        saved = Preserver(session.project, fleet, session.console).backup(target)
    show_saved(session.console, saved, as_json=json)
    require_complete(saved)


@task(
    iterable=["job"],
    help={
        "cluster": ONE_CLUSTER,
        "backup": "Which backup, as jobs.vault lists it. Default: the latest complete one.",
        "job": "Give only this job back; repeatable.",
        "stopped": "With --job: also if it was stopped after it was saved, as by a rollout.",
        "per-second": "How many of the jobs that start at once are submitted per second.",
        "watch": "Seconds to watch the jobs while they start; 0: do not.",
        "dry-run": "Say what would become of each job, submit none.",
        "json": "Print the outcome of every job as JSON.",
    },
)
def restore(
    context: Context,
    cluster: str,
    job: list[str],
    backup: str = "",
    stopped: bool = False,
    per_second: str = "5",
    watch: str = "60",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Give a cluster its jobs back; safe to run again.

    Exit codes: 0 every job is there or ended by itself, 4 the head does not answer, 5 the cluster
    is part of a rollout, 7 a job could not be given back.
    """
    from rayfleet.arguments import parse_number
    from rayfleet.cluster.lifecycle import alone
    from rayfleet.errors import UsageError
    from rayfleet.job.preserve import Preserver
    from rayfleet.rollout.held import open_free_head

    if stopped and not job:
        raise UsageError(
            "--stopped names no job",
            why="a job that its user has stopped would come back as well",
            next_step="invoke jobs.vault --cluster " + cluster + ", then: --stopped --job NAME",
        )
    session = open_session(context)
    fleet = session.fleet()
    target = one_cluster(fleet, cluster)
    rate = parse_number(per_second, "--per-second", smallest=0.1)
    seconds = parse_number(watch, "--watch", smallest=0.0)
    enter = partial(open_free_head, session.project, fleet)
    preserver = Preserver(session.project, fleet, session.console, enter=enter)
    again = job if stopped else ()
    if dry_run:
        plan = preserver.plan_restore(target, backup_id=backup, only=job, stopped=again)
        plan.show(session.console, as_json=json)
        return
    with (
        session.console.phase(f"restore the jobs of {target.name}"),
        alone(session.project, target),
    ):
        report = preserver.restore(
            target,
            backup_id=backup,
            only=job,
            stopped=again,
            per_second=rate,
            watch=seconds,
        )
    report.show(session.console, as_json=json)
    report.raise_failures()


@task(
    iterable=["cluster"],
    help={
        "cluster": "Only backups of these clusters, by name or glob; repeatable.",
        "backup": "Show the jobs of this backup.",
        "prune": "Delete older backups that no rollout needs, and packages that only they need.",
        "older-than": "With --prune: the age from which a backup is deleted.",
        "dry-run": "With --prune: only say what would be deleted.",
        "yes": "With --prune: do not ask.",
        "json": "Print JSON, without any secret.",
    },
)
def vault(
    context: Context,
    cluster: list[str],
    backup: str = "",
    prune: bool = False,
    older_than: str = "30d",
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """List the backups of jobs, show one, or prune them."""
    from functools import partial

    from rayfleet.arguments import parse_age
    from rayfleet.job.preserve import Preserver
    from rayfleet.job.vault import listing
    from rayfleet.rollout.uses.backups import needed_backups

    session = open_session(context)
    fleet = session.fleet()
    kept = Preserver(session.project, fleet, session.console).vault
    names = [one.name for one in chosen(fleet, cluster, every=not cluster)] if cluster else []
    if prune:
        age = parse_age(older_than, "--older-than")
        listing.prune(
            session.console,
            kept,
            age,
            protect=partial(needed_backups, session.project.state),
            dry_run=dry_run,
            yes=yes,
            as_json=json,
        )
    elif backup:
        listing.show_backup(session.console, kept, backup, as_json=json)
    else:
        listing.show_backups(session.console, kept, names, as_json=json)

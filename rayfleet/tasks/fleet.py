"""``invoke update-configs`` and ``invoke fleet.*``: the fleet file and what comes of it."""

from __future__ import annotations

from invoke.context import Context

from rayfleet.console import Console
from rayfleet.tasks.edge import chosen, open_session
from rayfleet.tasks.words import task


@task(
    name="update-configs",
    iterable=["cluster"],
    help={
        "dry-run": "Change nothing; list what would be written, and what each costs a cluster.",
        "check": "Change nothing; exit 4 if a file differs from the fleet (for CI).",
        "diff": "As --dry-run, with the differences line by line.",
        "cluster": "Only this cluster's config; repeat it, globs are fine (default: all).",
        "allow-identity-change": "Write a config even if its cluster gets a new identity.",
    },
)
def update_configs(
    context: Context,
    cluster: list[str],
    dry_run: bool = False,
    check: bool = False,
    diff: bool = False,
    allow_identity_change: bool = False,
) -> None:
    """Generate the Ray cluster configs from the fleet file."""
    from rayfleet.fleet import configs

    session = open_session(context)
    fleet, console = session.fleet(), session.console
    only = chosen(fleet, cluster, every=False) if cluster else None
    update = configs.plan_update(fleet, root=session.project.root, clusters=only)
    update.show(console, diff=diff)
    if check:
        update.refuse_drift()
    elif not (diff or dry_run):
        configs.apply_update(update, console, allow_identity_change=allow_identity_change)


@task(
    positional=["file"],
    iterable=["file"],
    help={
        "file": "Check these Ray cluster configs or KubeRay manifests instead; any provider.",
        "json": "Print the findings as JSON.",
    },
)
def lint(context: Context, file: list[str] | None = None, json: bool = False) -> None:
    """Check the fleet and its configs, or any Ray cluster config."""
    from rayfleet.fleet import review

    if file:
        # No project and no fleet is needed to look at files of others.
        console, found = Console(), review.review_files(file)
    else:
        session = open_session(context)
        console, found = (
            session.console,
            review.review_fleet(session.fleet(), root=session.project.root),
        )
    review.show_findings(found, console, as_json=json, files=len(file or ()))
    review.refuse_errors(found, again=["invoke fleet.lint", *(file or ())])


@task(
    name="list",
    help={"json": "Print the clusters as JSON."},
)
def list_clusters(context: Context, json: bool = False) -> None:
    """List the clusters of the fleet."""
    from rayfleet.fleet import overview

    session = open_session(context)
    overview.show_rows(overview.overview(session.fleet()), session.console, as_json=json)

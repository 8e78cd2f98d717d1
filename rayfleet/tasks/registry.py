"""``invoke registry.*``: the repositories that hold the images."""

from __future__ import annotations

from invoke.context import Context

from rayfleet.tasks.edge import open_session
from rayfleet.tasks.words import task

REGION = "A region of the fleet; repeatable. Default: all of them."


@task(
    iterable=["region"],
    help={
        "region": REGION,
        "rehearse": "Let the registries log what the policies would delete, and delete nothing.",
        "dry-run": "Print what would change and change nothing.",
        "json": "Print JSON instead of a table.",
    },
)
def cleanup(
    context: Context,
    region: list[str],
    rehearse: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Set the cleanup policies in every region.

    Sets what the fleet file says under registries.cleanup and rules that keep every image in
    use: of pins, configs, running nodes, rollouts and their ways back. Reads it back, creates a
    missing repository, keeps policies that are not ours. Where a cluster cannot be asked what it
    runs, rules are only added.
    """
    from rayfleet.registry.cleanup import set_cleanup_policies
    from rayfleet.rollout.uses.collect import images_in_use

    session = open_session(context)
    fleet = session.fleet()
    report = set_cleanup_policies(
        fleet,
        console=session.console,
        uses=images_in_use(session.project, fleet, regions=region),
        regions=region,
        dry_run=dry_run,
        rehearse=rehearse,
    )
    report.show(session.console, as_json=json)
    report.raise_failures()


@task(
    iterable=["region"],
    help={"region": REGION, "json": "Print JSON instead of a table."},
)
def preview(context: Context, region: list[str], json: bool = False) -> None:
    """Show what registry.cleanup would delete or keep, and why.

    From what every region really holds and everything that needs an image. Fails if policies in
    force would delete an image in use, or if a cluster could not be asked what it runs.
    """
    from rayfleet.registry.preview import preview_cleanup
    from rayfleet.rollout.uses.collect import images_in_use

    session = open_session(context)
    fleet = session.fleet()
    uses = images_in_use(session.project, fleet, regions=region)
    found = preview_cleanup(fleet, uses=uses, regions=region)
    found.show(session.console, as_json=json)
    found.raise_failures()


@task(
    iterable=["region"],
    help={"region": REGION, "json": "Print JSON instead of a table."},
)
def show(context: Context, region: list[str], json: bool = False) -> None:
    """Show the policies and versions of every region."""
    from rayfleet.registry.inventory import read_inventory

    session = open_session(context)
    inventory = read_inventory(session.fleet(), regions=region)
    inventory.show(session.console, as_json=json)
    inventory.raise_failures()


@task(
    iterable=["region"],
    help={
        "region": REGION,
        "check": "Only look; keep no login.",
        "plain-text": "Keep a password in Docker's configuration where it has no helper.",
        "json": "Print JSON instead of a table.",
    },
)
def login(
    context: Context,
    region: list[str],
    check: bool = False,
    plain_text: bool = False,
    json: bool = False,
) -> None:
    """Try the login of every region, and keep it for Docker.

    Says how a push logs in to each region and whether it may pull and push there: an upload is
    begun in every repository and cancelled. A refusal names the permission and the command that
    grants it. Without --check, logins that work are kept in Docker's credential helper.
    """
    from rayfleet.registry.keep_login import keep_logins
    from rayfleet.registry.login import check_logins

    session = open_session(context)
    fleet = session.fleet()
    report = check_logins(fleet, regions=region)
    if not check:
        report = keep_logins(report, fleet, console=session.console, plain_text=plain_text)
    report.show(session.console, as_json=json)
    report.raise_failures()

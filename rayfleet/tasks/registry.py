"""``invoke registry.*``: the repositories that hold the images."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from rayfleet.tasks.edge import open_session

REGION = "A region of the fleet; repeatable. Default: all of them."


@task(
    iterable=["region"],
    auto_shortflags=False,
    help={
        "region": REGION,
        "dry-run": "Print what would change and change nothing.",
        "json": "Print JSON instead of a table.",
    },
)
def cleanup(context: Context, region: list[str], dry_run: bool = False, json: bool = False) -> None:
    """Set the cleanup policies in every region.

    Sets what the fleet file says under registries.cleanup, reads it back, creates a missing
    repository, and keeps policies that are not ours.
    """
    from rayfleet.registry.cleanup import set_cleanup_policies

    session = open_session(context)
    report = set_cleanup_policies(
        session.fleet(), console=session.console, regions=region, dry_run=dry_run
    )
    report.show(session.console, as_json=json)
    report.raise_failures()


@task(
    iterable=["region"],
    auto_shortflags=False,
    help={"region": REGION, "json": "Print JSON instead of a table."},
)
def show(context: Context, region: list[str], json: bool = False) -> None:
    """Show the policies and versions of every region."""
    from rayfleet.registry.inventory import read_inventory

    session = open_session(context)
    inventory = read_inventory(session.fleet(), regions=region)
    inventory.show(session.console, as_json=json)
    inventory.raise_failures()

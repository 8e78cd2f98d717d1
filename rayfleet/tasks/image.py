"""Images: build, publish, promote, roll back, look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from rayfleet.tasks.edge import open_session
from rayfleet.tasks.words import task

if TYPE_CHECKING:
    from rayfleet.image.pipeline import Pipeline


@task(
    name="cluster-docker",
    help={
        "image": "Which image of the fleet file to build.",
        "allow-dirty": "Build uncommitted changes too; the tags then end in -dirty.",
        "dry-run": "Print the plan, and what each region lacks; change nothing.",
        "json": "Print the plan or the result as JSON.",
        "push-limit": "How many blobs to send at a time, to all regions together.",
    },
)
def cluster_docker(
    context: Context,
    image: str = "cluster",
    allow_dirty: bool = False,
    dry_run: bool = False,
    json: bool = False,
    push_limit: str = "16",
) -> None:
    """Build the cluster image, publish it everywhere, pin it."""
    pipeline = _pipeline(context, image, allow_dirty, push_limit)
    if dry_run:
        pipeline.show_plan(as_json=json)
        return
    pipeline.release().conclude(pipeline.console, as_json=json)


@task(
    help={
        "image": "Which image of the fleet file to build.",
        "allow-dirty": "Build uncommitted changes too; the tag then ends in -dirty.",
        "dry-run": "Print the plan and change nothing.",
        "json": "Print the plan or the result as JSON.",
    },
)
def build(
    context: Context,
    image: str = "cluster",
    allow_dirty: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Build an image and publish nothing."""
    pipeline = _pipeline(context, image, allow_dirty)
    if dry_run:
        pipeline.plan().show(pipeline.console, as_json=json)
        return
    pipeline.build().show(pipeline.console, as_json=json)


@task(
    iterable=["tag"],
    help={
        "image": "Which image of the fleet file to publish.",
        "ref": "Any image of the engine, by name or ID, instead of what was built.",
        "tag": "What --ref is called in the registries (repeatable).",
        "pin": "Pin it when every region has it.",
        "allow-dirty": "Publish what was built of uncommitted changes.",
        "dry-run": "Print what each region lacks and change nothing.",
        "json": "Print the plan or the result as JSON.",
        "push-limit": "How many blobs to send at a time, to all regions together.",
    },
)
def publish(
    context: Context,
    tag: list[str],
    image: str = "cluster",
    ref: str = "",
    pin: bool = True,
    allow_dirty: bool = False,
    dry_run: bool = False,
    json: bool = False,
    push_limit: str = "16",
) -> None:
    """Publish an image that is built already, and pin it."""
    pipeline = _pipeline(context, image, allow_dirty, push_limit)
    selection = pipeline.selection(name=ref, tags=tag, pin=pin)
    if dry_run:
        pipeline.survey(selection).conclude(pipeline.console, as_json=json)
        return
    pipeline.publish(selection).conclude(pipeline.console, as_json=json)


@task(
    iterable=["to"],
    help={
        "source": "TAG, sha256:DIGEST, FAMILY:TAG, FAMILY@sha256:DIGEST, current or previous.",
        "to": "What to call it: TAG, FAMILY:TAG or FAMILY (with the source's tag); repeatable.",
        "pin": "Make it LATEST of the image that it goes to: the tag latest and the pin.",
        "image": "Whose TAG or digest is meant where no FAMILY is named.",
        "dry-run": "Print the plan and change nothing.",
        "yes": "Move tags that name another image now without asking.",
        "json": "Print the plan or the result as JSON.",
    },
)
def promote(
    context: Context,
    source: str,
    to: list[str],
    pin: bool = False,
    image: str = "cluster",
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Move a digest between images or tags, without bytes.

    Every region must hold one digest under SOURCE. It gets the new tags in all of them at
    once; tags that name another image now, and latest, come last, when all regions have the
    rest. Run again, it does what is missing.
    """
    from rayfleet.image.promote.promoter import execute, find_order

    session = open_session(context)
    project, fleet, console = session.project, session.fleet(), session.console
    order = find_order(fleet, source, to, family=image, pin=pin)
    execute(project, fleet, console, order, dry_run=dry_run, yes=yes, as_json=json)


@task(
    help={
        "image": "Which image of the fleet file to roll back.",
        "to": "Tag or digest of any earlier pin (default: the previous one).",
        "dry-run": "Print the plan and change nothing.",
        "yes": "Do not ask.",
        "json": "Print the plan or the result as JSON.",
    },
)
def rollback(
    context: Context,
    image: str = "cluster",
    to: str = "",
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Pin the previous image again, and move latest back.

    Changes nothing unless every region still holds that image. What was current becomes the
    previous pin, so that a second rollback swaps them back. Fixed tags stay. No cluster is
    touched: update-configs and restart bring them onto it.
    """
    from rayfleet.image.promote.promoter import execute
    from rayfleet.image.promote.rollback import find_rollback

    session = open_session(context)
    project, fleet, console = session.project, session.fleet(), session.console
    order = find_rollback(fleet, family=image, to=to)
    execute(project, fleet, console, order, dry_run=dry_run, yes=yes, as_json=json)


@task(
    help={
        "image": "Which image of the fleet file.",
        "limit": "How many pins to show.",
        "json": "Print JSON instead of a table.",
    },
)
def history(
    context: Context, image: str = "cluster", limit: str = "20", json: bool = False
) -> None:
    """Show what LATEST of an image was.

    From the pin file and its versions in git, newest first: what was pinned, built from
    which commit, by whom and when.
    """
    from rayfleet.arguments import parse_count
    from rayfleet.image.history import read_history

    session = open_session(context)
    found = read_history(session.fleet(look=False), image)
    found.show(session.console, limit=parse_count(limit, "--limit"), as_json=json)


@task(
    iterable=["region"],
    help={
        "ref": "TAG, sha256:DIGEST, FAMILY:TAG, FAMILY@sha256:DIGEST, current or previous.",
        "image": "Whose TAG or digest is meant where no FAMILY is named.",
        "region": "A region of the fleet; repeatable. Default: all of them.",
        "json": "Print JSON instead of tables.",
    },
)
def inspect(
    context: Context,
    region: list[str],
    ref: str = "current",
    image: str = "cluster",
    json: bool = False,
) -> None:
    """Show one image: layers, labels, where it is.

    Without --ref it is the current pin.
    """
    from rayfleet.image.inspect import inspect_reference

    session = open_session(context)
    found = inspect_reference(session.fleet(), ref, family=image, regions=region)
    found.show(session.console, as_json=json)
    found.require()


def _pipeline(context: Context, image: str, allow_dirty: bool, push_limit: str = "16") -> Pipeline:
    from rayfleet.arguments import parse_count
    from rayfleet.image.pipeline import Pipeline

    session = open_session(context)
    return Pipeline(
        project=session.project,
        fleet=session.fleet(),
        console=session.console,
        family=image,
        allow_dirty=allow_dirty,
        push_limit=parse_count(push_limit, "--push-limit"),
    )

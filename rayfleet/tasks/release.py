"""``invoke release``: image, pins, configs, policies, clusters."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from rayfleet.tasks.edge import open_session


@task(
    auto_shortflags=False,
    help={
        "image": "which image of the fleet file to release",
        "allow-dirty": "build uncommitted changes too; the tags then end in -dirty",
        "dry-run": "print the whole plan, change nothing",
        "yes": "go on although running jobs will be killed",
        "parallel": "clusters changed at once, after the first ones of the fleet's order",
        "json": "print the plan or the result as JSON",
    },
)
def release(
    context: Context,
    image: str = "cluster",
    allow_dirty: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    parallel: str = "2",
    json: bool = False,
) -> None:
    """Build, publish, pin, regenerate, clean up, restart.

    The same as cluster-docker, update-configs, registry.cleanup and restart one after the
    other; it stops at the first failure. A cluster that runs the image and config already is
    left alone.
    """
    from rayfleet.arguments import parse_count
    from rayfleet.rollout.release import Release, ReleaseOptions

    session = open_session(context)
    options = ReleaseOptions(
        family=image,
        allow_dirty=allow_dirty,
        yes=yes,
        parallel=parse_count(parallel, "--parallel"),
    )
    Release(session.project, session.fleet(), session.console, options).execute(
        dry_run=dry_run, as_json=json
    )

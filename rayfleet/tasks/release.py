"""``invoke release``: image, pins, configs, policies, clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from invoke.context import Context

from rayfleet.tasks.edge import ROLLOUT_HELP, open_session, with_rollout_flags
from rayfleet.tasks.words import task


@task(
    help={
        **ROLLOUT_HELP,
        "image": "which image of the fleet file to release",
        "allow-dirty": "build uncommitted changes too; the tags then end in -dirty",
        "dry-run": "print the whole plan, change nothing",
        "yes": "do not ask before clusters are restarted",
        "json": "print the plan or the result as JSON",
    },
)
@with_rollout_flags
def release(
    context: Context,
    image: str = "cluster",
    allow_dirty: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
    *,
    rollout: Mapping[str, Any],
) -> None:
    """Build, publish, pin, regenerate, clean up, restart.

    The same as cluster-docker, update-configs, registry.cleanup and restart --only-outdated one
    after the other; it stops at the first failure. A cluster that runs the image and config
    already is left alone.
    """
    from rayfleet.rollout.plan.options import Options
    from rayfleet.rollout.release import Release, ReleaseOptions

    session = open_session(context)
    options = ReleaseOptions(
        family=image, allow_dirty=allow_dirty, yes=yes, rollout=Options(**rollout)
    )
    Release(session.project, session.fleet(), session.console, options).execute(
        dry_run=dry_run, as_json=json
    )

"""``invoke release``: image, pins, configs, policies, clusters."""

from __future__ import annotations

from invoke.context import Context

from rayfleet.tasks.edge import ROLLOUT_HELP, open_session
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
def release(
    context: Context,
    image: str = "cluster",
    allow_dirty: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
    parallel: str = "",
    per_region: str = "",
    waves: str = "",
    bake: str = "",
    max_failures: str = "",
    max_untouched: str = "",
    on_failure: str = "",
    preserve_jobs: bool = True,
) -> None:
    """Build, publish, pin, regenerate, clean up, restart.

    The same as cluster-docker, update-configs, registry.cleanup and restart --only-outdated one
    after the other; it stops at the first failure. A cluster that runs the image and config
    already is left alone.
    """
    from rayfleet.rollout.plan.options import Options
    from rayfleet.rollout.release import Release, ReleaseOptions

    session = open_session(context)
    rollout = Options(
        parallel=parallel,
        per_region=per_region,
        waves=waves,
        bake=bake,
        max_failures=max_failures,
        max_untouched=max_untouched,
        on_failure=on_failure,
        preserve_jobs=preserve_jobs,
    )
    options = ReleaseOptions(family=image, allow_dirty=allow_dirty, yes=yes, rollout=rollout)
    Release(session.project, session.fleet(), session.console, options).execute(
        dry_run=dry_run, as_json=json
    )

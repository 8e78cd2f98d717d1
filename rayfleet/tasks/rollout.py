"""``invoke rollouts.*``: look at rollouts, and steer them from any terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from rayfleet.tasks.edge import open_session
from rayfleet.tasks.words import task

if TYPE_CHECKING:
    from rayfleet.rollout.steer import Steering

ROLLOUT = "Its id or how that begins; default: the latest that is not finished, else the latest."
CLUSTER = "Only this cluster of it, by name or glob; repeatable."
YES = "Do not ask."
JSON = "Where it goes on here: a line of JSON per event on stdout, a summary last."


@task(
    name="list",
    help={"all": "The older ones too.", "json": "Print JSON instead of a table."},
)
def list_rollouts(context: Context, all: bool = False, json: bool = False) -> None:
    """List the rollouts: whose they are, how they stand."""
    from rayfleet.rollout.listing import show_rollouts

    session = open_session(context)
    show_rollouts(session.project, session.console, every=all, as_json=json)


@task(
    positional=["rollout"],
    help={
        "rollout": ROLLOUT,
        "html": "Write the report with the timeline of every cluster to this file.",
        "json": "Print JSON instead of text.",
    },
)
def show(context: Context, rollout: str = "", html: str = "", json: bool = False) -> None:
    """Show one rollout: clusters, steps, causes, next command.

    Works while it runs in another terminal.
    """
    from rayfleet.rollout.listing import show_rollout

    session = open_session(context)
    show_rollout(session.project, session.console, rollout, html=html, as_json=json)


@task(
    positional=["rollout"],
    help={"rollout": ROLLOUT, "json": JSON},
)
def resume(context: Context, rollout: str = "", json: bool = False) -> None:
    """Go on with a rollout that paused or whose run died.

    Every cluster goes on at the step where it was. Needs no --yes: the plan was confirmed.
    """
    _steering(context, json).resume(rollout)


@task(
    positional=["rollout"],
    help={"rollout": ROLLOUT},
)
def pause(context: Context, rollout: str = "") -> None:
    """Finish the clusters in hand, begin no other."""
    _steering(context, False).pause(rollout)


@task(
    positional=["rollout"],
    help={
        "rollout": ROLLOUT,
        "full": "No bakes from now on; gates and backups stay.",
        "json": JSON,
    },
)
def promote(context: Context, rollout: str = "", full: bool = False, json: bool = False) -> None:
    """End a bake, or take what is inconclusive as passed.

    One wave only, unless --full is given.
    """
    _steering(context, json).promote(rollout, full=full)


@task(
    positional=["rollout"],
    help={"rollout": ROLLOUT, "json": JSON},
)
def abort(context: Context, rollout: str = "", json: bool = False) -> None:
    """End a rollout once what is in hand is finished.

    What was done stays done, and clusters that were not begun stay as they are:
    rollouts.rollback takes it back, rollouts.retry goes on after all.
    """
    _steering(context, json).abort(rollout)


@task(
    positional=["rollout"],
    iterable=["cluster"],
    help={"rollout": ROLLOUT, "cluster": CLUSTER, "json": JSON},
)
def retry(context: Context, cluster: list[str], rollout: str = "", json: bool = False) -> None:
    """Try failed clusters again, from the step that failed.

    A rollout that has failed or was aborted goes on. Without --cluster: all that failed.
    """
    _steering(context, json).retry(rollout, cluster)


@task(
    positional=["rollout"],
    iterable=["cluster"],
    help={
        "rollout": ROLLOUT,
        "cluster": "The cluster, by name or glob; repeatable.",
        "yes": YES,
        "json": JSON,
    },
)
def skip(
    context: Context,
    cluster: list[str],
    rollout: str = "",
    yes: bool = False,
    json: bool = False,
) -> None:
    """Leave clusters out; a failed one counts no more.

    One that was changed stays as it is, maybe down: that is asked about, and the rollout then
    ends with exit code 7 if jobs are only in the vault.
    """
    _steering(context, json).skip(rollout, cluster, yes=yes)


@task(
    positional=["rollout"],
    iterable=["cluster"],
    help={"rollout": ROLLOUT, "cluster": CLUSTER, "yes": YES, "json": JSON},
)
def rollback(
    context: Context,
    cluster: list[str],
    rollout: str = "",
    yes: bool = False,
    json: bool = False,
) -> None:
    """Take clusters back to what they ran before.

    Their jobs go along. Without --cluster: all that were changed.
    """
    _steering(context, json).rollback(rollout, cluster, yes=yes)


@task(
    positional=["rollout"],
    iterable=["cluster"],
    help={
        "rollout": "Its id or how that begins.",
        "cluster": "A cluster, by name or glob; repeatable. Without a rollout: whoever has it.",
        "yes": YES,
    },
)
def unlock(context: Context, cluster: list[str], rollout: str = "", yes: bool = False) -> None:
    """End what a dead rollout has on clusters.

    Never needed to go on with it: rollouts.resume, retry and rollback take it up again.
    """
    _steering(context, False).unlock(rollout, cluster, yes=yes)


def _steering(context: Context, as_json: bool) -> Steering:
    from rayfleet.rollout.steer import Steering

    session = open_session(context)
    return Steering(
        project=session.project, console=session.console, fleet=session.fleet, as_json=as_json
    )

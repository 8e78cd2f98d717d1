"""Workers that Ray cannot make: `invoke workers.list` and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from rayfleet.tasks.edge import chosen, open_session
from rayfleet.tasks.words import task

if TYPE_CHECKING:
    from rayfleet.tasks.edge import Session
    from rayfleet.worker.care import Care

CLUSTER = "the cluster's name"


@task(
    positional=["kind"],
    iterable=["cluster"],
    help={
        "kind": "the slice, such as v6e-8",
        "cluster": CLUSTER,
        "capacity": "reserved, spot or on-demand",
        "name": "its name (default: a new one); one that failed or was taken back is replaced",
        "wait": "how long to wait for it, such as 30m; 0s does not wait",
        "json": "print JSON",
    },
)
def add(
    context: Context,
    kind: str,
    cluster: list[str],
    capacity: str = "",
    name: str = "",
    wait: str = "1h",
    json: bool = False,
) -> None:
    """Add a slice of TPUs to a cluster, from Google's queue.

    Ray's own workers are spot or on demand; a reservation is used only so. The slice joins the
    cluster by itself, and again after each restart, and outlives a stop of the cluster: remove it
    with workers.remove. Exit codes: 0 it is there, 1 Google gives none, 4 it still waits.
    """
    from rayfleet.arguments import parse_duration
    from rayfleet.job.request import operator
    from rayfleet.worker.show import capacity_named, show

    session, care = _care(context, cluster)
    with session.console.phase(f"add {kind}"):
        seconds = parse_duration(wait, "--wait")
        worker = care.add(kind, capacity_named(capacity), name=name, owner=operator(), wait=seconds)
    show([(care, (worker,))], session.console, as_json=json)


@task(
    name="list",
    iterable=["cluster"],
    help={"cluster": "a cluster's name or a glob (default: all)", "json": "print JSON"},
)
def list_workers(context: Context, cluster: list[str], json: bool = False) -> None:
    """List added workers, with what their machines say last.

    States are those of Google's queue. A worker is whole when all of its machines have joined
    with the image of the generated config.
    """
    from rayfleet.worker.show import show_all

    session = open_session(context)
    fleet = session.fleet()
    show_all(fleet, chosen(fleet, cluster, every=not cluster), session.console, as_json=json)


@task(
    positional=[],
    iterable=["cluster", "name"],
    help={
        "cluster": CLUSTER,
        "name": "only this worker; repeat it for more",
        "again": "also those that are as they should be: their containers are made anew",
    },
)
def init(context: Context, cluster: list[str], name: list[str], again: bool = False) -> None:
    """Set added workers up anew, with the current image.

    Their machines see the new start-up script within seconds, and join with it. A restart of
    the cluster does the same.
    """
    session, care = _care(context, cluster)
    told = care.roll(name, again=again)
    session.console.say(f"{len(told)} workers were told; invoke workers.list shows how they join")


@task(
    positional=["name"],
    iterable=["cluster"],
    help={
        "name": "the worker",
        "cluster": CLUSTER,
        "yes": "do not ask",
    },
)
def remove(context: Context, name: str, cluster: list[str], yes: bool = False) -> None:
    """Delete an added worker, or a request for one.

    What runs there dies.
    """
    session, care = _care(context, cluster)
    command = f"invoke workers.remove {name} --cluster {care.cluster} --yes"
    session.console.confirm(f"delete {name} of {care.cluster}?", yes=yes, refused_next=command)
    with session.console.phase(f"remove {name}"):
        care.remove([name])


def _care(context: Context, names: list[str]) -> tuple[Session, Care]:
    from rayfleet.fleet.select import select_one
    from rayfleet.rollout.held import refuse_held
    from rayfleet.worker.care import Care

    session = open_session(context)
    fleet = session.fleet()
    cluster = select_one(fleet, names)
    refuse_held(session.project, [cluster])
    return session, Care.of(fleet, cluster, session.console.event)

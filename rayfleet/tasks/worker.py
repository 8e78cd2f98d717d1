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
DRY_RUN = "say what would be done, change nothing"


@task(
    positional=["kind"],
    iterable=["cluster"],
    help={
        "kind": "the slice, such as v6e-8",
        "cluster": CLUSTER,
        "capacity": "reserved, spot or on-demand",
        "name": "its name (default: a new one); one that failed or was taken back is replaced",
        "wait": "how long to wait for it, such as 30m; 0s does not wait",
        "dry-run": DRY_RUN,
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
    dry_run: bool = False,
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
    seconds = parse_duration(wait, "--wait")
    addition = care.plan(kind, capacity_named(capacity), name=name)
    if dry_run:
        session.console.data(f"{addition.line}, with {care.image}")
        return
    with session.console.phase(f"add {kind}"):
        worker = care.add(addition, owner=operator(), wait=seconds)
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
        "dry-run": DRY_RUN,
    },
)
def init(
    context: Context,
    cluster: list[str],
    name: list[str],
    again: bool = False,
    dry_run: bool = False,
) -> None:
    """Set added workers up anew, with the current image.

    Their machines see the new start-up script within seconds, and join with it. A restart of
    the cluster does the same.
    """
    session, care = _care(context, cluster)
    if dry_run:
        for worker in care.outdated(name, again=again):
            session.console.data(f"would set up {care.short(worker)} anew, with {care.image}")
        session.console.say("nothing was changed")
        return
    told = care.roll(name, again=again)
    session.console.say(f"{len(told)} workers were told; invoke workers.list shows how they join")


@task(
    positional=["name"],
    iterable=["cluster"],
    help={
        "name": "the worker",
        "cluster": CLUSTER,
        "dry-run": DRY_RUN,
        "yes": "do not ask",
    },
)
def remove(
    context: Context, name: str, cluster: list[str], dry_run: bool = False, yes: bool = False
) -> None:
    """Delete an added worker, or a request for one.

    What runs there dies.
    """
    session, care = _care(context, cluster)
    if dry_run:
        (worker,) = care.named([name])
        what = f"{worker.accelerator_type}, {worker.capacity}"
        session.console.data(f"would delete {worker.name} ({what}), which is {worker.state}")
        return
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

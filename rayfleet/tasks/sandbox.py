"""``invoke sandbox.*``: the small cloud on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from rayfleet.tasks.edge import Session, one_cluster, open_session
from rayfleet.tasks.words import task

if TYPE_CHECKING:
    from rayfleet.sandbox.services import Sandbox


@task
def up(context: Context) -> None:
    """Start the sandbox: engine, registries, network, API.

    Idempotent; run again after anything went wrong, it does what is missing.
    """
    session = open_session(context)
    sandbox = _sandbox(session)
    sandbox.up()
    session.console.say(f"sandbox {sandbox.place.id} is up; next: invoke release --yes")


@task
def down(context: Context) -> None:
    """Remove the sandbox and all its clusters.

    Containers, networks, volumes and processes go; the engine and the base image stay.
    """
    session = open_session(context)
    gone = _sandbox(session).down()
    session.console.say(f"sandbox is down; removed {len(gone)} containers, networks and volumes")


@task(help={"json": "print one JSON document"})
def status(context: Context, json: bool = False) -> None:
    """Show what of the sandbox runs."""
    from rayfleet.sandbox.report import show_status

    session = open_session(context)
    show_status(_sandbox(session), session.console, as_json=json)


@task(
    help={
        "cluster": "the cluster that loses a worker",
        "node": "the worker's name (default: the first; see sandbox.status)",
    },
)
def preempt(context: Context, cluster: str, node: str = "") -> None:
    """Kill a worker without notice, as a cloud does."""
    session = open_session(context)
    target = one_cluster(session.fleet(), cluster)
    victim = _sandbox(session).preempt(target.identity, node)
    session.console.say(
        f"{victim} is gone; watch it being replaced: invoke tail-logs --cluster {target.name}"
    )


def _sandbox(session: Session) -> Sandbox:
    from rayfleet.sandbox.services import Sandbox

    return Sandbox.of(session.fleet(look=False), session.project.state, session.console)

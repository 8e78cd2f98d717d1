"""Carry out a rollout that is on the disk until it pauses or ends, and tell everybody of it."""

from __future__ import annotations

import os
from datetime import datetime

from rayfleet.console import Console
from rayfleet.errors import RayfleetError, UsageError
from rayfleet.fleet.model import Fleet
from rayfleet.job.request import operator
from rayfleet.project import Project
from rayfleet.rollout.ending import raise_for
from rayfleet.rollout.engine import Engine
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.performer import Performer
from rayfleet.rollout.runner import wanted
from rayfleet.rollout.signals import Interrupted
from rayfleet.rollout.state import State
from rayfleet.rollout.steps.gone import in_fleet
from rayfleet.rollout.tell.audience import audience
from rayfleet.rollout.tell.report import HTML_NAME, write_reports


def drive(
    project: Project,
    fleet: Fleet,
    console: Console,
    rollout: Rollout,
    *,
    as_json: bool,
    performer: Performer | None = None,
) -> None:
    """Go on with ``rollout``, write its report at the end, and raise unless all went well.

    With ``as_json`` stdout has a line of JSON per event. Without a ``performer`` it is done to
    the clusters themselves. A second Ctrl-C ends the process.

    Raises:
        UsageError: it is of another fleet, or a cluster that it is to change is not in the fleet
            any more.
        Locked: another process carries it out, or all of its failures are that.
        RayfleetError: how it ended, with its exit code, the causes and the next command.
    """
    require_fleet(project, rollout)
    require_clusters(fleet, rollout, rollout.state())
    me = operator()
    work = performer or _clusters(project, fleet, rollout, me)
    try:
        with audience(
            rollout.plan,
            console,
            as_json=as_json,
            notify=fleet.rollout.notify,
            report=project.shown(rollout.folder / HTML_NAME),
            begun=_begun(rollout),
        ) as listeners:
            engine = Engine(rollout, work, listeners, operator=me)
            state = engine.run()
    except Interrupted as error:
        _report(project, console, rollout)
        console.say(error.text())
        # Threads are in the middle of things and have to end with us, as by a kill.
        os._exit(error.exit_code)
    _report(project, console, rollout)
    raise_for(rollout.plan, state, interrupted=engine.interrupted)


def _clusters(project: Project, fleet: Fleet, rollout: Rollout, operator: str) -> Performer:
    from rayfleet.rollout.steps.work import ClusterWork

    return ClusterWork(project, fleet, rollout.folder, operator=operator)


def require_fleet(project: Project, rollout: Rollout) -> None:
    """See that ``rollout`` is of this fleet file.

    Raises:
        UsageError: it is not.
    """
    plan = rollout.plan
    if plan.fleet != project.shown(project.fleet_file):
        raise UsageError(
            f"rollout {rollout.id} is of another fleet",
            why=f"it is of {plan.fleet}, and this is {project.shown(project.fleet_file)}",
            next_step=f"INVOKE_FLEET={plan.fleet} invoke rollouts.resume {rollout.id}",
        )


def require_clusters(fleet: Fleet, rollout: Rollout, state: State) -> None:
    """See that the fleet file still has every cluster that ``rollout`` is to change when it goes
    on from ``state``. One that is being aborted goes on without those that have left.

    Raises:
        UsageError: some have left it.
    """
    gone = [
        name
        for name, target in rollout.plan.targets.items()
        if wanted(state.clusters[name], aborted=state.aborted) and not in_fleet(fleet, target)
    ]
    if gone:
        flags = "".join(f" --cluster {name}" for name in gone)
        raise UsageError(
            f"rollout {rollout.id} has clusters that the fleet file has no more",
            why=", ".join(gone),
            next_step=f"put them back into {rollout.plan.fleet}; or leave them out: "
            f"invoke rollouts.skip {rollout.id}{flags}; or end it: "
            f"invoke rollouts.abort {rollout.id}",
        )


def _begun(rollout: Rollout) -> datetime | None:
    """When it was begun; None for one that begins now."""
    return next((record.at for record in rollout.records()), None)


def _report(project: Project, console: Console, rollout: Rollout) -> None:
    """Write text and page. Without them the rollout is what it is: the cause is told, no more."""
    try:
        page = write_reports(rollout.folder, rollout.plan, rollout.state(), rollout.records())
    except RayfleetError as error:
        console.say(f"no report: {error.what}: {error.why}")
    else:
        console.say(f"report: {project.shown(page)}")

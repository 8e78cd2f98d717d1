"""``invoke restart``: plan a rollout, show it, ask, and drive it to its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rayfleet.cluster.lifecycle import Lifecycle
from rayfleet.console import Console
from rayfleet.errors import RayfleetError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.job.request import operator
from rayfleet.project import Project
from rayfleet.rollout.drive import drive
from rayfleet.rollout.held import refuse_held
from rayfleet.rollout.journal.store import Rollouts, new_id
from rayfleet.rollout.model import Plan
from rayfleet.rollout.plan.estimate import Sample, samples
from rayfleet.rollout.plan.options import Options
from rayfleet.rollout.plan.planner import Draft, Heading, estimated, make_plan
from rayfleet.rollout.plan.show import plan_lines, question, show_plan
from rayfleet.rollout.state import Result, State
from rayfleet.rollout.tell.events import summary_document
from rayfleet.rollout.tell.words import count

LEARN_FROM = 30
"""How many earlier rollouts an estimate looks at, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What an operator asked for. ``command`` is the command line that asks for it again."""

    clusters: Sequence[Cluster]
    options: Options
    command: str
    dry_run: bool = False
    yes: bool = False
    as_json: bool = False


def run_restart(project: Project, fleet: Fleet, console: Console, wish: Restart) -> Plan:
    """Plan, show, ask, and carry it out to its end or pause; returns the plan, whose targets
    are none when there was nothing to do.

    A dry run changes nothing and makes no file. With ``as_json`` stdout has one JSON document
    for a dry run, else a line of JSON per event.

    Raises:
        UsageError: a flag makes no sense, or a cluster has no generated config.
        Declined: nobody said yes.
        Locked: another rollout holds one of the clusters.
        RayfleetError: how the rollout ended, with its exit code and the next command.
    """
    draft = plan_restart(project, fleet, console, wish)
    plan = draft.plan
    if wish.dry_run:
        show_plan(plan, console, as_json=wish.as_json)
        return plan
    for line in plan_lines(plan):
        console.say(line)
    if not plan.targets:
        if wish.as_json:
            console.data(json.dumps(_nothing(plan)))
        return plan
    console.confirm(question(plan), yes=wish.yes, refused_next=f"{wish.command} --yes")
    rollout = Rollouts(project.state).create(plan, draft.configs, draft.previous)
    drive(project, fleet, console, rollout, as_json=wish.as_json)
    return plan


def plan_restart(
    project: Project, fleet: Fleet, console: Console, wish: Restart, *, image: str = ""
) -> Draft:
    """The plan for ``wish``, estimates included; changes nothing.

    ``image`` as for :func:`make_plan`.

    Raises:
        UsageError: a flag makes no sense, or a cluster has no generated config.
        Locked: another rollout holds one of the clusters.
    """
    settings = wish.options.settings(fleet.rollout)
    waves = wish.options.wave_sizes(fleet.rollout)
    refuse_held(project, wish.clusters)
    now = datetime.now(UTC)
    heading = Heading(
        id=new_id(now),
        created=now,
        operator=operator(),
        command=wish.command,
        fleet=project.shown(project.fleet_file),
    )
    life = Lifecycle(project, fleet, console)
    with console.phase(f"look at {count(len(wish.clusters), 'cluster')}"):
        draft = make_plan(life, wish.clusters, settings, heading=heading, waves=waves, image=image)
    return estimated(draft, _known(Rollouts(project.state)))


def _nothing(plan: Plan) -> dict[str, object]:
    """The summary of no rollout: there is none with the id of such a plan."""
    state = State(clusters={}, result=Result.DONE)
    return summary_document(replace(plan, id=""), state, at=plan.created)


def _known(rollouts: Rollouts) -> list[Sample]:
    """What earlier rollouts took. A damaged one teaches nothing, and is no reason to stop."""
    found: list[Sample] = []
    for rollout in rollouts.all()[:LEARN_FROM]:
        with suppress(RayfleetError, ValueError):
            found += samples(rollout.plan, rollout.state())
    return found

"""``invoke rollouts.list | show``: which rollouts there are, and how one stands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from rayfleet.console import Console
from rayfleet.errors import RayfleetError
from rayfleet.files import write_atomically
from rayfleet.project import Project
from rayfleet.rollout.ending import raise_for
from rayfleet.rollout.journal.records import Record
from rayfleet.rollout.journal.store import Rollout, Rollouts, driver
from rayfleet.rollout.model import Direction, Plan
from rayfleet.rollout.plan.document import plan_data
from rayfleet.rollout.plan.show import what
from rayfleet.rollout.state import ClusterState, State
from rayfleet.rollout.tell.events import summary_document
from rayfleet.rollout.tell.facts import (
    MOVING,
    cluster_seconds,
    failures,
    in_order,
    last_way,
    standing,
    summary,
)
from rayfleet.rollout.tell.page import html_report
from rayfleet.rollout.tell.report import HTML_NAME
from rayfleet.rollout.tell.words import clock, one_line, safe, spell

MOST = 20
"""How many rollouts are listed unless all are asked for."""

CUT_OFF = "cut off"
DIED = "died"
RUNNING = "running"


def show_rollouts(project: Project, console: Console, *, every: bool, as_json: bool) -> None:
    """Print a line per rollout, the newest first. A damaged one does not hide the others.

    Raises:
        PrerequisiteMissing: the state folder cannot be read.
    """
    found = Rollouts(project.state).all()
    shown = found if every else found[:MOST]
    now = datetime.now(UTC)
    entries = [_entry(rollout, now) for rollout in shown]
    if as_json:
        console.json({"rollouts": entries})
        return
    if not entries:
        console.say("there is no rollout yet; next: invoke restart --all --dry-run")
        return
    keys = ("rollout", "age", "by", "what", "state", "clusters")
    console.table(keys, [[_cell(entry.get(key, "")) for key in keys] for entry in entries])
    if len(found) > len(shown):
        console.say(f"and {len(found) - len(shown)} older ones: invoke rollouts.list --all")


def show_rollout(
    project: Project, console: Console, rollout_id: str, *, html: str, as_json: bool
) -> None:
    """Print how one rollout stands: clusters, steps, causes, the next command.

    ``html`` names a file for the report; empty: none.

    Raises:
        UsageError: there is no such rollout, or it is damaged.
        PrerequisiteMissing: it cannot be read, or the file cannot be written.
    """
    rollout = Rollouts(project.state).open(rollout_id)
    # Looked at first: one that ends meanwhile must not look as if it had died.
    running = rollout.running()
    plan, records = rollout.plan, rollout.records()
    state, now = rollout.state(), datetime.now(UTC)
    if html:
        path = Path(html).expanduser()
        write_atomically(path, html_report(plan, state, records), mode=0o600)
        console.say(f"wrote {html}")
    if as_json:
        console.json(_document(project, rollout, state, running=running, now=now))
        return
    for line in _head(rollout, records, state, running=running, now=now):
        console.data(line)
    columns = ("cluster", "wave", "state", "step", "time", "detail")
    # Of one that nobody drives no step goes on, and no time passes.
    until = now if running or not records else records[-1].at
    console.table(columns, list(_rows(plan, state, until, running=running)))
    for line in _foot(plan, state, running=running):
        console.data(line)


def word(state: State, records: tuple[Record, ...], *, running: bool) -> str:
    """How a rollout stands, in one or two words."""
    if running:
        return RUNNING
    if state.result is not None:
        return state.result.value
    if state.paused:
        return "paused"
    return DIED if records else "never begun"


def next_command(plan: Plan, state: State, *, running: bool) -> str:
    """What an operator is to type now; empty when there is nothing to do."""
    if running:
        return f"invoke rollouts.pause {plan.id} (finishes what is in hand)"
    try:
        raise_for(plan, state)
    except RayfleetError as error:
        # Who reads this is looking at the details.
        show = f"invoke rollouts.show {plan.id}"
        following = error.next_step.partition(f"; details: {show}")[0]
        return "" if following == show else following
    return ""


def _entry(rollout: Rollout, now: datetime) -> dict[str, object]:
    try:
        running = rollout.running()
        plan, records, state = rollout.plan, rollout.records(), rollout.state()
    except RayfleetError as error:
        return {"rollout": rollout.id, "state": "damaged", "clusters": f"{error.what}: {error.why}"}
    return {
        "rollout": rollout.id,
        "created": plan.created.isoformat(timespec="seconds"),
        "age": spell((now - plan.created).total_seconds()),
        "by": plan.operator,
        "what": what(plan),
        "state": word(state, records, running=running),
        "reason": state.paused,
        "clusters": summary(state),
        "names": list(plan.targets),
    }


def _cell(value: object) -> str:
    return one_line(safe(value))


def _head(
    rollout: Rollout, records: tuple[Record, ...], state: State, *, running: bool, now: datetime
) -> Iterator[str]:
    plan = rollout.plan
    how = word(state, records, running=running)
    if state.paused and not running:
        how += f": {_cell(state.paused)}"
    age = spell((now - plan.created).total_seconds())
    yield f"rollout {plan.id}: {how}"
    yield f"  {what(plan)} of {_cell(plan.fleet)}, by {_cell(plan.operator)}, {age} ago"
    yield f"  {_cell(plan.command)}"
    if records:
        yield f"  {'driven' if running else 'last driven'} by {_cell(driver(records))}"
    if state.pause_wanted and running:
        yield "  a pause was asked for: what is in hand is finished"
    for number, until in sorted(state.baking.items()):
        left = until - now.timestamp()
        if number not in state.baked and left > 0:
            yield f"  {_cell(plan.waves[number].name)} bakes for another {spell(left)}"
    yield ""


def _rows(plan: Plan, state: State, now: datetime, *, running: bool) -> Iterator[tuple[str, ...]]:
    numbers = {name: n for n, wave in enumerate(plan.waves, 1) for name in wave.clusters}
    for target in in_order(plan):
        name = target.cluster
        cluster = state.clusters[name]
        took = cluster_seconds(cluster, now)
        cut_off = standing(cluster) in MOVING and not running
        yield (
            name,
            str(numbers[name]),
            CUT_OFF if cut_off else standing(cluster).value,
            _step(cluster),
            clock(took) if took is not None else "",
            _detail(cluster),
        )


def _step(cluster: ClusterState) -> str:
    """The step at hand, or the one that failed."""
    found = last_way(cluster)
    if found is None or found[1].step is None:
        return ""
    direction, way = found
    again = f" (try {way.tries})" if way.tries > 1 else ""
    return f"{'back: ' if direction is Direction.BACK else ''}{way.step}{again}"


def _detail(cluster: ClusterState) -> str:
    found = last_way(cluster)
    if found is None or standing(cluster) in MOVING:
        return ""
    return _cell(found[1].error.get("what", ""))


def _foot(plan: Plan, state: State, *, running: bool) -> Iterator[str]:
    for failure in failures(plan, state):
        cause = ": ".join(part for part in (failure.what, failure.why) if part)
        yield ""
        yield f"{failure.cluster}: {failure.standing}: {one_line(cause)}"
        yield f"  next: {one_line(failure.next)}"
    for one in plan.skipped:
        yield f"left alone: {one.cluster}, {_cell(one.why)}"
    if following := next_command(plan, state, running=running):
        yield ""
        yield f"next: {following}"


def _document(
    project: Project, rollout: Rollout, state: State, *, running: bool, now: datetime
) -> dict[str, object]:
    plan, records = rollout.plan, rollout.records()
    page = rollout.folder / HTML_NAME
    report = project.shown(page) if page.exists() else ""
    return summary_document(plan, state, at=now, report=report) | {
        "kind": "rollout",
        "state": word(state, records, running=running),
        "running": running,
        "steps": {name: _step(cluster) for name, cluster in state.clusters.items()},
        "next": next_command(plan, state, running=running),
        "plan": plan_data(plan),
    }

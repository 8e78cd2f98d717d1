"""Rollouts to rehearse: plans of fake clusters, and how they went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rayfleet.rollout.engine import Engine
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.journal.store import Rollout, Rollouts, new_id
from rayfleet.rollout.model import Change, Direction, Plan, PlannedJob, Settings, Step, Target, Wave
from rayfleet.rollout.rehearsal import Failure, Rehearsal
from rayfleet.rollout.state import State

OLD, NEW = "sha256:" + "0" * 64, "sha256:" + "1" * 64
OPERATOR = "olga@desk"


def make_plan(
    *waves: Sequence[str],
    jobs: int = 2,
    canary: bool = False,
    start: Sequence[str] = (),
    **settings: Any,
) -> Plan:
    """A plan of clusters in ``waves``, two regions, every cluster with ``jobs`` running jobs.

    ``canary`` marks the first wave; those of ``start`` do not run yet.
    """
    names = [name for wave in waves for name in wave]
    return Plan(
        id=new_id(datetime.now(UTC)),
        fleet="infra/fleet.yaml",
        created=datetime.now(UTC),
        operator=OPERATOR,
        command="invoke restart --all",
        tool="0",
        settings=Settings(**({"parallel": 2, "per_region": 0} | settings)),
        waves=tuple(
            Wave(name=f"wave {number}", clusters=tuple(wave), canary=canary and number == 1)
            for number, wave in enumerate(waves, 1)
        ),
        targets={
            name: make_target(name, number, jobs=jobs, start=name in start)
            for number, name in enumerate(names)
        },
    )


def make_target(name: str, number: int, *, jobs: int, start: bool) -> Target:
    """One cluster of a plan."""
    planned = tuple(
        PlannedJob(id=f"{name}-job{i}", owner="olga", status="RUNNING", entrypoint="python x.py")
        for i in range(0 if start else jobs)
    )
    return Target(
        cluster=name,
        identity=f"ray-{name}",
        project="fleet-project",
        region=f"region-{number % 2}",
        zone=f"region-{number % 2}-a",
        change=Change.START if start else Change.RESTART,
        why="its image has changed",
        head="" if start else "head-0",
        digest_now="" if start else OLD,
        digest_wanted=NEW,
        previous=not start,
        jobs=planned,
    )


class Listener:
    """An audience that remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[Record] = []
        self.details: list[tuple[str, str]] = []

    def hear(self, record: Record, state: State) -> None:
        self.heard.append(record)

    def detail(self, cluster: str, text: str) -> None:
        self.details.append((cluster, text))


def create(state: Path, plan: Plan) -> Rollout:
    """``plan`` on the disk, and its fake clusters."""
    configs = {name: f"cluster_name: {name}\n".encode() for name in plan.targets}
    rollout = Rollouts(state).create(plan, configs, configs)
    Rehearsal(state).prepare(plan)
    return rollout


def run(rollout: Rollout, *, failures: Sequence[Failure] = (), **more: Any) -> State:
    """Carry ``rollout`` out in this process, with its fakes."""
    performer = more.pop("performer", None) or Rehearsal(place_of(rollout), failures=failures)
    audience = more.pop("audience", None) or Listener()
    more = {"operator": OPERATOR, "poll": 0.02} | more
    return Engine(rollout, performer, audience, **more).run()


def place_of(rollout: Rollout) -> Path:
    """The state folder that ``rollout`` is in."""
    return rollout.folder.parent.parent


def faults(rollout: Rollout) -> list[str]:
    """What is wrong with how an unspoiled rollout has gone, whatever kills there were."""
    plan, fakes = rollout.plan, Rehearsal(place_of(rollout))
    found = []
    for name, target in plan.targets.items():
        truth = fakes.look(name)
        if (truth.starts, truth.up, truth.digest) != (1, True, target.digest_wanted):
            found.append(f"{name}: started {truth.starts} times, runs {truth.digest[-4:]}")
        if truth.stops != (target.change is Change.RESTART):
            found.append(f"{name}: stopped {truth.stops} times")
        ids = [job.id for job in target.jobs]
        if sorted(truth.running) != sorted(ids) or any(truth.runs[job] != 2 for job in ids):
            found.append(f"{name}: runs {truth.running}, started {truth.runs}")
    return found + done_again(rollout.records()) + leases(rollout)


def done_again(records: Sequence[Record]) -> list[str]:
    """Steps that were begun although they were done."""
    done: set[tuple[str, Direction, Step | None]] = set()
    found = []
    for record in records:
        key = (record.cluster, record.direction, record.step)
        if record.kind is Kind.INTENT and key in done:
            found.append(f"{record.cluster}: {record.step} was done again")
        if record.kind is Kind.DONE:
            done.add(key)
    return found


def leases(rollout: Rollout) -> list[str]:
    """Leases that are left."""
    return [f"lease {each.stem}" for each in (place_of(rollout) / "leases").glob("*.json")]


def kinds(rollout: Rollout) -> Counter[Kind]:
    """How many records of each kind there are."""
    return Counter(record.kind for record in rollout.records())

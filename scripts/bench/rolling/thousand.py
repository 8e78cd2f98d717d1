"""A fleet of a thousand clusters that are not there: planned, and driven on the shipped fakes.

What drives it is a process of its own, which is killed in the middle; another one goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.health import Observed
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Fleet
from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.journal.store import Rollout, Rollouts, new_id
from rayfleet.rollout.model import Change, PlannedJob, Settings
from rayfleet.rollout.plan.document import encode_plan
from rayfleet.rollout.plan.estimate import Sample
from rayfleet.rollout.plan.look import Sighting
from rayfleet.rollout.plan.planner import Draft, Heading, draft, estimated
from rayfleet.rollout.rehearsal import Rehearsal
from rayfleet.rollout.state import Result
from rayfleet.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
DRIVER = Path(__file__).with_name("driver.py")
CLUSTERS = 1_000
JOBS = 3
EARLIER_ROLLOUTS = 5
SETTINGS = Settings(parallel=50, per_region=0, only_outdated=True)
OLD, NEW = (f"sha256:{hashlib.sha256(word).hexdigest()}" for word in (b"old", b"new"))
DRIVE_SECONDS = 600.0
IMAGE = re.compile(r"[\w.-]+-docker\.pkg\.dev/[\w./-]+:[\w.-]+(?:@sha256:[0-9a-f]{64})?")


def simulate(folder: Path, say: Callable[[str], None]) -> Mapping[str, float]:
    """Plan and drive it; returns the figures, times in seconds.

    Raises:
        SystemExit: a cluster was not restarted once, or a job was not given back once.
    """
    fleet = _fleet(folder)
    sightings, known = _sightings(fleet), _known(fleet)
    began = time.perf_counter()
    planned = _planned(fleet, sightings, known)
    document = encode_plan(planned.plan)
    plan_seconds = time.perf_counter() - began
    say(
        f"{len(planned.plan.targets)} clusters in {len(planned.plan.waves)} waves planned in"
        f" {plan_seconds:.2f} s; {len(document) / 1e6:.1f} MB"
    )
    began = time.perf_counter()
    rollout = Rollouts(folder / "state").create(planned.plan, planned.configs, planned.previous)
    freeze_seconds = time.perf_counter() - began
    Rehearsal(folder / "world").prepare(planned.plan)
    load = os.getloadavg()[0]
    began = time.perf_counter()
    first = _driver(folder)
    try:
        wait_until(
            lambda: _ended(rollout) >= CLUSTERS // 2 or first.poll() is not None,
            what="the middle of the rollout",
            timeout=DRIVE_SECONDS,
            interval=0.2,
        )
        first.send_signal(signal.SIGKILL)
    finally:
        first.kill()
        first.wait()
    killed_after = _ended(rollout)
    second = _driver(folder)
    code = second.wait(timeout=DRIVE_SECONDS)
    drive_seconds = time.perf_counter() - began
    say(
        f"driven in {drive_seconds:.1f} s by two processes, the first one killed after"
        f" {killed_after} clusters"
    )
    _check(rollout, Rehearsal(folder / "world"), code)
    began = time.perf_counter()
    state = rollout.state()
    fold_seconds = time.perf_counter() - began
    assert state.result is Result.DONE
    return {
        "thousand_planned_seconds": round(plan_seconds, 3),
        "thousand_frozen_seconds": round(freeze_seconds, 3),
        "thousand_driven_seconds": round(drive_seconds, 2),
        "thousand_read_seconds": round(fold_seconds, 3),
        "thousand_records": float(len(rollout.records())),
        "thousand_killed_after": float(killed_after),
        "thousand_load": round(load, 2),
    }


def _planned(fleet: Fleet, sightings: tuple[Sighting, ...], known: tuple[Sample, ...]) -> Draft:
    """All that `invoke restart` does with what it has seen."""
    now = datetime.now(UTC)
    heading = Heading(
        id=new_id(now),
        created=now,
        operator="bench@here",
        command="invoke restart --all --only-outdated",
        fleet="infra/fleet.yaml",
    )
    found = draft(sightings, fleet, SETTINGS, heading=heading, waves=(1, "25%", "100%"))
    return estimated(found, known)


def _fleet(folder: Path) -> Fleet:
    """The shipped fleet, its clusters repeated under other names."""
    shipped = load_fleet(ROOT / "infra" / "fleet.yaml", root=ROOT, state=folder, look=False)
    models = islice(cycle(shipped.clusters.values()), CLUSTERS)
    clusters = {}
    for number, model in enumerate(models):
        name = f"{model.name}-{number:04}"
        clusters[name] = replace(model, name=name, identity=f"marin-{name}")
    return replace(shipped, clusters=clusters, rollout=replace(shipped.rollout, order=()))


def _sightings(fleet: Fleet) -> tuple[Sighting, ...]:
    """Every cluster healthy, on the old image, with jobs; its config names the new one."""
    shipped = sorted((ROOT / "infra" / "clusters").glob("*.yaml"))[0].read_text()
    found = []
    for name, cluster in fleet.clusters.items():
        image = f"{cluster.region}-docker.pkg.dev/{fleet.project}/marin/marin_cluster:latest"
        old, new = (
            IMAGE.sub(f"{image}@{digest}", f"# {name}\n{shipped}").encode() for digest in (OLD, NEW)
        )
        config = LaunchConfig(
            path=Path(f"{name}.yaml"),
            identity=cluster.identity,
            provider={"type": "gcp", "project_id": fleet.project},
            image=f"{image}@{NEW}",
            min_workers={"worker": 8},
            hash=hashlib.sha256(new).hexdigest(),
        )
        observed = Observed(
            cluster=name,
            head=f"ray-{name}-head",
            ray_version="2.60.0",
            image_digest=OLD,
            wanted_digest=NEW,
            workers={"worker": 8},
            wanted_workers={"worker": 8},
            config_hash=hashlib.sha256(old).hexdigest(),
            wanted_hash=config.hash,
        )
        jobs = tuple(
            PlannedJob(
                id=f"{name}-job-{number}",
                owner=f"user{number}",
                status="RUNNING",
                entrypoint="python -m marin.run --config experiments/default.yaml",
            )
            for number in range(JOBS)
        )
        found.append(
            Sighting(
                cluster=cluster,
                config=config,
                raw=new,
                observed=observed,
                jobs=jobs,
                previous=old,
            )
        )
    return tuple(found)


def _known(fleet: Fleet) -> tuple[Sample, ...]:
    """What earlier rollouts took."""
    return tuple(
        Sample(identity=cluster.identity, change=Change.RESTART, seconds=300.0 + turn)
        for turn in range(EARLIER_ROLLOUTS)
        for cluster in fleet.clusters.values()
    )


def _driver(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(DRIVER), str(folder)], cwd=ROOT)


def _ended(rollout: Rollout) -> int:
    """How many clusters have ended, told by the text of the journal."""
    path = rollout.folder / "journal.jsonl"
    word = f'"kind":{json.dumps(Kind.CLUSTER.value)},'
    return path.read_text().count(word)


def _check(rollout: Rollout, world: Rehearsal, code: int) -> None:
    """Every cluster was restarted once, and every job was started once more.

    Raises:
        SystemExit: not so.
    """
    wrong = [f"the second process ended with {code}"] if code else []
    for name, target in rollout.plan.targets.items():
        truth = world.look(name)
        ids = [job.id for job in target.jobs]
        if (truth.starts, truth.stops, truth.digest) != (1, 1, NEW):
            wrong.append(f"{name}: {truth.stops} stops, {truth.starts} starts, {truth.digest}")
        if sorted(truth.running) != sorted(ids) or truth.runs != dict.fromkeys(ids, 2):
            wrong.append(f"{name}: {truth.running} run, started {truth.runs}")
    if wrong:
        sys.exit("the simulated rollout went wrong:\n" + "\n".join(wrong[:20]))

"""What clusters that are so are planned to become, in which order."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.health import Observed
from rayfleet.errors import UsageError
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Cluster, Fleet, RolloutPolicy
from rayfleet.rollout.model import Change, OnFailure, PlannedJob, Settings, Unhealthy
from rayfleet.rollout.plan.estimate import Sample
from rayfleet.rollout.plan.look import Sighting
from rayfleet.rollout.plan.options import Options, command_line
from rayfleet.rollout.plan.planner import Draft, Heading, draft, estimated

ROOT = Path(__file__).resolve().parents[3]
OLD, NEW = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
BEFORE = b"cluster_name: x\nmax_workers: 3\nimage: 127.0.0.1/marin@" + OLD.encode()
WANTED = b"cluster_name: x\nmax_workers: 4\nimage: 127.0.0.1/marin@" + NEW.encode()
HEADING = Heading(
    id="20261121T163000Z-4f2a",
    created=datetime(2026, 11, 21, 16, 30, tzinfo=UTC),
    operator="kay@laptop",
    command="invoke restart --all",
    fleet="infra/sandbox.yaml",
)


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _fleet() -> Fleet:
    return load_fleet(ROOT / "infra" / "sandbox.yaml", root=ROOT, state=Path("/nowhere"))


FLEET = _fleet()


def _seen(cluster: Cluster, *, observed: Mapping[str, Any] | None = None, **more: Any) -> Sighting:
    """A cluster that runs the old image and config, and is well."""
    config = LaunchConfig(
        path=Path("/nowhere"),
        identity=cluster.identity,
        provider={},
        image=f"127.0.0.1/marin@{NEW}",
        min_workers={"worker": 1},
        hash=_hash(WANTED),
    )
    now = Observed(
        cluster=cluster.name,
        head=f"{cluster.name}-head",
        ray_version="2.60.0",
        image_digest=OLD,
        wanted_digest=NEW,
        workers={"worker": 1},
        wanted_workers={"worker": 1},
        config_hash=_hash(BEFORE),
        wanted_hash=_hash(WANTED),
    )
    fields = {"previous": BEFORE} | more
    return Sighting(
        cluster=cluster,
        config=config,
        raw=WANTED,
        observed=replace(now, **(observed or {})),
        **fields,
    )


def _all(**more: Any) -> list[Sighting]:
    return [_seen(cluster, **more) for cluster in FLEET.clusters.values()]


CURRENT = {"image_digest": NEW, "config_hash": _hash(WANTED)}


def _draft(sightings: list[Sighting], **settings: Any) -> Draft:
    return draft(sightings, FLEET, Settings(**settings), heading=HEADING)


def test_a_plan_has_all_that_an_operator_asks_before_saying_yes() -> None:
    job = PlannedJob(id="s1", owner="kay", status="RUNNING", entrypoint="python a.py")
    plan = _draft(_all(jobs=(job,), unpreservable=("driver 1",))).plan
    target = plan.targets["us-east5"]
    assert (plan.id, plan.operator, plan.command) == (
        HEADING.id,
        "kay@laptop",
        "invoke restart --all",
    )
    assert (target.project, target.zone, target.region) == (
        "rayfleet-sandbox",
        "us-east5-b",
        "us-east5",
    )
    assert (target.head, target.workers, target.jobs) == ("us-east5-head", {"worker": 1}, (job,))
    assert (target.digest_now, target.digest_wanted) == (OLD, NEW)
    assert (target.config_now, target.config_wanted) == (_hash(BEFORE), _hash(WANTED))
    assert target.changes[0] == f"image: {OLD[:19]} -> {NEW[:19]}"
    assert any("max_workers: 3 -> 4" in line for line in target.changes)
    assert target.unpreservable == ("driver 1",)
    assert target.previous


def test_the_configs_of_both_ways_are_frozen_byte_for_byte() -> None:
    sightings = _all()
    sightings[0] = replace(sightings[0], previous=None)
    made = _draft(sightings)
    assert set(made.configs) == set(FLEET.clusters)
    assert set(made.configs.values()) == {WANTED}
    unknown = sightings[0].cluster.name
    assert made.previous == {name: BEFORE for name in FLEET.clusters if name != unknown}
    assert not made.plan.targets[unknown].previous


def test_a_new_image_meets_one_cluster_first() -> None:
    plan = _draft(_all()).plan
    assert plan.waves[0].clusters == (FLEET.rollout.order[0],)
    assert plan.waves[0].canary


def test_an_image_that_a_cluster_runs_well_needs_no_canary() -> None:
    sightings = _all()
    sightings[1] = _seen(sightings[1].cluster, observed=CURRENT)
    assert not any(wave.canary for wave in _draft(sightings).plan.waves)
    # One whose head does not answer proves nothing.
    broken = {**CURRENT, "ray_version": "", "problem": "refused"}
    sightings[1] = _seen(sightings[1].cluster, observed=broken)
    assert any(wave.canary for wave in _draft(sightings).plan.waves)


def test_only_outdated_leaves_out_what_is_current_and_says_why() -> None:
    sightings = _all()
    sightings[0] = _seen(sightings[0].cluster, observed=CURRENT)
    # Preempted workers come back by themselves; a restart would end the jobs on the others.
    sightings[1] = _seen(sightings[1].cluster, observed={**CURRENT, "workers": {}})
    made = _draft(sightings, only_outdated=True)
    left = {one.cluster: one.why for one in made.plan.skipped}
    assert left == {
        sightings[0].cluster.name: "it runs the wanted image and config",
        sightings[1].cluster.name: "it runs the wanted image and config (0 of 1 worker joined)",
    }
    names = {seen.cluster.name for seen in sightings[2:]}
    assert set(made.plan.targets) == set(made.configs) == names
    assert {name for wave in made.plan.waves for name in wave.clusters} == names


@pytest.mark.parametrize(
    ("observed", "why"),
    [
        ({"image_digest": NEW}, "its config differs"),
        ({"config_hash": _hash(WANTED)}, "its image differs"),
        ({}, "its image and config differ"),
        ({**CURRENT, "config_hash": ""}, "its config differs"),
        ({**CURRENT, "ray_version": ""}, "nobody knows what it runs"),
        ({**CURRENT, "head": "", "problem": "no answer"}, "nobody knows what it runs"),
    ],
)
def test_what_differs_or_cannot_be_asked_is_outdated(observed: dict[str, str], why: str) -> None:
    cluster = FLEET.clusters["us-east5"]
    plan = _draft([_seen(cluster, observed=observed)], only_outdated=True).plan
    assert plan.targets["us-east5"].why == why


def test_without_the_flag_a_current_cluster_is_restarted_because_it_was_asked_for() -> None:
    plan = _draft(_all(observed=CURRENT)).plan
    assert {target.why for target in plan.targets.values()} == {"asked for"}
    lines = {target.changes for target in plan.targets.values()}
    assert lines == {("nothing: the same image and config",)}


def test_what_does_not_exist_is_started() -> None:
    gone = {"head": "", "ray_version": "", "image_digest": "", "config_hash": "", "workers": {}}
    cluster = FLEET.clusters["us-east5"]
    sighting = _seen(cluster, observed=gone, exists=False, previous=None)
    for only_outdated in (False, True):
        target = _draft([sighting], only_outdated=only_outdated).plan.targets["us-east5"]
        assert (target.change, target.why) == (Change.START, "it is not running")
        assert (target.trouble, target.changes) == ("", (f"image: {NEW[:19]}",))


@pytest.mark.parametrize(
    ("observed", "trouble"),
    [
        ({"ray_version": "", "problem": "timed out"}, "the head does not answer: timed out"),
        ({"head": "", "ray_version": "", "problem": "no cloud"}, "no cloud"),
        ({"head": "", "ray_version": ""}, "it has nodes and no head"),
        ({"workers": {}}, ""),
        ({}, ""),
    ],
)
def test_a_head_that_is_not_healthy_is_trouble_and_missing_workers_are_none(
    observed: dict[str, Any], trouble: str
) -> None:
    cluster = FLEET.clusters["us-east5"]
    target = _draft([_seen(cluster, observed=observed)]).plan.targets["us-east5"]
    assert (target.change, target.trouble) == (Change.RESTART, trouble)


def test_jobs_that_cannot_be_listed_are_not_no_jobs() -> None:
    plan = _draft([_seen(FLEET.clusters["us-east5"], jobs_problem="the GCS is silent")]).plan
    assert plan.targets["us-east5"].jobs_problem == "the GCS is silent"


@pytest.mark.parametrize(
    ("previous", "line"),
    [
        (None, "config: differs, and the one that it runs with is not kept"),
        (WANTED.replace(NEW.encode(), OLD.encode()), "config: nothing but the image, comments"),
    ],
)
def test_what_changes_in_the_config_is_said_as_far_as_it_is_known(
    previous: bytes | None, line: str
) -> None:
    cluster = FLEET.clusters["us-east5"]
    changes = _draft([_seen(cluster, previous=previous)]).plan.targets["us-east5"].changes
    assert any(each.startswith(line) for each in changes)


@pytest.mark.parametrize(
    ("workers_before", "workers", "words"),
    [
        (f"latest@{OLD}", f"latest@{NEW}", ["nothing but the image"]),
        (f"v1@{OLD}", f"latest@{NEW}", ["nothing but the image"]),
        # Another image of the same repository is a change of its own.
        (f"debug@{OLD}", f"debug@{NEW}", ["worker.image"]),
        (f"latest@{OLD}", f"latest@{NEW}\n  max_workers: 9", ["max_workers"]),
    ],
)
def test_only_a_config_that_differs_in_more_than_its_image_says_in_what(
    workers_before: str, workers: str, words: list[str]
) -> None:
    repository = "127.0.0.1:5000/p/marin"
    text = "head: {{image: {0}:latest@{1}}}\nworker:\n  image: {0}:{2}\n"
    before = text.format(repository, OLD, workers_before).encode()
    after = text.format(repository, NEW, workers).encode()
    seen = _seen(FLEET.clusters["us-east5"], previous=before)
    config = replace(seen.config, image=f"{repository}:latest@{NEW}", hash=_hash(after))
    changes = _draft([replace(seen, config=config, raw=after)]).plan.targets["us-east5"].changes
    told = "\n".join(line for line in changes if line.startswith("config:"))
    assert all(word in told for word in words), told


def test_of_a_silent_head_what_was_kept_of_its_start_is_told() -> None:
    cluster = FLEET.clusters["us-east5"]
    silent = {"ray_version": "", "config_hash": "", "problem": "refused"}
    target = _draft([_seen(cluster, observed=silent)]).plan.targets["us-east5"]
    assert target.config_now == _hash(BEFORE)
    unknown = _draft([_seen(cluster, observed=silent, previous=None)]).plan.targets["us-east5"]
    assert unknown.config_now == ""
    assert "config: not known what it runs with, its head does not answer" in unknown.changes


def test_the_time_is_estimated_from_earlier_rollouts() -> None:
    made = _draft(_all(), bake=10.0)
    assert made.plan.estimate is None
    known = [Sample(identity="us-east5", change=Change.RESTART, seconds=60.0)]
    plan = estimated(made, known).plan
    assert {target.estimate for target in plan.targets.values()} == {60.0}
    # Each alone by the limits, and a bake after each wave.
    assert plan.estimate == len(plan.waves) * 70.0


def test_a_thousand_clusters_are_planned_within_a_second() -> None:
    one = FLEET.clusters["us-east5"]
    clusters = [replace(one, name=f"c{n}", identity=f"c{n}") for n in range(1000)]
    sightings = [_seen(cluster) for cluster in clusters]
    known = [Sample(identity=f"c{n}", change=Change.RESTART, seconds=60.0) for n in range(1000)]
    begun = time.process_time()
    made = estimated(_draft(sightings, parallel=10, per_region=0), known)
    assert time.process_time() - begun < 1.0
    assert len(made.plan.targets) == 1000


POLICY = RolloutPolicy(
    waves=(1, "100%"),
    parallel=3,
    per_region=2,
    max_failures=4,
    max_untouched=5,
    on_failure=OnFailure.ROLLBACK_ALL,
    unhealthy=Unhealthy.SKIP,
    bake=30.0,
)


def test_what_no_flag_says_the_fleet_file_does() -> None:
    settings = Options().settings(POLICY)
    assert settings == Settings(
        parallel=3,
        per_region=2,
        max_failures=4,
        max_untouched=5,
        on_failure=OnFailure.ROLLBACK_ALL,
        unhealthy=Unhealthy.SKIP,
        bake=30.0,
    )
    assert Options().wave_sizes(POLICY) == (1, "100%")
    assert Options().flags() == ()


def test_flags_win_and_can_be_typed_again() -> None:
    options = Options(
        parallel="1",
        per_region="0",
        waves="1, 25%,100%",
        bake="0s",
        max_failures="0",
        max_untouched="1",
        on_failure="stop",
        unhealthy="repair",
        only_outdated=True,
        preserve_jobs=False,
    )
    assert options.settings(POLICY) == Settings(
        parallel=1,
        per_region=0,
        max_failures=0,
        max_untouched=1,
        on_failure=OnFailure.STOP,
        unhealthy=Unhealthy.REPAIR,
        bake=0.0,
        preserve_jobs=False,
        only_outdated=True,
    )
    assert options.wave_sizes(POLICY) == (1, "25%", "100%")
    typed = command_line("restart", ["--cluster", "us-*", *options.flags()])
    assert typed == (
        "invoke restart --cluster 'us-*' --only-outdated --no-preserve-jobs --parallel 1"
        " --per-region 0 --waves '1, 25%,100%' --bake 0s --max-failures 0 --max-untouched 1"
        " --on-failure stop --unhealthy repair"
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"parallel": "0"}, "--parallel 0: not a whole number of at least 1"),
        ({"parallel": "-1"}, "--parallel -1"),
        ({"per_region": "many"}, "--per-region many"),
        ({"max_failures": "1.5"}, "--max-failures 1.5"),
        ({"bake": "10"}, "--bake 10: not a duration such as"),
        ({"on_failure": "panic"}, "not one of stop, rollback-failed, rollback-all"),
        ({"unhealthy": "ignore"}, "not one of fail, skip, repair"),
        ({"waves": "1,0%"}, "'0%' is no wave"),
        ({"waves": "1,,2"}, "'' is no wave"),
        ({"waves": "101%"}, "'101%' is no wave"),
        ({"waves": "half"}, "as in 1,25%,100%"),
    ],
)
def test_a_flag_that_makes_no_sense_is_refused_with_what_would(
    flags: dict[str, str], said: str
) -> None:
    options = Options(**flags)  # type: ignore[arg-type]
    read = options.wave_sizes if "waves" in flags else options.settings
    with pytest.raises(UsageError) as caught:
        read(POLICY)
    assert said in caught.value.text()
    assert caught.value.exit_code == 1

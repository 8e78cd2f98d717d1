"""What a wish means for a cluster as it is, and in which order clusters change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.cluster.health import Observed
from rayfleet.errors import Declined, UsageError
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Fleet
from rayfleet.rollout.change import Action, Target, decide, require_spared
from rayfleet.rollout.order import batches

ROOT = Path(__file__).resolve().parents[3]
HEALTHY = Observed(
    cluster="us-east5",
    head="head-1",
    ray_version="2.60.0",
    image_digest="sha256:new",
    wanted_digest="sha256:new",
    workers={"worker": 1},
    wanted_workers={"worker": 1},
    config_hash="same",
    wanted_hash="same",
)


def test_a_healthy_cluster_is_not_started_again() -> None:
    assert decide(Action.START, HEALTHY, exists=True)[0] is Action.NOTHING
    assert decide(Action.STOP, HEALTHY, exists=True) == (Action.STOP, "it has 1 workers")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"image_digest": "sha256:old"}, "sha256:old"),
        ({"workers": {}}, "0 of 1 worker joined"),
        ({"ray_version": "", "problem": "refused"}, "refused"),
    ],
)
def test_a_start_says_what_is_wrong_with_what_is_there(change: dict[str, str], why: str) -> None:
    action, reason = decide(Action.START, replace(HEALTHY, **change), exists=True)
    assert action is Action.START
    assert why in reason


def test_what_does_not_exist_is_started_and_never_stopped() -> None:
    gone = Observed(cluster="us-east5", wanted_workers={"worker": 1})
    assert decide(Action.START, gone, exists=False)[0] is Action.START
    assert decide(Action.STOP, gone, exists=False)[0] is Action.NOTHING
    # Workers without a head are something to stop.
    assert decide(Action.STOP, gone, exists=True)[0] is Action.STOP


def test_what_cannot_be_asked_is_unknown_and_not_stopped() -> None:
    unknown = Observed(cluster="x", problem="the cloud does not answer")
    assert unknown.word() == "unknown"
    assert unknown.failing() == ("the cloud does not answer",)
    assert Observed(cluster="x").word() == "stopped"


def test_the_minimum_is_per_type() -> None:
    seen = Observed(
        cluster="x",
        head="h",
        ray_version="2",
        workers={"a": 5},
        wanted_workers={"a": 1, "b": 1},
    )
    assert seen.failing() == ("0 of 1 b joined",)


@given(chosen=st.sets(st.sampled_from(range(4))), parallel=st.integers(1, 5))
def test_each_chosen_cluster_changes_once_and_the_order_goes_first(
    chosen: set[int], parallel: int
) -> None:
    fleet = _fleet()
    clusters = [list(fleet.clusters.values())[index] for index in sorted(chosen)]
    groups = batches(fleet, clusters, parallel=parallel)
    flat = [cluster.name for group in groups for cluster in group]
    assert sorted(flat) == sorted(cluster.name for cluster in clusters)
    assert all(len(group) <= parallel for group in groups)
    first = [name for name in fleet.rollout.order if name in flat]
    assert flat[: len(first)] == first
    assert all(len(group) == 1 for group in groups[: len(first)])


def target(action: Action, **more: Any) -> Target:
    return Target(cluster=_fleet().clusters["us-east5"], action=action, why="x", **more)


def test_a_start_ends_no_jobs() -> None:
    require_spared(target(Action.START), ())
    with pytest.raises(UsageError, match="its head has jobs") as found:
        require_spared(target(Action.START, kill_all=True), ["a", "b"])
    assert found.value.why == "a start would end a, b"
    assert found.value.next_step == "invoke restart --cluster us-east5"
    with pytest.raises(UsageError, match="does not tell its jobs") as found:
        require_spared(target(Action.START), (), silent="no answer")
    assert found.value.next_step == "invoke restart --cluster us-east5 --unhealthy repair"


def test_a_stop_kills_no_jobs_that_came_since_it_was_asked() -> None:
    require_spared(target(Action.STOP), ())
    require_spared(target(Action.STOP), (), silent="no answer")
    require_spared(target(Action.STOP, kill_all=True), ["a"])
    require_spared(target(Action.STOP, jobs_problem="they could not be listed"), ["a"])
    with pytest.raises(Declined, match="more jobs came since you were asked"):
        require_spared(target(Action.STOP), ["a"])


def _fleet() -> Fleet:
    return load_fleet(ROOT / "infra" / "sandbox.yaml", root=ROOT, state=Path("/nowhere"))

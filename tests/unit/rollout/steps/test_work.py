"""The performer: who may change a cluster, and what an operator is told to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.cluster.lease import hold_cluster, lease_of
from rayfleet.errors import Locked, RayfleetError, ToolFailed, UsageError
from rayfleet.rollout.model import Output, Step
from rayfleet.rollout.steps import work as module
from rayfleet.rollout.steps.site import Site, marked
from rayfleet.rollout.steps.work import ClusterWork
from tests.support.rollout_world import BY, CLUSTER, PLAN_ID, Way, World


@pytest.fixture
def way(tmp_path: Path) -> Way:
    return Way(World(tmp_path / "world"))


def work_of(way: Way) -> ClusterWork:
    return ClusterWork(way.project, way.fleet, way.folder, operator=BY)


def test_every_step_has_its_work() -> None:
    assert set(module._STEPS) == set(Step)


def test_a_cluster_is_held_for_the_rollout_until_it_is_released(way: Way) -> None:
    work, task = work_of(way), way.task()
    with work.hold(task.plan, task.target):
        lease = lease_of(way.project, CLUSTER)
        assert lease is not None
        assert (lease.rollout, lease.operator, lease.running) == (PLAN_ID, BY, True)
    assert lease_of(way.project, CLUSTER) is not None
    work.release(task.plan, task.target)
    assert lease_of(way.project, CLUSTER) is None
    work.release(task.plan, task.target)


def test_a_cluster_of_another_rollout_is_refused_and_stays_its_own(way: Way) -> None:
    with hold_cluster(way.project, CLUSTER, rollout="R2", operator="bob@x"):
        pass
    work, task = work_of(way), way.task()
    with pytest.raises(Locked), work.hold(task.plan, task.target):
        pytest.fail("it was let in")
    work.release(task.plan, task.target)
    lease = lease_of(way.project, CLUSTER)
    assert lease is not None
    assert lease.rollout == "R2"


def test_a_release_goes_on_when_the_marked_head_does_not_answer(way: Way) -> None:
    way.site().mark()
    work, task = work_of(way), way.task()
    with work.hold(task.plan, task.target):
        pass
    # Its generated config is no cluster's, so that the head cannot be found.
    work.release(task.plan, task.target)
    assert lease_of(way.project, CLUSTER) is None
    assert marked(way.folder, CLUSTER.name).exists()


@pytest.mark.parametrize(
    ("step", "said", "told"),
    [
        (
            Step.START,
            "read up.log, then run: invoke restart --cluster us-east5",
            f"read up.log, then run: invoke rollouts.retry {PLAN_ID} --cluster us-east5",
        ),
        (
            Step.EMPTY,
            "invoke stop --cluster us-east5",
            f"invoke rollouts.retry {PLAN_ID} --cluster us-east5",
        ),
        (Step.PREFLIGHT, "invoke restart --cluster us-east5", None),
        (Step.JOBS, "invoke status --cluster us-east5", None),
    ],
)
def test_a_cluster_that_we_hold_is_not_to_be_started_by_hand(
    way: Way, monkeypatch: pytest.MonkeyPatch, step: Step, said: str, told: str | None
) -> None:
    def fails(site: Site) -> Output:
        raise ToolFailed("it failed", next_step=said)

    monkeypatch.setitem(module._STEPS, step, fails)  # type: ignore[arg-type]
    with pytest.raises(RayfleetError) as caught:
        work_of(way).perform(step, way.task(), note=lambda _: None, narrate=lambda _: None)
    assert caught.value.next_step == (told or said)


def test_trouble_is_told_in_one_line_and_never_raised(way: Way) -> None:
    assert "us-east5" in work_of(way).trouble(way.task().target)


def test_a_step_that_cannot_be_done_says_so(way: Way) -> None:
    way.fleet.config_path(CLUSTER).unlink()
    with pytest.raises(UsageError, match="us-east5 has no generated config"):
        work_of(way).perform(
            Step.PREFLIGHT, way.task(), note=lambda _: None, narrate=lambda _: None
        )

"""What is said of a cluster that a rollout has, by its lease and the rollout's journal."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayfleet.cluster.lease import Names, hold_cluster
from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Direction, Step
from rayfleet.rollout.progress import Progress, progress_of
from tests.support.rehearsals import create, make_plan

A = Names(name="a", identity="ray-a")


@dataclass(frozen=True)
class Place:
    """Where the state folder is."""

    state: Path


@pytest.fixture
def rollout(tmp_path: Path) -> Rollout:
    return create(tmp_path, make_plan(["a", "b"], start=["b"]))


@contextmanager
def held(rollout: Rollout, cluster: Names = A) -> Iterator[Place]:
    """While a process of this machine works on the cluster for the rollout."""
    place = Place(rollout.folder.parent.parent)
    with hold_cluster(place, cluster, rollout=rollout.id, operator="olga@desk", beat=600):
        yield place


def progress(place: Place, cluster: Names = A) -> Progress:
    found = progress_of(place, cluster)
    assert found is not None
    return found


def test_a_cluster_that_no_rollout_has_is_as_it_looks(tmp_path: Path) -> None:
    assert progress_of(Place(tmp_path), A) is None


def test_the_rollout_the_operator_and_the_step_are_told(rollout: Rollout) -> None:
    with held(rollout) as place:
        assert progress(place).step == ""
        rollout.append(Kind.HELD, cluster="a")
        assert progress(place).step == "preflight"
        rollout.append(Kind.INTENT, cluster="a", step=Step.START)
        found = progress(place)
        assert (found.word, found.step, found.running) == ("restarting", "start", True)
        assert found.text.startswith(f"restarting by rollout {rollout.id} of olga@desk, step start")
        assert found.next_step == f"invoke rollouts.show {rollout.id}"
        assert found.document()["step"] == "start"


def test_a_first_start_and_a_rollback_are_told_as_such(rollout: Rollout) -> None:
    b = Names(name="b", identity="ray-b")
    with held(rollout, b) as place:
        rollout.append(Kind.INTENT, cluster="b", step=Step.START)
        assert progress(place, b).word == "starting"
    with held(rollout) as place:
        rollout.append(Kind.INTENT, cluster="a", direction=Direction.BACK, step=Step.STOP)
        found = progress(place)
        assert (found.word, found.step) == ("rolling back", "stop")


def test_where_no_process_works_it_is_not_being_restarted(rollout: Rollout) -> None:
    rollout.append(Kind.INTENT, cluster="a", step=Step.STOP)
    with held(rollout) as place:
        pass
    found = progress(place)
    assert not found.running
    assert found.text == (
        f"part of the unfinished rollout {rollout.id} of olga@desk, step stop;"
        " no process works on it"
    )


def test_a_process_without_a_sign_of_life_is_not_at_work(rollout: Rollout) -> None:
    with held(rollout) as place:
        long_ago = time.time() - 3600
        os.utime(place.state / "leases" / "ray-a.json", (long_ago, long_ago))
        assert not progress(place).running


@pytest.mark.parametrize("file", ["plan.json", "journal.jsonl"])
def test_a_damaged_rollout_is_told_by_its_lease_alone(rollout: Rollout, file: str) -> None:
    (rollout.folder / file).write_text("damaged\n")
    with held(rollout) as place:
        found = progress(place)
    assert (found.word, found.step, found.rollout) == ("restarting", "", rollout.id)

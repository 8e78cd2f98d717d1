"""Which backups pruning must leave, because a rollout may still give jobs back from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Step
from rayfleet.rollout.rehearsal import Failure, Mishap
from rayfleet.rollout.uses.backups import needed_backups
from tests.support.rehearsals import create, make_plan, run

IDS = ("a-1", "b-1", "c-1")  # as the rehearsal calls them


@pytest.fixture
def rollout(tmp_path: Path) -> Rollout:
    return create(tmp_path, make_plan(["a"], ["b"]))


def needed(rollout: Rollout) -> Mapping[str, str]:
    return needed_backups(rollout.folder.parent.parent, IDS)


def test_a_rollout_that_is_not_finished_needs_all_that_it_names(rollout: Rollout) -> None:
    undecided = Failure(cluster="b", step=Step.GATES, mishap=Mishap.INCONCLUSIVE, times=99)
    run(rollout, failures=[undecided])
    why = f"rollout {rollout.id} is not finished"
    assert needed(rollout) == {"a-1": why, "b-1": why}


def test_one_that_was_killed_while_it_writes_needs_it_too(rollout: Rollout) -> None:
    rollout.append(Kind.BEGUN)
    rollout.append(
        Kind.DONE, cluster="a", step=Step.SNAPSHOT, data={"owed": [{"backup": "a-1", "jobs": []}]}
    )
    with rollout.journal.path.open("a") as file:
        file.write('{"number": 3, "half')
    assert set(needed(rollout)) == {"a-1"}


def test_a_failed_one_needs_those_of_clusters_that_it_has_not_released(rollout: Rollout) -> None:
    run(rollout, failures=[Failure(cluster="b", step=Step.START)])
    assert needed(rollout) == {"b-1": f"rollout {rollout.id} has not released b"}
    rollout.append(Kind.RELEASED, cluster="b")
    assert needed(rollout) == {}


def test_one_that_is_done_needs_nothing(rollout: Rollout) -> None:
    run(rollout)
    assert needed(rollout) == {}


@pytest.mark.parametrize("file", ["plan.json", "journal.jsonl"])
def test_one_that_cannot_be_read_needs_all_that_it_names(rollout: Rollout, file: str) -> None:
    run(rollout)
    path = rollout.folder / file
    path.write_text("damaged\n" + path.read_text())
    assert set(needed(rollout)) == {"a-1", "b-1"}
    assert all("cannot be read" in why for why in needed(rollout).values())


def test_without_any_rollout_nothing_is_needed(tmp_path: Path) -> None:
    assert needed_backups(tmp_path, IDS) == {}

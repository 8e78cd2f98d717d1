"""Jobs are quieted before a stop, and every ending is accounted for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayfleet.errors import Locked
from rayfleet.job.model import LOST_WITH_HEAD, JobStatus
from rayfleet.job.preserve import IncompleteBackup
from rayfleet.job.vault.choice import default_backup
from rayfleet.job.vault.model import Backup
from rayfleet.rollout.model import Output, Step
from rayfleet.rollout.steps.quiesce import LATE_ROUNDS, STOP_SECONDS, quiesce
from rayfleet.rollout.steps.saving import snapshot, verify
from tests.support.rollout_world import CLUSTER, Way, World
from tests.unit.job.restore.fake_head import Killed

DIED = "JOB_SUPERVISOR_ACTOR_DIED"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


def saved(world: World, *names: str, **changes: Any) -> Way:
    """A way whose jobs are in the vault."""
    for name in names:
        world.submit(name, **changes)
    way = Way(world)
    way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
    way.do(Step.SNAPSHOT, snapshot)
    way.do(Step.VERIFY, verify)
    return way


def owed(output: Output) -> list[tuple[list[str], list[str]]]:
    return [(row["jobs"], row["stopped"]) for row in output["owed"]]  # type: ignore[union-attr, attr-defined]


def latest(way: Way) -> Backup:
    """What a restore by hand would take."""
    return default_backup(way.site().preserver.vault, CLUSTER.name, lambda text: None)


def stops(world: World) -> list[str]:
    return [call for call in world.head.calls if call.startswith("stop")]


def test_running_jobs_are_asked_to_end_newest_first_and_are_owed(world: World) -> None:
    way = saved(world, "a", "b")
    world.submit("cron-1")
    output = way.do(Step.QUIESCE, quiesce)
    assert stops(world) == ["stop b", "stop a"]
    assert owed(output) == [(["a", "b"], ["a", "b"])]
    assert (output["ended"], output["late"], output["unstopped"]) == ({}, 0, [])
    assert {name: row.status for name, row in world.head.rows.items()} == {
        "a": JobStatus.STOPPED,
        "b": JobStatus.STOPPED,
        "cron-1": JobStatus.RUNNING,
    }


def test_a_waiting_job_is_left_waiting_and_is_owed(world: World) -> None:
    way = saved(world, "a", num_cpus=4)
    output = way.do(Step.QUIESCE, quiesce)
    assert stops(world) == []
    assert owed(output) == [(["a"], [])]
    assert output["unstopped"] == ["a"]
    assert world.clock.now < 5


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("status", "error_type"),
    [
        (JobStatus.SUCCEEDED, ""),
        (JobStatus.FAILED, "JOB_ENTRYPOINT_COMMAND_ERROR"),
        (JobStatus.FAILED, "RUNTIME_ENV_SETUP_FAILURE"),
    ],
)
def test_a_job_that_ends_by_itself_before_or_during_the_stop_is_never_owed(
    world: World, when: str, status: JobStatus, error_type: str
) -> None:
    way = saved(world, "a", "b")
    if when == "before":
        world.head.end("a", status, error_type)
    else:
        nothing = lambda: None  # noqa: E731
        world.head.before_list = [nothing, lambda: world.head.end("a", status, error_type)]
    output = way.do(Step.QUIESCE, quiesce)
    assert stops(world) == (["stop b"] if when == "before" else ["stop b", "stop a"])
    assert owed(output) == [(["b"], ["b"])]
    assert output["ended"] == {"a": status.value}
    # Nor does a restore by hand run it again.
    assert [job.submission_id for job in latest(way).jobs] == ["b"]
    assert latest(way).ended["a"] is status


def test_a_job_that_somebody_else_stopped_is_not_owed(world: World) -> None:
    way = saved(world, "a", "b")
    world.head.end("a", JobStatus.STOPPED)
    assert owed(way.do(Step.QUIESCE, quiesce)) == [(["b"], ["b"])]


@pytest.mark.parametrize("error_type", sorted(LOST_WITH_HEAD))
@pytest.mark.parametrize("when", ["before", "during"])
def test_a_job_whose_worker_was_preempted_is_owed(world: World, error_type: str, when: str) -> None:
    way = saved(world, "a")
    lose = lambda: world.head.end("a", JobStatus.FAILED, error_type)  # noqa: E731
    world.head.before_list = [lose] if when == "before" else [lambda: None, lose]
    (row,) = owed(way.do(Step.QUIESCE, quiesce))
    assert row[0] == ["a"]


def test_jobs_that_come_meanwhile_are_saved_asked_and_owed_in_one_backup(world: World) -> None:
    way = saved(world, "a")
    world.submit("b")
    world.head.before_list = [lambda: None, lambda: None, lambda: world.submit("c")]
    output = way.do(Step.QUIESCE, quiesce)
    assert owed(output) == [(["a", "b", "c"], ["a", "b", "c"])]
    assert output["late"] == 2
    backup = latest(way)
    assert [job.submission_id for job in backup.jobs] == ["a", "b", "c"]
    assert output["owed"][0]["backup"] == backup.id  # type: ignore[index]
    assert stops(world) == ["stop b", "stop a", "stop c"]


def test_a_cluster_that_always_gets_more_is_quieted_in_so_many_rounds(world: World) -> None:
    way = saved(world, "a")
    count = iter(range(1000))
    world.head.before_list = [lambda: world.submit(f"late-{next(count):03}")] * 500
    output = way.do(Step.QUIESCE, quiesce)
    (row,) = owed(output)
    assert len(row[0]) > LATE_ROUNDS
    # What came last of all was saved, though nobody asked it to end.
    assert set(row[0]) - set(row[1])
    assert set(row[0]) >= {job.submission_id for job in latest(way).jobs}


def test_a_job_that_does_not_end_in_time_dies_with_the_head_and_is_owed(world: World) -> None:
    way = saved(world, "a", "b")
    world.head.stubborn = {"a"}
    output = way.do(Step.QUIESCE, quiesce)
    assert owed(output) == [(["a", "b"], ["a", "b"])]
    assert output["unstopped"] == ["a"]
    assert STOP_SECONDS <= world.clock.now < STOP_SECONDS + 5


def test_a_new_job_under_the_id_of_one_that_we_stopped_is_owed_instead(world: World) -> None:
    way = saved(world, "a")

    def again() -> None:
        world.head.end("a", JobStatus.STOPPED)
        world.submit("a", metadata={"life": "2"})
        world.head.asked.pop("a")

    world.head.before_list = [lambda: None, again]
    output = way.do(Step.QUIESCE, quiesce)
    assert owed(output) == [(["a"], ["a"])]
    assert [job.metadata for job in latest(way).jobs] == [{"life": "2"}]
    assert stops(world) == ["stop a", "stop a"]


def test_a_head_that_dies_meanwhile_changes_nothing_all_is_owed(world: World) -> None:
    way = saved(world, "a", "b")
    world.head.before_list = [lambda: None, world.lose]
    output = way.do(Step.QUIESCE, quiesce)
    assert owed(output) == [(["a", "b"], ["a", "b"])]
    assert output["problem"] == "the head is gone"
    assert world.clock.now < 3


def test_a_head_that_only_stops_answering_is_waited_for_a_while(world: World) -> None:
    way = saved(world, "a")

    def silent() -> None:
        world.answers = False

    world.head.before_list = [silent]
    output = way.do(Step.QUIESCE, quiesce)
    assert owed(output)[0][0] == ["a"]
    assert "connection was lost" in str(output["problem"])
    assert 15 < world.clock.now < 60


def test_where_only_the_dashboard_is_dead_endings_are_read_from_the_store(world: World) -> None:
    way = saved(world, "a", "b")

    def dead() -> None:
        world.dashboard = False
        world.head.end("a", JobStatus.SUCCEEDED)

    world.head.before_list = [dead]
    output = way.do(Step.QUIESCE, quiesce)
    assert owed(output) == [(["b"], ["b"])]
    assert [job.submission_id for job in latest(way).jobs] == ["b"]


def test_a_late_job_that_cannot_be_saved_fails_the_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = saved(world, "a")
    world.submit("b", runtime_env={"working_dir": "gcs://gone.zip"})
    look = World.look

    def lacking(self: World) -> Any:
        found = look(self)
        jobs = tuple(
            replace(job, runtime_env={"working_dir": "gcs://gone.zip"})
            if job.submission_id == "b"
            else job
            for job in found.jobs
        )
        return replace(found, jobs=jobs)

    monkeypatch.setattr(World, "look", lacking)
    with pytest.raises(IncompleteBackup, match="is incomplete"):
        way.do(Step.QUIESCE, quiesce)


def test_another_operators_mark_refuses_the_step(world: World) -> None:
    way = saved(world, "a")
    held = world.home / ".rayfleet" / "held.json"
    held.write_text('{"rollout": "other", "operator": "bob@laptop", "since": "noon"}')
    with pytest.raises(Locked, match="rollout other of bob@laptop since noon"):
        way.do(Step.QUIESCE, quiesce)
    assert stops(world) == []


@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
def test_killed_at_any_call_the_next_run_ends_the_same(tmp_path: Path, *, late: bool) -> None:
    def prepared(name: str) -> Way:
        world = World(tmp_path / f"{name}-{late}")
        way = saved(world, "a", "b")
        world.submit("w", num_cpus=3)
        world.submit("c")
        world.head.end("b", JobStatus.SUCCEEDED)
        world.head.calls.clear()
        return way

    whole = prepared("whole")
    expected = owed(whole.do(Step.QUIESCE, quiesce))
    assert expected == [(["a", "w", "c"], ["a", "c"])]
    calls = len(whole.world.head.calls)
    assert calls > 5
    for step in range(1, calls + 1):
        way = prepared(f"cut-{step}")
        way.world.head.cut_at, way.world.head.cut_late = step, late
        with pytest.raises(Killed):
            way.do(Step.QUIESCE, quiesce)
        output = way.do(Step.QUIESCE, quiesce)
        assert owed(output) == expected, step
        assert output["ended"] == {"b": "SUCCEEDED"}
        assert [job.submission_id for job in latest(way).jobs] == ["a", "w", "c"]

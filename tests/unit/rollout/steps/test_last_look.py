"""Whoever ends a head has itself seen what runs there: what an earlier process saw is old."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayfleet.errors import Drift, Locked, Unreachable
from rayfleet.job.model import JobStatus
from rayfleet.job.preserve import IncompleteBackup
from rayfleet.rollout.model import Change, Direction, Output, Settings, Step, Unhealthy
from rayfleet.rollout.steps import give_back, machines
from rayfleet.rollout.steps.preflight import preflight
from rayfleet.rollout.steps.quiesce import quiesce
from rayfleet.rollout.steps.saving import snapshot
from tests.support.rollout_world import CLUSTER, PLAN_ID, Way, World
from tests.unit.job.restore.fake_head import EPOCH, Killed
from tests.unit.rollout.steps.test_way import outcomes, walk


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


def quiet(world: World, *names: str, **more: Any) -> Way:
    """A way whose jobs are saved and asked to end, and whose process has died since."""
    for name in names:
        world.submit(name)
    way = Way(world, **more)
    way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
    way.do(Step.SNAPSHOT, snapshot)
    way.do(Step.QUIESCE, quiesce)
    way.die()
    return way


def restored(output: Output) -> set[str]:
    return {name for name, (outcome, _) in outcomes(output).items() if outcome == "restored"}


def marks(world: World, rollout: str) -> None:
    folder = world.home / ".rayfleet"
    folder.mkdir(exist_ok=True)
    row = {"rollout": rollout, "operator": "bob@laptop", "since": "noon"}
    (folder / "held.json").write_text(json.dumps(row))


def test_jobs_that_came_while_nobody_carried_it_out_come_back(world: World) -> None:
    way = quiet(world, "a", "b")
    world.submit("late")
    world.submit("waits", num_cpus=3)
    output = walk(way)
    assert restored(output) == {"a", "b", "late", "waits"}
    assert world.head.submitted == ["a", "b", "late", "waits"]


def test_jobs_that_come_right_before_the_stop_come_back(world: World) -> None:
    way = quiet(world, "a")
    way.links.seen.add(CLUSTER.name)  # the same process
    world.submit("late")
    assert restored(walk(way)) == {"a", "late"}


def test_what_ended_by_itself_meanwhile_does_not_come_back(world: World) -> None:
    world.submit("w", num_cpus=4)
    way = quiet(world, "a")
    world.head.rows["w"] = replace(world.head.rows["w"], status=JobStatus.SUCCEEDED)
    world.submit("late")
    world.submit("halted")
    world.head.end("halted", JobStatus.STOPPED)
    assert restored(walk(way)) == {"a", "late"}


def test_a_job_that_its_user_submitted_again_comes_back_once_as_it_is_now(world: World) -> None:
    way = quiet(world, "a")
    world.head.asked.clear()
    world.submit("a", metadata={"life": "2"})
    assert restored(walk(way)) == {"a"}
    assert world.head.submitted == ["a"]
    assert world.head.rows["a"].metadata == {"life": "2"}


@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
def test_killed_at_any_call_of_the_stop_the_next_process_loses_nothing(
    tmp_path: Path, *, late: bool
) -> None:
    def prepared(name: str) -> Way:
        world = World(tmp_path / f"{name}-{late}")
        way = quiet(world, "a")
        world.submit("b")
        world.submit("c")
        world.head.calls.clear()
        return way

    whole = prepared("whole")
    before = whole.world.head
    whole.do(Step.STOP, machines.stop)
    calls = len(before.calls)
    assert calls > 3
    for step in range(1, calls + 1):
        way = prepared(f"cut-{step}")
        way.world.head.cut_at, way.world.head.cut_late = step, late
        with pytest.raises(Killed):
            way.do(Step.STOP, machines.stop)
        way.die()
        if step % 2:  # the head goes with the process, half of the times
            way.world.lose()
        else:
            way.world.submit("d")
        wanted = {"a", "b", "c"} | (set() if step % 2 else {"d"})
        if step == 1:
            wanted = {"a"}  # the head went before anybody had looked
        assert restored(walk(way)) == wanted, step


def test_a_rollback_after_a_failed_quiesce_gives_back_what_was_stopped(world: World) -> None:
    for name in ("a", "b"):
        world.submit(name)
    way = Way(world)
    way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
    way.do(Step.SNAPSHOT, snapshot)
    world.head.cut_at = 4  # it has asked both
    with pytest.raises(Killed):
        way.do(Step.QUIESCE, quiesce)
    world.clock.now += 60
    world.head.list()
    assert {row.status for row in world.head.rows.values()} == {JobStatus.STOPPED}
    back = Way(world, direction=Direction.BACK, owed=way.owed)
    assert restored(walk(back)) == {"a", "b"}


def test_a_head_that_somebody_has_replaced_meanwhile_is_looked_at_as_well(world: World) -> None:
    way = quiet(world, "a", "b")
    world.launch()
    world.submit("a")
    world.head.rows["a"] = replace(world.head.rows["a"], started=EPOCH * 2)
    world.submit("new")
    output = walk(way)
    assert restored(output) == {"a", "b", "new"}
    assert sorted(world.head.submitted) == ["a", "b", "new"]


def test_one_that_is_started_after_the_stop_is_looked_at_before_nothing_is_left(
    world: World,
) -> None:
    way = quiet(world, "a")
    way.do(Step.STOP, machines.stop)
    way.die()
    world.launch()
    world.submit("new")
    assert restored(walk(way)) == {"a", "new"}


def test_a_head_that_is_gone_is_no_obstacle(world: World) -> None:
    way = quiet(world, "a")
    world.lose()
    assert restored(walk(way)) == {"a"}


def test_a_head_that_does_not_answer_is_not_ended_by_who_has_not_seen_its_jobs(
    world: World,
) -> None:
    way = quiet(world, "a")
    world.answers = False
    with pytest.raises(Unreachable, match="does not tell which jobs came") as found:
        way.do(Step.STOP, machines.stop)
    assert "terminate" not in way.ground.calls
    assert f"invoke rollouts.retry {PLAN_ID} --cluster us-east5" in found.value.next_step
    world.answers = True
    world.submit("late")
    assert restored(walk(way)) == {"a", "late"}


def test_one_that_falls_silent_before_the_eyes_of_this_process_is(world: World) -> None:
    way = quiet(world, "a")
    way.do(Step.SNAPSHOT, snapshot)
    way.do(Step.QUIESCE, quiesce)
    world.answers = False
    way.do(Step.STOP, machines.stop)
    assert any("is not known" in line for line in way.said)


def test_who_repairs_goes_on_without_what_a_dead_head_does_not_tell(world: World) -> None:
    way = quiet(world, "a", settings=Settings(unhealthy=Unhealthy.REPAIR))
    world.answers = False
    way.do(Step.STOP, machines.stop)
    assert way.ground.calls == ["terminate"]


def test_a_late_job_that_cannot_be_saved_keeps_the_head_alive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = quiet(world, "a")
    world.submit("late")
    look = World.look

    def lacking(self: World) -> Any:
        found = look(self)
        jobs = tuple(replace(job, missing=("its record",)) for job in found.jobs)
        return replace(found, jobs=jobs)

    monkeypatch.setattr(World, "look", lacking)
    with pytest.raises(IncompleteBackup):
        way.do(Step.STOP, machines.stop)
    assert way.ground.calls == []


def test_without_preserving_jobs_die_and_the_mark_is_looked_at_all_the_same(world: World) -> None:
    world.submit("a")
    way = Way(world, settings=Settings(preserve_jobs=False))
    marks(world, "R2")
    with pytest.raises(Locked):
        way.do(Step.STOP, machines.stop)
    (world.home / ".rayfleet" / "held.json").unlink()
    way.do(Step.STOP, machines.stop)
    assert way.ground.calls == ["terminate"]
    assert way.site().preserver.vault.backups() == ()


@pytest.mark.parametrize("step", ["stop", "start", "jobs"])
def test_a_process_without_a_connection_makes_one_to_read_the_mark(world: World, step: str) -> None:
    way = quiet(world, "a")
    work = {"stop": machines.stop, "start": machines.start, "jobs": give_back.jobs}[step]
    marks(world, "R2")
    way.ground.image = "sha256:another"  # so that a start would set the head up again
    with pytest.raises(Locked, match="rollout R2 of bob@laptop"):
        way.do(Step(step), work)
    assert not {"terminate", "launch"}.intersection(way.ground.calls)
    assert "late" not in world.head.submitted


def test_a_new_head_is_marked_as_soon_as_it_is_up(world: World) -> None:
    way = quiet(world, "a")
    for step, work in ((Step.STOP, machines.stop), (Step.START, machines.start)):
        way.do(step, work)
    held = json.loads((world.home / ".rayfleet" / "held.json").read_text())
    assert held["rollout"] == PLAN_ID


def test_the_jobs_of_a_head_that_has_to_be_set_up_again_are_saved_first(world: World) -> None:
    way = quiet(world, "a")
    for step, work in ((Step.STOP, machines.stop), (Step.EMPTY, machines.empty)):
        way.do(step, work)
    way.do(Step.START, machines.start)
    del way.outputs[Step.START]  # its gates failed, and it is tried again the day after
    way.die()
    world.submit("new")
    way.ground.image = "sha256:another"
    assert restored(walk(way)) == {"a", "new"}
    assert way.ground.calls.count("launch") == 2


def test_a_head_that_was_up_and_tells_nothing_is_not_set_up_again(world: World) -> None:
    way = quiet(world, "a")
    for step, work in ((Step.STOP, machines.stop), (Step.START, machines.start)):
        way.do(step, work)
    way.die()
    way.ground.calls.clear()
    world.answers = False
    with pytest.raises(Unreachable, match="does not tell which jobs came"):
        way.do(Step.START, machines.start)
    assert "launch" not in way.ground.calls


def test_a_half_made_head_that_tells_nothing_is_set_up_again(world: World) -> None:
    way = quiet(world, "a")
    way.do(Step.STOP, machines.stop)
    way.die()
    world.launch()
    world.answers = False
    assert way.do(Step.START, machines.start)["launched"] is True
    assert any("never up whole" in line for line in way.said)


def test_jobs_on_a_cluster_that_was_to_be_started_are_not_ended(world: World) -> None:
    way = Way(world, change=Change.START, planned_head="")
    world.submit("a")
    way.ground.image = "sha256:another"
    with pytest.raises(Drift, match="has jobs already"):
        way.do(Step.START, machines.start)
    assert "launch" not in way.ground.calls


def test_a_started_cluster_that_is_taken_back_leaves_its_jobs_in_the_vault(world: World) -> None:
    world.submit("a")
    way = Way(world, change=Change.START, planned_head="", direction=Direction.BACK)
    way.do(Step.STOP, machines.stop)
    (backup,) = way.site().preserver.vault.backups()
    assert any(
        f"invoke jobs.restore --cluster us-east5 --backup {backup.id}" in x for x in way.said
    )


# --- a cluster that was free meanwhile ------------------------------------------------------


def begun_anew(way: Way) -> Way:
    """The same cluster, begun with the first step again; the rollout owes what it owed."""
    return Way(way.world, owed=way.owed, changed=True, settings=way.settings)


def test_one_that_was_given_free_without_a_head_gets_what_is_owed(world: World) -> None:
    way = quiet(world, "a", "b")
    way.do(Step.STOP, machines.stop)
    anew = begun_anew(way)
    seen = anew.do(Step.PREFLIGHT, preflight)
    assert (seen["head"], "trouble" in seen) == ("", False)
    assert restored(walk(anew)) == {"a", "b"}


def test_one_that_was_given_free_before_its_stop_is_saved_again_with_what_was_stopped(
    world: World,
) -> None:
    way = quiet(world, "a", "b")
    world.submit("new")
    anew = begun_anew(way)
    anew.do(Step.PREFLIGHT, preflight)
    output = walk(anew)
    assert restored(output) == {"a", "b", "new"}
    assert sorted(world.head.submitted) == ["a", "b", "new"]


def test_a_head_that_somebody_made_meanwhile_is_refused_and_what_is_owed_is_named(
    world: World,
) -> None:
    way = quiet(world, "a")
    way.do(Step.STOP, machines.stop)
    world.launch()
    world.submit("new")
    with pytest.raises(Drift, match="was replaced") as found:
        begun_anew(way).do(Step.PREFLIGHT, preflight)
    (owed,) = way.owed
    assert f"invoke jobs.restore --cluster us-east5 --backup {owed.backup}" in found.value.next_step


def test_the_mark_is_looked_at_on_a_head_in_trouble_too(world: World) -> None:
    marks(world, "R2")
    world.dashboard = False
    way = Way(world, settings=Settings(unhealthy=Unhealthy.REPAIR))
    with pytest.raises(Locked):
        way.do(Step.PREFLIGHT, preflight)

"""Jobs go through all steps that concern them, once, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.errors import Unreachable
from rayfleet.job.model import JobStatus
from rayfleet.job.preserve import IncompleteBackup
from rayfleet.job.vault.model import LostKind, Unrestorable
from rayfleet.job.vault.store import DamagedVault, NoBackup
from rayfleet.rollout.model import Direction, Output, Owed, Settings, Step, Unhealthy, owed_of
from rayfleet.rollout.steps import give_back, machines
from rayfleet.rollout.steps.quiesce import quiesce
from rayfleet.rollout.steps.saving import snapshot, verify
from rayfleet.rollout.steps.site import Site
from tests.support.rollout_world import Way, World
from tests.unit.job.restore.fake_head import EPOCH, Killed

DIED = "JOB_SUPERVISOR_ACTOR_DIED"
WORK: dict[Step, Callable[[Site], Output]] = {
    Step.SNAPSHOT: snapshot,
    Step.VERIFY: verify,
    Step.QUIESCE: quiesce,
    Step.STOP: machines.stop,
    Step.EMPTY: machines.empty,
    Step.START: machines.start,
    Step.PACKAGES: give_back.packages,
    Step.JOBS: give_back.jobs,
    Step.WATCH: give_back.watch,
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


def walk(way: Way, *, keep_records: bool = False) -> Output:
    """Every step from the one that is not done yet; returns what the last one said."""
    way.outputs.setdefault(Step.PREFLIGHT, {"head": "head-1"})
    for step, work in WORK.items():
        if step in way.outputs:
            continue
        if step is Step.START and keep_records:
            way.world.launch(keep_records=True)
            way.outputs[step] = {}
            continue
        way.do(step, work)
    return way.outputs[Step.WATCH]


def outcomes(output: Output) -> dict[str, tuple[str, str]]:
    rows = output["jobs"]
    assert isinstance(rows, list)
    return {row["job"]: (row["outcome"], row["reason"]) for row in rows}


def test_every_job_that_ran_runs_again_once_and_waiting_ones_wait_again(world: World) -> None:
    for name in ("a", "b"):
        world.submit(name, metadata={"owner": "ann@x"})
    world.submit("w", num_cpus=4)
    way = Way(world)
    output = walk(way)
    assert outcomes(output) == {
        "a": ("restored", "RUNNING"),
        "b": ("restored", "RUNNING"),
        "w": ("restored", "PENDING, waits for its resources"),
    }
    assert (output["lost"], output["next"]) == ([], "")
    assert world.head.submitted == ["a", "b", "w"]
    assert world.head.rows["a"].metadata == {"owner": "ann@x"}
    assert way.ground.calls == ["terminate", "require none", "launch", "trust head-2"]


@pytest.mark.parametrize("keep_records", [False, True])
def test_jobs_that_we_stopped_come_back_even_to_a_head_that_kept_its_records(
    world: World, *, keep_records: bool
) -> None:
    for name in ("ours", "theirs", "done", "dropped"):
        world.submit(name)
    way = Way(world)
    way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
    way.do(Step.SNAPSHOT, snapshot)
    world.head.end("theirs", JobStatus.STOPPED)
    world.head.end("done", JobStatus.SUCCEEDED)
    world.head.end("dropped", JobStatus.FAILED, DIED)
    output = walk(way, keep_records=keep_records)
    assert set(outcomes(output)) == {"ours", "dropped"}
    assert {one for one, _ in outcomes(output).values()} == {"restored"}
    again = [name for name in world.head.submitted if name in {"ours", "dropped"}]
    assert len(again) == (4 if keep_records else 2)
    kept = {"theirs": JobStatus.STOPPED, "done": JobStatus.SUCCEEDED} if keep_records else {}
    rows = {name: row.status for name, row in world.head.rows.items() if name in kept}
    assert rows == kept


def test_a_backup_by_hand_between_stop_and_start_hides_nothing(world: World) -> None:
    world.submit("a")
    way = Way(world)
    way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
    for step in (Step.SNAPSHOT, Step.QUIESCE):
        way.do(step, WORK[step])
    made = way.site().preserver.backup(way.site().cluster)
    assert made.ended == {"a": JobStatus.STOPPED}
    assert outcomes(walk(way)) == {"a": ("restored", "RUNNING")}


def test_a_job_whose_worker_goes_while_it_starts_is_submitted_again(world: World) -> None:
    world.submit("a")
    way = Way(world)
    way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
    for step in list(WORK)[:-1]:
        way.do(step, WORK[step])
    world.head.end("a", JobStatus.FAILED, DIED)
    assert outcomes(way.do(Step.WATCH, give_back.watch)) == {"a": ("restored", "RUNNING")}
    assert world.head.submitted == ["a", "a"]


def test_a_job_that_always_loses_its_worker_is_given_up_and_named(world: World) -> None:
    world.submit("a")
    way = Way(world)
    way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
    for step in list(WORK)[:-2]:
        way.do(step, WORK[step])
    world.head.fails["a"] = (DIED, "the node died")
    way.do(Step.JOBS, give_back.jobs)
    world.clock.now += 60
    output = way.do(Step.WATCH, give_back.watch)
    assert outcomes(output)["a"] == ("failed", f"{DIED}: the node died")
    assert output["lost"] == ["a"]
    backup = owed_of(way.outputs[Step.QUIESCE])[0].backup
    wanted = f"invoke jobs.restore --cluster us-east5 --backup {backup} --stopped --job a"
    assert output["next"] == wanted
    assert len(world.head.submitted) == 1 + give_back.WATCH_ROUNDS


def test_a_record_of_a_waiting_job_that_the_head_kept_is_told_as_lost(world: World) -> None:
    world.submit("w", num_cpus=4)
    output = walk(Way(world), keep_records=True)
    assert output["lost"] == ["w"]
    assert outcomes(output)["w"][1].startswith("PENDING is only a record")


@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
def test_killed_at_any_call_of_giving_back_every_job_runs_once(
    tmp_path: Path, *, late: bool
) -> None:
    def prepared(name: str) -> Way:
        world = World(tmp_path / f"{name}-{late}")
        for job in ("a", "b", "c"):
            world.submit(job)
        way = Way(world)
        way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
        for step in list(WORK)[: list(WORK).index(Step.PACKAGES)]:
            way.do(step, WORK[step])
        return way

    whole = prepared("whole")
    walk(whole)
    calls = len(whole.world.head.calls)
    assert calls > 5
    for step in range(1, calls + 1):
        way = prepared(f"cut-{step}")
        way.world.head.cut_at, way.world.head.cut_late = step, late
        with pytest.raises(Killed):
            walk(way)
        output = walk(way)
        assert {one for one, _ in outcomes(output).values()} == {"restored"}, step
        assert way.world.head.submitted == ["a", "b", "c"], step


# --- saving ---------------------------------------------------------------------------------


def test_a_snapshot_pins_its_backup_and_names_what_cannot_be_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit("a")
    world.submit("cron-7")
    lost = Unrestorable(kind=LostKind.DRIVER, name="01000000", detail="process 7 on head")
    look = World.look
    monkeypatch.setattr(World, "look", lambda self: replace(look(self), unrestorable=(lost,)))
    way = Way(world)
    output = way.do(Step.SNAPSHOT, snapshot)
    assert output["jobs"] == ["a"]
    assert output["unpreservable"] == ["driver 01000000 process 7 on head"]
    assert owed_of(output) == (Owed(backup=str(output["backup"]), jobs=("a",)),)
    assert (world.home / ".rayfleet" / "held.json").exists()


def test_an_incomplete_backup_fails_the_snapshot_before_anything_is_touched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit("a")
    look = World.look

    def lacking(self: World) -> object:
        found = look(self)
        return replace(found, jobs=tuple(replace(j, missing=("its record",)) for j in found.jobs))

    monkeypatch.setattr(World, "look", lacking)
    with pytest.raises(IncompleteBackup):
        Way(world).do(Step.SNAPSHOT, snapshot)
    assert world.head.calls == []


def test_a_head_that_dies_in_the_middle_of_a_snapshot_fails_it(world: World) -> None:
    world.submit("a")
    way = Way(world)
    way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
    world.answers = False
    with pytest.raises(Unreachable):
        way.do(Step.SNAPSHOT, snapshot)


def test_a_head_to_be_repaired_that_tells_nothing_is_taken_for_lost(world: World) -> None:
    world.submit("a")
    way = Way(world, settings=Settings(unhealthy=Unhealthy.REPAIR))
    way.outputs[Step.PREFLIGHT] = {"head": "head-1", "trouble": "it does not answer"}
    world.answers = False
    with pytest.raises(NoBackup) as none:
        way.do(Step.SNAPSHOT, snapshot)
    without = "invoke restart --cluster us-east5 --unhealthy repair --no-preserve-jobs"
    assert none.value.next_step == f"without its jobs: {without}"
    world.answers = True
    made = way.site().preserver.backup(way.site().cluster)
    world.answers = False
    output = way.do(Step.SNAPSHOT, snapshot)
    assert owed_of(output) == (Owed(backup=made.id, jobs=("a",)),)
    assert outcomes(walk(way)) == {"a": ("restored", "RUNNING")}


def test_a_damaged_package_fails_the_verification(world: World, tmp_path: Path) -> None:
    way = Way(world)
    vault = way.site().preserver.vault
    from tests.unit.job.vault.examples import job, save

    made = save(
        vault,
        job("a", runtime_env={"working_dir": "gcs://a.zip"}),
        contents={"gcs://a.zip": b"bytes"},
        cluster="us-east5",
        identity="ml-us-east5",
    )
    document = {"owed": [{"backup": made.id, "jobs": ["a"], "stopped": []}]}
    way.outputs[Step.SNAPSHOT] = document
    assert way.do(Step.VERIFY, verify) == {"packages": 1, "bytes": 5}
    vault.package(made.packages[0].sha256).write_bytes(b"bytez")
    with pytest.raises(DamagedVault, match=r"gcs://a\.zip is damaged"):
        way.do(Step.VERIFY, verify)


# --- back -----------------------------------------------------------------------------------


def back_of(way: Way) -> Way:
    """The way back of a cluster that has gone as far as ``way``."""
    back = Way(way.world, direction=Direction.BACK, owed=owed_of(way.outputs[Step.QUIESCE]))
    back.outputs[Step.PREFLIGHT] = {"head": way.world.node}
    return back


@pytest.mark.parametrize("answers", [False, True])
def test_a_broken_start_goes_back_with_the_jobs_that_were_taken(
    world: World, *, answers: bool
) -> None:
    for name in ("a", "b"):
        world.submit(name)
    way = Way(world)
    way.outputs[Step.PREFLIGHT] = {"head": "head-1"}
    for step in list(WORK)[: list(WORK).index(Step.PACKAGES)]:
        way.do(step, WORK[step])
    world.answers = answers
    back = back_of(way)
    output = walk(back)
    assert outcomes(output) == {"a": ("restored", "RUNNING"), "b": ("restored", "RUNNING")}
    assert world.head.submitted == ["a", "b"]
    assert bool(back.outputs[Step.SNAPSHOT].get("problem")) is not answers


def test_going_back_after_the_jobs_were_given_back_gives_back_those_that_still_run(
    world: World,
) -> None:
    for name in ("runs", "done", "halted"):
        world.submit(name)
    way = Way(world)
    walk(way)
    world.clock.now += 60
    world.head.end("done", JobStatus.SUCCEEDED)
    world.head.end("halted", JobStatus.STOPPED)
    world.submit("new")
    world.head.rows["new"] = replace(world.head.rows["new"], started=EPOCH * 2)
    output = walk(back_of(way))
    assert outcomes(output) == {"runs": ("restored", "RUNNING"), "new": ("restored", "RUNNING")}
    assert world.head.submitted == ["runs", "new"]

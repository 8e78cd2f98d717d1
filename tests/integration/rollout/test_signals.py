"""Operators as real processes: signals, two at once, requests from elsewhere, death inside a
step, a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayfleet.cluster.lease import Names, free_cluster, hold_cluster, lease_of
from rayfleet.errors import Locked, PrerequisiteMissing
from rayfleet.rollout import verbs
from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.journal.store import Rollout
from rayfleet.rollout.model import Step
from rayfleet.rollout.performer import Task
from rayfleet.rollout.rehearsal import Rehearsal
from rayfleet.rollout.state import Outcome, Result
from rayfleet.waiting import wait_until
from tests.support.rehearsals import create, faults, kinds, leases, make_plan, run
from tests.support.rollout_operator import OPERATOR, OperatorProcess, let_go, operator

pytestmark = pytest.mark.integration

BOB = "bob@lap"
A, B = (Names(name=name, identity=f"ray-{name}") for name in "ab")


@dataclass(frozen=True)
class Place:
    """Where the state folder is."""

    state: Path


@pytest.fixture
def rollout(tmp_path: Path) -> Rollout:
    return create(tmp_path, make_plan(["a"], ["b"], ["c"]))


def outcomes(rollout: Rollout) -> list[Outcome | None]:
    clusters = rollout.state().clusters.values()
    return [each.forward.outcome if each.forward else None for each in clusters]


def asked(rollout: Rollout) -> None:
    """Wait until the first signal has been understood."""
    wait_until(lambda: kinds(rollout)[Kind.REQUEST], what="the request", timeout=60, interval=0.02)


@pytest.mark.parametrize(("number", "by"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_the_first_signal_finishes_what_is_in_hand_and_pauses(
    rollout: Rollout, number: signal.Signals, by: str
) -> None:
    with operator(rollout, "a", Step.STOP) as process:
        process.signal(number)
        asked(rollout)
        let_go(rollout)
        code, text = process.end()
    assert code == 130
    assert by in text
    assert f"invoke rollouts.resume {rollout.id}" in text
    assert outcomes(rollout) == [Outcome.DONE, None, None]
    assert leases(rollout) == []
    assert run(rollout).result is Result.DONE
    assert faults(rollout) == []


def test_the_second_signal_ends_it_at_once_and_it_can_be_resumed(rollout: Rollout) -> None:
    with operator(rollout, "b", Step.STOP) as process:
        process.signal(signal.SIGINT)
        asked(rollout)
        process.signal(signal.SIGINT)
        code, text = process.end()
    assert code == 130
    assert "ended in the middle" in text
    assert f"invoke rollouts.resume {rollout.id}" in text
    assert rollout.records()[-1].kind is Kind.REQUEST
    assert leases(rollout) == ["lease ray-b"]
    assert not rollout.running()
    assert run(rollout).result is Result.DONE
    assert faults(rollout) == []


def test_a_terminal_that_goes_away_pauses_however_often_it_says_so(rollout: Rollout) -> None:
    with operator(rollout, "a", Step.STOP) as process:
        process.signal(signal.SIGHUP)
        asked(rollout)
        process.signal(signal.SIGHUP)
        let_go(rollout)
        code, text = process.end()
    assert code == 130
    assert "the end of the terminal" in text
    assert outcomes(rollout) == [Outcome.DONE, None, None]


def test_a_second_operator_is_refused_and_learns_who_the_first_is(rollout: Rollout) -> None:
    with operator(rollout, "a", Step.STOP) as first:
        second = OperatorProcess(rollout.folder.parent.parent)
        code, text = second.end()
        assert code == 5
        assert f"{OPERATOR}, process {first.pid} on " in text
        assert kinds(rollout)[Kind.BEGUN] == 1
        let_go(rollout)
        assert first.end()[0] == 0
    assert faults(rollout) == []


REQUESTS: dict[str, tuple[Callable[[Rollout], verbs.Answer], int, list[Outcome | None]]] = {
    "pause": (lambda r: verbs.pause(r, by=BOB), 6, [Outcome.DONE, None, None]),
    "abort": (lambda r: verbs.abort(r, by=BOB), 3, [Outcome.DONE, None, None]),
    "skip": (
        lambda r: verbs.skip(r, ["b"], by=BOB),
        0,
        [Outcome.DONE, Outcome.SKIPPED, Outcome.DONE],
    ),
}


@pytest.mark.parametrize("verb", REQUESTS)
def test_another_terminal_steers_a_running_rollout(rollout: Rollout, verb: str) -> None:
    ask, expected, ends = REQUESTS[verb]
    with operator(rollout, "a", Step.STOP) as process:
        assert not ask(rollout).drive
        let_go(rollout)
        code, text = process.end()
    assert code == expected, text
    assert outcomes(rollout) == ends


def test_another_terminal_ends_a_bake(tmp_path: Path) -> None:
    rollout = create(tmp_path, make_plan(["a"], ["b"], bake=3600.0))
    let_go(rollout)
    with operator(rollout, "a", Step.STOP) as process:
        wait_until(lambda: kinds(rollout)[Kind.BAKING], what="the bake", timeout=60, interval=0.02)
        assert not verbs.promote(rollout, by=BOB, full=True).drive
        code, text = process.end()
    assert code == 0, text
    assert faults(rollout) == []


@pytest.mark.parametrize("step", [Step.QUIESCE, Step.STOP, Step.START, Step.JOBS])
def test_a_kill_inside_a_step_is_resumed_by_another_process(rollout: Rollout, step: Step) -> None:
    with operator(rollout, "b", step) as process:
        process.signal(signal.SIGKILL)
        assert process.end()[0] == -signal.SIGKILL
    assert rollout.records()[-1].step is step
    let_go(rollout)
    with operator(rollout, "b", step) as process:
        assert process.end() == (0, "")
    assert faults(rollout) == []


def test_the_lease_of_a_killed_operator_is_reported_and_never_taken(
    rollout: Rollout, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    with operator(rollout, "a", Step.STOP) as process:
        living = lease_of(place, A)
        assert living is not None
        assert not living.stale(time.time())
        with pytest.raises(Locked, match="works on it"), free_cluster(place, A, next_step=""):
            pass
        with pytest.raises(Locked, match="works on it"):
            verbs.unlock(place, rollout)
        process.signal(signal.SIGKILL)
        process.end()
    then = time.time() - 600
    os.utime(tmp_path / "leases" / "ray-a.json", (then, then))
    for held in (
        free_cluster(place, A, next_step=""),
        hold_cluster(place, A, rollout="R2", operator=BOB),
    ):
        with pytest.raises(Locked) as refused, held:
            pass
        text = refused.value.text()
        for word in (rollout.id, OPERATOR, str(process.pid), "10 minutes", "unlock"):
            assert word in text
    assert [each.cluster for each in verbs.unlock(place, rollout)] == ["a"]
    with hold_cluster(place, A, rollout="R2", operator=BOB):
        pass
    assert run(rollout).result is Result.FAILED
    assert outcomes(rollout) == [Outcome.FAILED, None, None]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a tiny disk")


@needs_root
@pytest.mark.parametrize("step", [Step.SNAPSHOT, Step.STOP, Step.START, Step.CLOSE])
def test_a_full_disk_ends_the_run_and_space_mends_it(tmp_path: Path, step: Step) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "rayfleet-test", disk], check=True)
    try:
        rollout = create(disk, make_plan(["a"], ["b"], jobs=0))
        clusters = Rehearsal(tmp_path / "machines", entered=filling(disk, step))
        clusters.prepare(rollout.plan)
        with pytest.raises(PrerequisiteMissing) as refused:
            run(rollout, performer=clusters)
        text = refused.value.text()
        assert "No space left on device" in text
        assert f"invoke rollouts.resume {rollout.id}" in text
        assert rollout.journal.path.read_bytes().endswith(b"\n")
        begun = kinds(rollout)[Kind.INTENT]
        assert begun == sum(sum(clusters.look(name).begun.values()) for name in "ab")
        (disk / "full").unlink()
        assert run(rollout, performer=Rehearsal(tmp_path / "machines")).result is Result.DONE
        assert {clusters.look(name).starts for name in "ab"} == {1}
        assert lease_of(clusters, A) is lease_of(clusters, B) is None
    finally:
        subprocess.run(["umount", disk], check=True)


def filling(disk: Path, step: Step) -> Callable[[Step, Task], None]:
    """Use up the last byte of ``disk``, what is left of the journal's last block too, when
    ``step`` begins."""

    def entered(at: Step, task: Task) -> None:
        if at is not step or (disk / "full").exists():
            return
        with (disk / "full").open("wb", buffering=0) as full, suppress(OSError):
            while full.write(b"x" * 512):
                pass

    return entered

"""Driving a rollout and steering it, on the shipped fakes; and what is refused before a look."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.lease import hold_cluster, lease_of
from rayfleet.console import Console
from rayfleet.errors import Declined, Locked, PartialFailure, UnknownCluster, UsageError
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Fleet
from rayfleet.job.restore.report import NotRestored
from rayfleet.project import Project
from rayfleet.rollout.change import Action, run
from rayfleet.rollout.drive import drive
from rayfleet.rollout.ending import Paused, raise_for
from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.journal.store import Rollout, Rollouts
from rayfleet.rollout.model import Direction, Output, Step
from rayfleet.rollout.performer import Task
from rayfleet.rollout.plan.options import Options
from rayfleet.rollout.rehearsal import Failure, Mishap, Rehearsal
from rayfleet.rollout.restart import Restart, run_restart
from rayfleet.rollout.state import Outcome, Result
from rayfleet.rollout.steer import Steering
from rayfleet.rollout.tell.facts import failures
from tests.support import rehearsals

ROOT = Path(__file__).resolve().parents[3]
A, B = "us-central2", "us-east5"


@dataclass
class Desk:
    """An operator with a state folder of their own, and a rollout of fakes in it."""

    project: Project
    fleet: Fleet
    console: Console = field(default_factory=lambda: Console(out=io.StringIO(), err=io.StringIO()))

    def begin(self) -> Rollout:
        """A rollout of A, then B, on the disk."""
        plan = rehearsals.make_plan([A], [B])
        targets = {
            name: replace(target, identity=self.fleet.clusters[name].identity)
            for name, target in plan.targets.items()
        }
        shown = self.project.shown(self.project.fleet_file)
        plan = replace(plan, fleet=shown, targets=targets)
        return rehearsals.create(self.project.state, plan)

    def fakes(self, failures: Sequence[Failure] = ()) -> Rehearsal:
        return Rehearsal(self.project.state, failures=failures)

    def drive(self, rollout: Rollout, *failures: Failure, as_json: bool = False) -> None:
        drive(
            self.project,
            self.fleet,
            self.console,
            rollout,
            as_json=as_json,
            performer=self.fakes(failures),
        )

    def steering(self, *failures: Failure) -> Steering:
        return Steering(
            project=self.project,
            console=self.console,
            fleet=lambda: self.fleet,
            performer=self.fakes(failures),
        )

    def restart(self, *names: str, **flags: str) -> None:
        wish = Restart(
            clusters=[self.fleet.clusters[name] for name in names],
            options=Options(**flags),  # type: ignore[arg-type]
            command="invoke restart",
            yes=True,
        )
        run_restart(self.project, self.fleet, self.console, wish)

    @property
    def said(self) -> str:
        return str(self.console.err.getvalue())  # type: ignore[attr-defined]

    @property
    def printed(self) -> str:
        return str(self.console.out.getvalue())  # type: ignore[attr-defined]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    fleet_file = ROOT / "infra" / "sandbox.yaml"
    state = tmp_path / "state"
    fleet = load_fleet(fleet_file, root=ROOT, state=state)
    return Desk(project=Project(root=ROOT, fleet_file=fleet_file, state=state), fleet=fleet)


def test_a_rollout_is_driven_to_its_end_and_reported(desk: Desk) -> None:
    rollout = desk.begin()
    desk.drive(rollout)
    assert rollout.state().result is Result.DONE
    assert rehearsals.faults(rollout) == []
    assert f"report: {rollout.folder / 'report.html'}" in desk.said
    assert rollout.id in (rollout.folder / "report.html").read_text()
    assert "done" in (rollout.folder / "report.txt").read_text()
    assert desk.printed == ""


def test_with_json_stdout_has_an_event_per_line_and_the_summary_last(desk: Desk) -> None:
    rollout = desk.begin()
    desk.drive(rollout, as_json=True)
    rows = [json.loads(line) for line in desk.printed.splitlines()]
    assert [row["number"] for row in rows[:-1]] == list(range(1, len(rows)))
    assert rows[-1]["kind"] == "summary"
    assert rows[-1]["result"] == "done"
    assert rows[-1]["report"].endswith("report.html")
    assert set(rows[-1]["clusters"]) == {A, B}


def test_a_ctrl_c_is_not_for_what_a_cluster_in_hand_starts(desk: Desk) -> None:
    rollout, masks = desk.begin(), []

    def entered(step: Step, task: Task) -> None:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    fakes = Rehearsal(desk.project.state, entered=entered)
    drive(desk.project, desk.fleet, desk.console, rollout, as_json=False, performer=fakes)
    assert masks
    assert all({signal.SIGINT, signal.SIGHUP} <= mask for mask in masks)
    assert all(signal.SIGTERM not in mask for mask in masks)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_failure_stops_it_and_a_retry_ends_it_well(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(PartialFailure, match=f"invoke rollouts.retry {rollout.id}") as caught:
        desk.drive(rollout, Failure(cluster=A, step=Step.START))
    assert caught.value.exit_code == 2
    assert (rollout.folder / "report.html").exists()
    assert rollout.state().clusters[B].forward is None
    desk.steering().retry("", [])
    assert rollout.state().result is Result.DONE
    assert rehearsals.leases(rollout) == []


def test_what_is_inconclusive_pauses_until_it_is_promoted(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(Paused, match=r"rollouts\.promote"):
        desk.drive(rollout, Failure(cluster=A, step=Step.GATES, mishap=Mishap.INCONCLUSIVE))
    desk.steering().promote("", full=False)
    assert rollout.state().result is Result.DONE
    assert rehearsals.faults(rollout) == []


def test_a_resume_takes_it_up_by_the_begin_of_its_id_and_only_unless_finished(
    desk: Desk,
) -> None:
    rollout = desk.begin()
    desk.steering().resume(rollout.id[:12])
    assert rollout.state().result is Result.DONE
    with pytest.raises(UsageError, match="is finished: done"):
        desk.steering().resume(rollout.id)


def test_a_failed_one_is_not_resumed_but_tried_again(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(cluster=A, step=Step.STOP))
    with pytest.raises(UsageError, match=f"invoke rollouts.retry {rollout.id}"):
        desk.steering().resume("")


def test_a_way_back_needs_a_yes_and_is_a_success_when_it_is_over(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(cluster=A, step=Step.GATES))
    with pytest.raises(Declined, match=f"rollouts.rollback {rollout.id} --cluster {A} --yes"):
        desk.steering().rollback("", ["us-central*"], yes=False)
    desk.steering().rollback("", [A], yes=True)
    assert f"rolled back: {A}; next: invoke status" in desk.said
    back = rollout.state().clusters[A].back
    assert back is not None
    assert back.outcome is Outcome.DONE
    assert desk.fakes().look(A).digest == rehearsals.OLD
    assert sorted(desk.fakes().look(A).running) == [f"{A}-job0", f"{A}-job1"]


def test_a_way_back_that_fails_is_a_failure(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(cluster=A, step=Step.GATES))
    fails = Failure(cluster=A, step=Step.START, direction=Direction.BACK)
    with pytest.raises(PartialFailure, match="the rollback failed as well"):
        desk.steering(fails).rollback("", [], yes=True)


def test_a_failed_cluster_can_be_left_out_and_the_rest_goes_on(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(cluster=A, step=Step.PREFLIGHT))
    desk.steering().skip("", [A])
    assert "left out" in desk.said
    assert rollout.state().clusters[A].forward.outcome is Outcome.SKIPPED  # type: ignore[union-attr]


def test_leaving_out_what_was_changed_needs_a_yes(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(cluster=A, step=Step.START))
    before = rollout.records()
    with pytest.raises(Declined, match=f"rollouts.skip {rollout.id} --cluster {A} --yes"):
        desk.steering().skip("", [A])
    assert rollout.records() == before
    desk.steering().skip("", [A], yes=True)
    assert f"{A} was changed and may be down" in desk.said
    assert f"invoke jobs.restore --cluster {A} --backup {A}-1" in desk.said


def test_leaving_out_the_last_one_of_a_failed_rollout_says_what_is_lost(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(cluster=A, step=Step.START))
    desk.steering().skip("", [B])
    with pytest.raises(NotRestored, match=f"{A}: {A}-job0, {A}-job1") as caught:
        desk.steering().skip("", [A], yes=True)
    assert caught.value.exit_code == 7


def test_a_rollback_that_loses_jobs_ends_without_them(desk: Desk) -> None:
    class Forgetful(Rehearsal):
        def perform(self, step: Step, task: Task, **more: Any) -> Output:
            output = super().perform(step, task, **more)
            return {**output, "lost": [f"{A}-job0"]} if step is Step.WATCH else output

    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(cluster=A, step=Step.GATES))
    steering = replace(desk.steering(), performer=Forgetful(desk.project.state))
    with pytest.raises(NotRestored, match=f"{A}: {A}-job0") as caught:
        steering.rollback("", [], yes=True)
    assert caught.value.exit_code == 7
    assert f"rolled back: {A}" in desk.said


def _without(desk: Desk, *names: str) -> None:
    """Take clusters out of the fleet file."""
    rest = {name: one for name, one in desk.fleet.clusters.items() if name not in names}
    desk.fleet = replace(desk.fleet, clusters=rest)


def _cut_off(desk: Desk, name: str) -> Rollout:
    """A rollout whose process was killed while it stopped the cluster ``name``."""
    rollout = desk.begin()
    _leave_lease(desk, rollout, name)
    rollout.append(Kind.BEGUN, data={"by": "kay@laptop"})
    rollout.append(Kind.HELD, cluster=name)
    owed = [{"backup": f"{name}-1", "jobs": [f"{name}-job0"], "stopped": [f"{name}-job0"]}]
    for step, output in ((Step.PREFLIGHT, {}), (Step.SNAPSHOT, {"owed": owed}), (Step.VERIFY, {})):
        rollout.append(Kind.INTENT, cluster=name, step=step)
        rollout.append(Kind.DONE, cluster=name, step=step, data=output)
    rollout.append(Kind.INTENT, cluster=name, step=Step.QUIESCE)
    return rollout


@pytest.mark.parametrize("verb", ["abort", "skip"])
def test_a_rollout_whose_cluster_has_left_the_fleet_can_be_ended(desk: Desk, verb: str) -> None:
    """It could neither be resumed nor aborted: the refusal advised the abort."""
    rollout = _cut_off(desk, A)
    _without(desk, A)
    steering = replace(desk.steering(), performer=None)  # the real one
    with pytest.raises(UsageError, match=f"invoke rollouts.skip {rollout.id} --cluster {A}"):
        steering.resume("")
    if verb == "abort":
        with pytest.raises(PartialFailure, match=f"{A} is not in the fleet file any more"):
            steering.abort("")
        with pytest.raises(PartialFailure, match="not in the fleet"):
            raise_for(rollout.plan, rollout.state())
        assert rehearsals.leases(rollout) != [], "its jobs may be in the vault"
        steering.unlock(rollout.id, [], yes=True)
    else:
        with pytest.raises(NotRestored, match=f"{A}: {A}-job0"):
            steering.skip("", [A, B], yes=True)
        assert "should that fail, it stays as it is then" in desk.said
        (failure,) = failures(rollout.plan, rollout.state())
        assert "is not in the fleet file any more" in failure.what
        assert failure.next.startswith(f"put {A} back into infra/sandbox.yaml; then: invoke start")
    assert rollout.state().result in {Result.FAILED, Result.WITHOUT_JOBS}
    assert rehearsals.leases(rollout) == []


def test_a_cluster_that_has_left_the_fleet_and_needs_nothing_keeps_nobody(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(cluster=B, step=Step.PREFLIGHT))
    _without(desk, A)
    desk.steering().retry("", [B])
    assert rollout.state().result is Result.DONE


def test_nothing_is_asked_for_a_cluster_that_has_left_the_fleet(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(cluster=A, step=Step.START))
    _without(desk, A)
    before = rollout.records()
    asks = (
        lambda: desk.steering().retry("", [A]),
        lambda: desk.steering().rollback("", [A], yes=True),
    )
    for ask in asks:
        with pytest.raises(UsageError, match=f"fleet file has no more.*{A}"):
            ask()
    assert rollout.records() == before


def test_a_lease_on_a_cluster_that_has_left_the_fleet_is_ended_by_its_name(desk: Desk) -> None:
    rollout = _cut_off(desk, A)
    _without(desk, A)
    desk.steering().unlock("", [A], yes=True)
    assert rehearsals.leases(rollout) == []
    assert f"put {A} back into it" in desk.said
    with pytest.raises(UnknownCluster):
        desk.steering().unlock("", ["nowhere"], yes=True)


def test_an_abort_of_one_that_nobody_drives_ends_it_here(desk: Desk) -> None:
    rollout = desk.begin()
    with pytest.raises(Declined, match="was aborted"):
        desk.steering().abort("")
    assert rollout.state().result is Result.ABORTED
    assert desk.fakes().look(A).stops == 0


def test_a_pause_of_one_that_nobody_drives_changes_nothing(desk: Desk) -> None:
    rollout = desk.begin()
    desk.steering().pause("")
    assert f"invoke rollouts.resume {rollout.id}" in desk.said
    assert rollout.records() == ()


def test_a_cluster_that_it_does_not_have_is_refused_with_what_it_has(desk: Desk) -> None:
    desk.begin()
    with pytest.raises(UnknownCluster, match=f"2 clusters: {A}, {B}"):
        desk.steering().retry("", ["europe-*"])


def test_another_fleet_is_refused_before_anything_is_touched(desk: Desk) -> None:
    rollout = desk.begin()
    desk.project = replace(desk.project, fleet_file=ROOT / "infra" / "fleet.yaml")
    with pytest.raises(UsageError, match=r"INVOKE_FLEET=infra/sandbox.yaml invoke rollouts.resume"):
        desk.drive(rollout)
    assert rollout.records() == ()


@pytest.mark.parametrize("verb", ["retry", "rollback", "promote"])
def test_nothing_is_asked_of_a_rollout_of_another_fleet(desk: Desk, verb: str) -> None:
    """The request was in the journal before the refusal."""
    rollout = desk.begin()
    with pytest.raises(PartialFailure):
        desk.drive(rollout, Failure(step=Step.START, cluster=A))
    before = rollout.records()
    other = replace(desk.project, fleet_file=ROOT / "infra" / "fleet.yaml")
    steering = replace(desk.steering(), project=other)
    asks = {
        "retry": lambda: steering.retry(rollout.id, []),
        "rollback": lambda: steering.rollback(rollout.id, [], yes=True),
        "promote": lambda: steering.promote(rollout.id, full=False),
    }
    with pytest.raises(UsageError, match="another fleet"):
        asks[verb]()
    assert rollout.records() == before


def test_a_cluster_that_has_left_the_fleet_is_named(desk: Desk) -> None:
    rollout = desk.begin()
    rest = {name: one for name, one in desk.fleet.clusters.items() if name != B}
    desk.fleet = replace(desk.fleet, clusters=rest)
    with pytest.raises(UsageError, match=B):
        desk.drive(rollout)


def test_a_lease_of_a_dead_rollout_refuses_restart_start_and_stop(desk: Desk) -> None:
    rollout = desk.begin()
    _leave_lease(desk, rollout, A)
    with pytest.raises(Locked, match=f"invoke rollouts.resume {rollout.id}"):
        desk.restart(A, B)
    _leave_lease(desk, rollout, B)
    with pytest.raises(Locked, match=f"{A}, {B} are part of unfinished rollouts"):
        desk.restart(A, B)
    from rayfleet.cluster.lifecycle import Lifecycle

    life = Lifecycle(desk.project, desk.fleet, desk.console)
    clusters = [desk.fleet.clusters[A]]
    for wanted in (Action.START, Action.STOP):
        with pytest.raises(Locked):
            run(life, clusters, wanted, dry_run=True, yes=True, parallel=1)


def test_leases_are_ended_only_after_a_yes_and_are_told(desk: Desk) -> None:
    rollout = desk.begin()
    _leave_lease(desk, rollout, A)
    _leave_lease(desk, rollout, B)
    with pytest.raises(UsageError, match="neither a rollout nor a cluster"):
        desk.steering().unlock("", [], yes=True)
    with pytest.raises(Declined, match=f"invoke rollouts.unlock --cluster {A} --yes"):
        desk.steering().unlock("", [A], yes=False)
    desk.steering().unlock("", [A], yes=True)
    assert lease_of(desk.project, desk.fleet.clusters[A]) is None
    assert f"{A} is released" in desk.said
    desk.steering().unlock(rollout.id, [], yes=True)
    assert rehearsals.leases(rollout) == []
    desk.steering().unlock(rollout.id, [], yes=True)
    assert "no rollout has any of them" in desk.said


def test_a_lease_of_a_rollout_that_is_gone_can_be_ended_too(desk: Desk) -> None:
    cluster = desk.fleet.clusters[A]
    gone = "20200101T000000Z-0000"
    with (
        hold_cluster(desk.project, cluster, rollout=gone, operator="kay@laptop"),
        pytest.raises(Locked),
    ):
        desk.steering().unlock("", [A], yes=True)
    desk.steering().unlock("", [A], yes=True)
    assert lease_of(desk.project, cluster) is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [({"waves": "0"}, "--waves 0"), ({"parallel": "x"}, "--parallel x"), ({}, "update-configs")],
)
def test_what_makes_no_sense_makes_no_rollout(desk: Desk, flags: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        desk.restart(A, **flags)
    assert Rollouts(desk.project.state).all() == ()
    assert not desk.project.state.exists()


def _leave_lease(desk: Desk, rollout: Rollout, name: str) -> None:
    """As a process that was killed leaves it."""
    cluster = desk.fleet.clusters[name]
    with hold_cluster(desk.project, cluster, rollout=rollout.id, operator="kay@laptop"):
        pass

"""Which gates a fleet has, and how they are asked; the subject's connection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import GATES, Fleet, GatePolicy
from rayfleet.rollout.gates.chosen import gates_for, times_for
from rayfleet.rollout.gates.command import Command
from rayfleet.rollout.gates.gate import GateTimes
from rayfleet.rollout.gates.probe import Probe
from rayfleet.rollout.gates.run import run_gates
from rayfleet.rollout.gates.subject import Subject, Wanted
from tests.unit.rollout.gates.fakes import (
    CLUSTER,
    DIGEST,
    FakeHead,
    FakeRay,
    config_of,
    node_row,
    subject_of,
)

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    loaded = load_fleet(ROOT / "infra" / "sandbox.yaml", root=ROOT, state=tmp_path)
    return replace(loaded, rollout=replace(loaded.rollout, gates={}))


def with_gates(fleet: Fleet, gates: dict[str, GatePolicy]) -> Fleet:
    return replace(fleet, rollout=replace(fleet.rollout, gates=gates))


def test_every_fleet_has_the_gates_that_its_file_may_name(fleet: Fleet) -> None:
    gates = gates_for(fleet, root=ROOT)
    assert tuple(gate.name for gate in gates) == GATES
    assert set(times_for(fleet)) == set(GATES)
    # What a gate needs is a gate before it.
    for index, gate in enumerate(gates):
        assert set(gate.needs) <= set(GATES[:index])


def test_gates_of_the_fleet_come_last_and_others_can_be_left_out(fleet: Fleet) -> None:
    own = GatePolicy(command=("scripts/check.sh", "--quick"))
    gates = gates_for(
        with_gates(fleet, {"own": own, "probe": GatePolicy(enabled=False)}), root=ROOT
    )
    assert [gate.name for gate in gates] == [*GATES[:-1], "own"]
    (last,) = [gate for gate in gates if isinstance(gate, Command)]
    assert (last.command, last.root) == (("scripts/check.sh", "--quick"), ROOT)


def test_the_probe_runs_what_the_file_says(fleet: Fleet) -> None:
    changed = with_gates(fleet, {"probe": GatePolicy(run="python check.py")})
    (probe,) = [gate for gate in gates_for(changed, root=ROOT) if isinstance(gate, Probe)]
    assert probe.entrypoint == "python check.py"


def test_each_cluster_gets_gates_of_its_own(fleet: Fleet) -> None:
    first, second = gates_for(fleet, root=ROOT), gates_for(fleet, root=ROOT)
    assert first[-1] is not second[-1]


def test_times_of_the_file_replace_only_what_it_names(fleet: Fleet) -> None:
    changed = with_gates(
        fleet, {"workers": GatePolicy(timeout=1800.0, successes=2), "own": GatePolicy()}
    )
    times = times_for(changed)
    assert times["workers"] == GateTimes(interval=1.0, timeout=1800.0, successes=2)
    assert times["ssh"] == GateTimes()


def test_a_cluster_that_is_well_passes_every_gate_in_one_round_but_for_the_job(
    fleet: Fleet,
) -> None:
    ray = FakeRay(
        nodes=[node_row("head_default", head=True), node_row("worker")], statuses=["SUCCEEDED"]
    )
    head = FakeHead(ray)
    config = config_of({"worker": 1})
    told: list[str] = []
    subject = subject_of(head=head, config=config, before={"worker": 1}, vm=DIGEST)
    output = run_gates(
        gates_for(fleet, root=ROOT), subject, times=times_for(fleet), narrate=told.append
    )
    assert list(output["passed"]) == list(GATES)  # type: ignore[call-overload]
    assert (output["workers"], output["ray"]) == ({"worker": 1}, "2.60.0")
    assert len(told) == len(GATES) + 1
    # Each was asked once, and nothing twice.
    questions = [call for call in ray.calls if "/api/jobs/" not in call]
    assert len(questions) == len(set(questions)) == 5


def test_a_connection_that_was_lost_is_opened_again() -> None:
    opened: list[FakeHead] = []

    def connect() -> FakeHead:
        opened.append(FakeHead(FakeRay()))
        return opened[-1]

    wanted = Wanted(rollout="r1", cluster=CLUSTER, config=config_of({}))
    with Subject(wanted, connect) as subject:  # type: ignore[arg-type]
        assert subject.session()
        subject.refresh()
        assert subject.session()
        assert len(opened) == 1
        opened[0].alive = False
        subject.refresh()
        assert subject.session()
        assert len(opened) == 2
        assert opened[0].closed == 1
    assert opened[1].closed == 1

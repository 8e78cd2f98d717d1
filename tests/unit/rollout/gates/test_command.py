"""A fleet's own gate: a real program, its exit code, its environment, its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rayfleet.errors import Unreachable
from rayfleet.process import Finished
from rayfleet.rollout.gates.command import Command
from rayfleet.rollout.gates.gate import GateTimes, Reading, Verdict
from rayfleet.rollout.gates.run import read_gate, run_gates
from rayfleet.rollout.performer import Inconclusive
from rayfleet.waiting import wait_until
from tests.support.processes import runs
from tests.unit.job.canned import FakeClock
from tests.unit.rollout.gates.fakes import DIGEST, subject_of

QUICK = {"own": GateTimes(interval=0.02, timeout=30.0)}


def own(folder: Path, script: str, *words: str) -> Command:
    program = folder / "check.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Command(name="own", command=("./check.sh", *words), root=folder)


def ended(gate: Command) -> Reading:
    """What it says once it has ended."""

    def look() -> Reading | None:
        reading = read_gate(gate, subject_of())
        return None if reading.detail == "the program has not ended yet" else reading

    return wait_until(look, what="the program", timeout=60, interval=0.02)


def test_exit_code_0_is_yes_with_the_last_line(tmp_path: Path) -> None:
    assert ended(own(tmp_path, "echo one; echo 3 of 3 shards")) == Reading(
        Verdict.PASS, "3 of 3 shards"
    )
    assert ended(own(tmp_path, "true")) == Reading(Verdict.PASS, "exit code 0")


def test_exit_code_75_is_not_yet(tmp_path: Path) -> None:
    assert ended(own(tmp_path, "echo 1 of 3; exit 75")) == Reading(
        Verdict.NOT_YET, "exit code 75: 1 of 3"
    )


@pytest.mark.parametrize("script", ["echo broken >&2; exit 1", "echo broken; kill -9 $$"])
def test_any_other_end_is_no(tmp_path: Path, script: str) -> None:
    reading = ended(own(tmp_path, script))
    assert reading.verdict is Verdict.FAIL
    assert reading.detail.endswith(": broken")


def test_a_secret_that_it_prints_is_not_told(tmp_path: Path) -> None:
    reading = ended(own(tmp_path, "echo API_TOKEN=hunter2secret is wrong; exit 1"))
    assert "hunter2secret" not in reading.detail


def test_it_finds_the_cluster_in_its_environment_and_runs_in_the_project(tmp_path: Path) -> None:
    script = 'env | grep ^RAYFLEET_ | sort; echo "PWD=$PWD"; echo "$1"'
    ended(own(tmp_path, f"({script}) > told", "two words"))
    assert (tmp_path / "told").read_text().splitlines() == [
        "RAYFLEET_CLUSTER=us-east5",
        "RAYFLEET_HEAD=10.0.0.1",
        f"RAYFLEET_IMAGE=host/repo/name:tag@{DIGEST}",
        "RAYFLEET_REGION=us-east5",
        "RAYFLEET_ROLLOUT=r1",
        "RAYFLEET_ZONE=us-east5-b",
        f"PWD={tmp_path}",
        "two words",
    ]


def test_a_program_of_the_path_is_found_and_one_that_is_missing_is_a_no(tmp_path: Path) -> None:
    there = Command(name="own", command=("true",), root=tmp_path)
    assert ended(there).verdict is Verdict.PASS
    missing = Command(name="own", command=("no-such-program",), root=tmp_path)
    reading = read_gate(missing, subject_of())
    assert (reading.verdict, reading.detail) == (
        Verdict.FAIL,
        "no-such-program is not installed",
    )


def test_it_is_asked_again_until_it_says_yes(tmp_path: Path) -> None:
    gate = own(tmp_path, "echo x >> tries; [ $(wc -l < tries) -ge 3 ] || exit 75")
    run_gates([gate], subject_of(), times=QUICK, narrate=lambda text: None)
    assert (tmp_path / "tries").read_text() == "x\nx\nx\n"


@dataclass
class Told:
    """A program that ends at once, or not at all."""

    code: int | None
    stopped: bool = False

    def poll(self) -> Finished | None:
        """How it ended."""
        return (
            None if self.code is None else Finished(argv=("x",), code=self.code, tail=("2 of 3",))
        )

    def stop(self) -> None:
        """Remember it."""
        self.stopped = True


def test_not_yet_to_the_end_is_a_failure_although_it_runs_just_then(tmp_path: Path) -> None:
    programs = [Told(75), Told(75), Told(None)]
    left = iter(programs)
    gate = Command(
        name="own",
        command=("x",),
        root=tmp_path,
        start=lambda *words, **options: next(left),  # type: ignore[arg-type, return-value]
    )
    times = {"own": GateTimes(interval=1.0, timeout=5.0)}
    with pytest.raises(Unreachable, match="did not open within 5 s: exit code 75: 2 of 3"):
        run_gates([gate], subject_of(), times=times, narrate=lambda text: None, clock=FakeClock())
    assert [program.stopped for program in programs] == [False, False, True]


def test_a_program_that_does_not_end_is_no_answer_and_is_ended(tmp_path: Path) -> None:
    gate = own(tmp_path, "echo $$ > pid; exec sleep 600")
    times = {"own": GateTimes(interval=0.02, timeout=0.5)}
    with pytest.raises(Inconclusive, match="the program has not ended yet"):
        run_gates([gate], subject_of(), times=times, narrate=lambda text: None)
    pid = (tmp_path / "pid").read_text().strip() if (tmp_path / "pid").exists() else ""
    wait_until(lambda: not (pid and runs(int(pid))), what="its end", timeout=30, interval=0.02)

"""``rollout:`` of the fleet file: what is read, and every way in which it can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import (
    GatePolicy,
    Notify,
    NotifyKind,
    OnFailure,
    RolloutPolicy,
    Unhealthy,
)
from tests.unit.fleet.conftest import REPOSITORY, Place

ORDER = "order: [us-west4]"  # line 29 of the good file


def with_rollout(place: Place, text: str) -> None:
    place.edit({ORDER: f"{ORDER}\n  {text}"})


def test_a_fleet_that_says_little_gets_careful_defaults(place: Place) -> None:
    assert place.load().rollout == RolloutPolicy(
        order=("us-west4",),
        waves=(1, "25%", "100%"),
        parallel=2,
        per_region=1,
        max_failures=0,
        max_untouched=0,
        on_failure=OnFailure.STOP,
        unhealthy=Unhealthy.FAIL,
        bake=600.0,
        gates={},
        notify=None,
    )


def test_everything_that_may_be_written_is_read(place: Place) -> None:
    program = place.root / "scripts" / "check.sh"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with_rollout(
        place,
        """parallel: 4
  parallel_per_region: 0
  max_failures: 1
  max_untouched: 2
  on_failure: rollback-all
  unhealthy: repair
  bake: 1h
  gates:
    workers: {interval: 10s, timeout: 30m, successes: 2}
    autoscaler: {enabled: false}
    probe: {run: "python -c 'print(\\"${HOME} {x}\\")'"}
    errors-in-logs: {command: [scripts/check.sh, "--for={cluster}"], timeout: 90s}
  notify: {kind: slack, url_env: RAYFLEET_WEBHOOK}""",
    )
    rollout = place.load().rollout
    assert (rollout.parallel, rollout.per_region) == (4, 0)
    assert (rollout.max_failures, rollout.max_untouched) == (1, 2)
    assert (rollout.on_failure, rollout.unhealthy) == (OnFailure.ROLLBACK_ALL, Unhealthy.REPAIR)
    assert rollout.bake == 3600.0
    assert rollout.gates == {
        "workers": GatePolicy(interval=10.0, timeout=1800.0, successes=2),
        "autoscaler": GatePolicy(enabled=False),
        "probe": GatePolicy(run="python -c 'print(\"${HOME} {x}\")'"),
        "errors-in-logs": GatePolicy(timeout=90.0, command=("scripts/check.sh", "--for={cluster}")),
    }
    assert rollout.notify == Notify(kind=NotifyKind.SLACK, url_env="RAYFLEET_WEBHOOK")


def test_no_bake_at_all_is_zero_seconds(place: Place) -> None:
    with_rollout(place, "bake: 0s")
    assert place.load().rollout.bake == 0.0


WRONG = {
    "no clusters at once": ("parallel: 0", "parallel: 0 is too few; write 1 or more"),
    "less than none in a region": (
        "parallel_per_region: -1",
        "parallel_per_region: -1 is too few; write 0 or more",
    ),
    "a negative budget": ("max_failures: -1", "max_failures: -1 is too few; write 0 or more"),
    "a percentage as a budget": (
        "max_untouched: 10%",
        "max_untouched: expected a whole number, found the text '10%'; write max_untouched: 0",
    ),
    "an unknown policy": (
        "on_failure: rollback",
        "on_failure: 'rollback' is unknown; write 'stop', 'rollback-failed' or 'rollback-all'",
    ),
    "an unknown word for the unhealthy": (
        "unhealthy: ignore",
        "unhealthy: 'ignore' is unknown; write 'fail', 'skip' or 'repair'",
    ),
    "a bake without a unit": (
        "bake: 10",
        "bake: '10' is no duration; write a count and s, m or h, such as 30s",
    ),
    "a bake in days": ("bake: 1d", "bake: '1d' is no duration; write a count and s, m or h"),
    "a bake of digits that are none": ("bake: ²m", "bake: '²m' is no duration"),
    "no bake written": ("bake:", "bake: empty; write 30s"),
    "a gate that nobody knows": (
        "gates: {worker: {timeout: 1m}}",
        "gates.worker: there is no gate 'worker' and it has no command; did you mean workers?",
    ),
    "a key that no gate has": (
        "gates: {workers: {time: 1m}}",
        "gates.workers.time: unknown key; did you mean timeout?",
    ),
    "a gate that is nothing": (
        "gates: {workers: }",
        "gates.workers: expected a mapping, found nothing",
    ),
    "an interval of nothing": (
        "gates: {workers: {interval: 0s}}",
        "gates.workers.interval: 0s is no time at all; write 1s or more",
    ),
    "a timeout in words": (
        "gates: {workers: {timeout: a while}}",
        "gates.workers.timeout: 'a while' is no duration",
    ),
    "an interval above the timeout": (
        "gates: {workers: {interval: 2m, timeout: 1m}}",
        "gates.workers.timeout: the interval 2m is above the timeout; write a longer timeout",
    ),
    "no successes": (
        "gates: {workers: {successes: 0}}",
        "gates.workers.successes: 0 is too few; write 1 or more",
    ),
    "a gate that must not be off": (
        "gates: {health: {enabled: false}}",
        "gates.health.enabled: cannot be turned off",
    ),
    "a job for a gate that runs none": (
        "gates: {workers: {run: echo}}",
        "gates.workers.run: only the gate probe runs a job",
    ),
    "a probe of nothing": ("gates: {probe: {run: ' '}}", "gates.probe.run: empty; write an"),
    "a command of something else than words": (
        "gates: {own: {command: [true]}}",
        "gates.own.command.0: expected text, found true; quote it",
    ),
    "a command under a taken name": (
        'gates: {ssh: {command: ["true"]}}',
        "gates.ssh.command: ssh is a gate of rayfleet's; write the command under a name",
    ),
    "a command without a program": (
        "gates: {own: {command: []}}",
        "gates.own.command: empty; write a program and its arguments",
    ),
    "a command that is a line": (
        "gates: {own: {command: make check}}",
        "gates.own.command: expected a list, found the text 'make check'; "
        "write command: [scripts/check.sh]",
    ),
    "a program that is not there": (
        "gates: {own: {command: [scripts/none]}}",
        "gates.own.command.0: there is no file 'scripts/none' in the project",
    ),
    "a program outside the project": (
        "gates: {own: {command: [../none]}}",
        "gates.own.command.0: there is no file '../none' in the project",
    ),
    "a program that cannot be run": (
        "gates: {own: {command: [docker/Dockerfile.cluster]}}",
        "gates.own.command.0: docker/Dockerfile.cluster is not executable; "
        "run: chmod +x docker/Dockerfile.cluster",
    ),
    "a gate of a strange name": (
        'gates: {Own Gate: {command: ["true"]}}',
        "gates.Own Gate: 'Own Gate' is no name of a gate",
    ),
    "an unknown webhook": (
        "notify: {kind: teams, url_env: HOOK}",
        "notify.kind: 'teams' is unknown; write 'slack', 'discord' or 'json'",
    ),
    "a webhook without its variable": (
        "notify: {kind: json}",
        "notify.url_env: missing; write url_env: RAYFLEET_WEBHOOK",
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_of_the_rollout_is_reported_with_its_line(
    place: Place, text: str, expected: str
) -> None:
    with_rollout(place, text)
    problems = place.problems()
    assert problems[0].startswith(f"30: rollout.{expected}")
    assert len(problems) == 1


def test_the_url_of_a_webhook_in_the_file_is_refused_and_not_shown(place: Place) -> None:
    with_rollout(place, "notify: {kind: slack, url_env: 'https://hooks.example/T0/secret'}")
    (problem,) = place.problems()
    assert problem.startswith("30: rollout.notify.url_env: not the name of an environment variable")
    assert "secret" not in problem


def test_the_production_fleet_bakes_and_has_patience_with_slices(tmp_path: Path) -> None:
    fleet = load_fleet(REPOSITORY / "infra" / "fleet.yaml", root=REPOSITORY, state=tmp_path)
    assert (fleet.rollout.parallel, fleet.rollout.per_region) == (2, 1)
    assert fleet.rollout.bake == 600.0
    assert fleet.rollout.gates["workers"].timeout == 1800.0


def test_the_sandbox_fleet_is_quick(tmp_path: Path) -> None:
    fleet = load_fleet(REPOSITORY / "infra" / "sandbox.yaml", root=REPOSITORY, state=tmp_path)
    assert fleet.rollout.bake == 2.0
    assert fleet.rollout.gates["workers"].interval == 1.0

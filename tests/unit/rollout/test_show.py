"""What an operator reads of a plan before saying yes."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from rayfleet.console import Console
from rayfleet.rollout.model import (
    Change,
    OnFailure,
    Plan,
    PlannedJob,
    Settings,
    Skipped,
    Unhealthy,
    Wave,
)
from rayfleet.rollout.plan.document import decode_plan
from rayfleet.rollout.plan.show import plan_lines, question, show_plan
from tests.support.rollout_examples import make_job, make_plan, make_target


def _plan(*, jobs: tuple[PlannedJob, ...] = (), **settings: Any) -> Plan:
    first = make_target("us-east5-a", jobs)
    second = make_target("eu-west4-a", [make_job("s9", owner="lee")] if jobs else ())
    waves = (
        Wave(name="canary", clusters=("us-east5-a",), canary=True),
        Wave(name="wave 1", clusters=("eu-west4-a",)),
    )
    return make_plan(waves, (first, second), settings=Settings(**settings))


def _with(plan: Plan, **changes: Any) -> Plan:
    target = replace(plan.targets["us-east5-a"], **changes)
    return replace(plan, targets={**plan.targets, "us-east5-a": target})


def _text(plan: Plan) -> str:
    return "\n".join(plan_lines(plan))


JOBS = (make_job("s1"), make_job("s2"))


def test_the_plan_says_what_happens_where_and_in_which_order() -> None:
    text = _text(_plan(jobs=JOBS, bake=600.0, parallel=3, per_region=1))
    assert "restart 2 clusters of infra/fleet.yaml, 2 waves, 3 at once, 1 per region" in text
    assert "1. us-east5-a, a canary\n2. eu-west4-a\n" in text
    assert "project hai-gcp-models, zone us-east5-b" in text
    assert "head ray-ml-us-east5-a-head-7f3a, workers 8 v6e-128" in text
    assert "image sha256:3c9a3c9a3c9a -> sha256:d41ed41ed41e" in text
    assert "job s1 of ana, RUNNING: python train.py" in text
    assert "jobs: 3 jobs saved, stopped and given back (ana 2, lee 1)" in text
    assert "bake: 10 min" in text
    assert "takes about 9 min" in text
    assert text.startswith("rollout 20261121T163000Z-4f2a: ")


def test_killing_jobs_is_said_loudly_counted_and_by_owner() -> None:
    plan = _plan(jobs=JOBS, preserve_jobs=False)
    text = _text(plan)
    assert "KILLS job s1 of ana" in text
    assert "--no-preserve-jobs: NO JOB IS KEPT. This kills 3 jobs (ana 2, lee 1)" in text
    assert question(plan) == "Restart 2 clusters and KILL 3 jobs (ana 2, lee 1)?"
    unknown = _with(plan, jobs=(), jobs_problem="the GCS is silent")
    assert "and whatever runs on us-east5-a, which cannot be listed" in _text(unknown)
    assert "whatever runs on us-east5-a" in question(unknown)
    assert "and none runs now" in _text(_plan(preserve_jobs=False))


def test_jobs_that_cannot_be_listed_and_what_cannot_be_kept_is_said() -> None:
    plan = _with(_plan(jobs=JOBS), jobs_problem="timed out", unpreservable=("driver 01 (pid 7)",))
    text = _text(plan)
    assert "its jobs cannot be listed: timed out" in text
    assert "cannot be preserved: driver 01 (pid 7)" in text
    assert "cannot be preserved: 1 thing that nobody submitted as a job" in text


@pytest.mark.parametrize(
    ("unhealthy", "said"),
    [
        (Unhealthy.FAIL, "WILL FAIL before it is touched: it has no head\n    --unhealthy repair"),
        (Unhealthy.SKIP, "will be skipped: it has no head"),
        (Unhealthy.REPAIR, "will be repaired, with the jobs of its latest backup: it has no head"),
    ],
)
def test_a_head_that_is_not_healthy_is_said_with_what_follows(
    unhealthy: Unhealthy, said: str
) -> None:
    assert said in _text(_with(_plan(unhealthy=unhealthy), trouble="it has no head"))


NO_BACKUP = "there is no complete backup of us-east5-a: none was ever kept here"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, f"WILL FAIL before it is touched: it has no head; {NO_BACKUP}\n"),
        ({}, "--unhealthy repair --no-preserve-jobs restarts it without its jobs"),
        ({"preserve_jobs": False}, "will be repaired, without its jobs: it has no head"),
        ({"unhealthy": Unhealthy.FAIL}, "--unhealthy repair --no-preserve-jobs restarts it"),
        ({"unhealthy": Unhealthy.SKIP}, "will be skipped: it has no head\n"),
    ],
)
def test_a_head_to_be_repaired_whose_jobs_nobody_kept_is_said(
    settings: dict[str, Any], said: str
) -> None:
    plan = _plan(**({"unhealthy": Unhealthy.REPAIR} | settings))
    assert said in _text(_with(plan, trouble="it has no head", backup_problem=NO_BACKUP))


def test_what_is_known_to_fail_or_to_have_no_way_back_is_said() -> None:
    plan = _with(_plan(), image_problem="us-east5 does not have it", previous=False)
    text = _text(plan)
    assert "WILL FAIL before it is touched: us-east5 does not have it" in text
    assert "no way back: what us-east5-a now runs with is not known here" in text
    # One that only starts goes back by a stop.
    started = _with(plan, change=Change.START)
    assert "no way back" not in _text(started)
    assert question(started) == "Restart 1 cluster and start 1 cluster?"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "with the first one, nothing new is begun, then it ends; what is done stays"),
        ({"max_failures": 2, "on_failure": OnFailure.ROLLBACK_ALL}, "more than 2 clusters failed"),
        ({"on_failure": OnFailure.ROLLBACK_FAILED}, "the failed ones go back"),
        ({"max_untouched": 1}, "or more than 1 failed before anything of them was changed"),
    ],
)
def test_the_failure_budget_is_said_in_words(settings: dict[str, Any], said: str) -> None:
    assert said in _text(_plan(**settings))


def test_one_cluster_is_called_by_its_name() -> None:
    target = make_target("us-east5-a")
    plan = make_plan((Wave(name="w", clusters=("us-east5-a",)),), (target,))
    assert question(plan) == "Restart us-east5-a?"


def test_with_nothing_to_do_it_says_what_is_left_alone_and_no_more() -> None:
    skipped = (Skipped(cluster="us-east5-a", why="it runs the wanted image and config"),)
    plan = replace(make_plan((), (), estimate=None), skipped=skipped)
    assert list(plan_lines(plan)) == [
        "left alone: us-east5-a, it runs the wanted image and config",
        "nothing to do",
    ]


def test_nothing_that_people_wrote_steers_the_terminal() -> None:
    evil = make_job("s1", owner="ann\n\x1b[2Jroot", entrypoint="echo \x1b]0;title\x07\rhidden")
    for line in plan_lines(_with(_plan(), jobs=(evil,), unpreservable=("actor \x1b[1A",))):
        assert line.isprintable()


def test_as_json_it_is_one_document_that_is_the_plan() -> None:
    plan = _plan(jobs=JOBS)
    console = Console(out=io.StringIO(), err=io.StringIO())
    show_plan(plan, console, as_json=True)
    printed = console.out.getvalue()  # type: ignore[attr-defined]
    assert decode_plan(printed) == plan
    assert json.loads(printed)["targets"]["us-east5-a"]["jobs"][0]["owner"] == "ana"
    assert console.err.getvalue() == ""  # type: ignore[attr-defined]

"""A plan comes back from its document as it was, or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rayfleet.rollout.model import Change, Plan, PlannedJob, Settings, Skipped, Target, Wave
from rayfleet.rollout.plan.document import NotAPlan, decode_plan, encode_plan

TEXT = st.text(st.characters(codec=None), max_size=12)
TARGET = Target(
    cluster="us-east5",
    identity="marin-us-east5",
    project="hai",
    region="us-east5",
    zone="us-east5-b",
    change=Change.RESTART,
    why="asked for",
    workers={"v6e-128": 3},
    jobs=(PlannedJob(id="a", owner="kay", status="RUNNING", entrypoint="python a.py"),),
    unpreservable=("driver 01000000",),
    estimate=62.5,
)
PLAN = Plan(
    id="20261121T163000Z-4f2a",
    fleet="infra/sandbox.yaml",
    created=datetime(2026, 11, 21, 16, 30, tzinfo=UTC),
    operator="kay@laptop",
    command="invoke restart --cluster us-east5",
    tool="0.5.0",
    settings=Settings(bake=600.0),
    waves=(Wave(name="canary", clusters=("us-east5",), canary=True),),
    targets={"us-east5": TARGET},
    skipped=(Skipped(cluster="us-west4", why="it is on target"),),
    estimate=62.5,
)


def test_a_plan_comes_back_as_it_was() -> None:
    assert decode_plan(encode_plan(PLAN)) == PLAN


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(text=TEXT, seconds=st.floats(0, 1e9), count=st.integers(0, 10**6))
def test_any_text_and_number_comes_back(text: str, seconds: float, count: int) -> None:
    job = PlannedJob(id=text, owner=text, status=text, entrypoint=text)
    target = replace(TARGET, why=text, jobs=(job, job), workers={text: count}, estimate=seconds)
    plan = replace(PLAN, targets={"us-east5": target}, settings=Settings(bake=seconds))
    encode_plan(plan).encode("ascii")
    assert decode_plan(encode_plan(plan)) == plan


def test_the_time_is_kept_in_utc_and_needs_a_zone() -> None:
    east = datetime(2026, 11, 21, 18, 30, tzinfo=timezone(timedelta(hours=2)))
    assert decode_plan(encode_plan(replace(PLAN, created=east))).created == PLAN.created
    with pytest.raises(ValueError, match="time zone"):
        encode_plan(replace(PLAN, created=datetime(2026, 1, 1)))


def _document(**changes: Any) -> str:
    return json.dumps({**json.loads(encode_plan(PLAN)), **changes})


def _target(**changes: Any) -> str:
    document = json.loads(encode_plan(PLAN))
    document["targets"]["us-east5"] |= changes
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (lambda: "{", "no JSON"),
        (lambda: "[" * 100_000, "no JSON"),
        (lambda: "[]", "something else"),
        (lambda: _document(kind="a backup"), "something else"),
        (lambda: _document(format=2), "its format is 2"),
        (lambda: _document(format=True), "unknown"),
        (lambda: _document(created="2026-01-01T00:00:00"), "no time zone"),
        (lambda: _document(created="yesterday"), "no time"),
        (lambda: _document(more=1), "has more"),
        (lambda: _document(waves=[]), "waves do not name"),
        (lambda: _document(settings={"parallel": "2"}), "settings, parallel: no int"),
        (lambda: _document(settings={"parallel": True}), "settings, parallel: no int"),
        (lambda: _document(settings={"on_failure": "panic"}), "panic is none of stop"),
        (lambda: _target(previous=1), "us-east5, previous: no bool"),
        (lambda: _target(jobs={}), "us-east5, jobs: no list"),
        (lambda: _target(estimate="1"), "us-east5, estimate: no float"),
        (lambda: encode_plan(PLAN).replace('"operator"', '"operators"'), "lacks operator"),
    ],
)
def test_what_is_no_plan_is_refused_and_the_place_is_named(
    text: Callable[[], str], why: str
) -> None:
    with pytest.raises(NotAPlan, match=why):
        decode_plan(text())


def test_fields_that_came_later_take_their_defaults() -> None:
    document = json.loads(encode_plan(PLAN))
    del document["settings"]["unhealthy"], document["targets"]["us-east5"]["unpreservable"]
    plan = decode_plan(json.dumps(document))
    assert plan.settings == PLAN.settings
    assert plan.targets["us-east5"].unpreservable == ()


def test_a_thousand_clusters_take_little_time() -> None:
    targets = {f"c{n}": replace(TARGET, cluster=f"c{n}") for n in range(1000)}
    plan = replace(PLAN, targets=targets, waves=(Wave(name="all", clusters=tuple(targets)),))
    begun = time.process_time()
    assert decode_plan(encode_plan(plan)) == plan
    assert time.process_time() - begun < 1.0

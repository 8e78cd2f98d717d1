"""Which rollouts there are and how one stands, as an operator reads it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rayfleet.console import Console
from rayfleet.errors import UsageError
from rayfleet.project import Project
from rayfleet.rollout.engine import Engine
from rayfleet.rollout.journal.records import Kind
from rayfleet.rollout.journal.store import Rollout, myself
from rayfleet.rollout.listing import MOST, show_rollout, show_rollouts
from rayfleet.rollout.model import Step
from rayfleet.rollout.rehearsal import Failure, Mishap
from tests.support import rehearsals


def _project(state: Path) -> Project:
    return Project(root=state, fleet_file=state / "fleet.yaml", state=state)


def _begin(state: Path, first: str = "a", **settings: Any) -> Rollout:
    return rehearsals.create(state, rehearsals.make_plan([first], [f"{first}2"], **settings))


def _list(state: Path, *, every: bool = False, as_json: bool = False) -> tuple[str, str]:
    console = Console(out=io.StringIO(), err=io.StringIO())
    show_rollouts(_project(state), console, every=every, as_json=as_json)
    return console.out.getvalue(), console.err.getvalue()  # type: ignore[attr-defined]


def _show(state: Path, rollout_id: str = "", *, html: str = "", as_json: bool = False) -> str:
    console = Console(out=io.StringIO(), err=io.StringIO())
    show_rollout(_project(state), console, rollout_id, html=html, as_json=as_json)
    return str(console.out.getvalue())  # type: ignore[attr-defined]


def _states(state: Path) -> dict[str, str]:
    document = json.loads(_list(state, as_json=True)[0])
    return {row["rollout"]: row["state"] for row in document["rollouts"]}


def test_without_any_it_says_how_to_plan_one(tmp_path: Path) -> None:
    out, err = _list(tmp_path)
    assert out == ""
    assert "invoke restart --all --dry-run" in err
    with pytest.raises(UsageError, match="no rollout"):
        _show(tmp_path)


def test_each_rollout_has_a_line_with_whose_it_is_and_how_it_stands(tmp_path: Path) -> None:
    done = _begin(tmp_path)
    rehearsals.run(done)
    paused = _begin(tmp_path, "b")
    undecided = Failure(cluster="b", step=Step.GATES, mishap=Mishap.INCONCLUSIVE)
    rehearsals.run(paused, failures=[undecided])
    failed = _begin(tmp_path, "c")
    rehearsals.run(failed, failures=[Failure(cluster="c", step=Step.START)])
    died = _begin(tmp_path, "d")
    died.append(Kind.BEGUN, data=myself("olga@desk"))
    fresh = _begin(tmp_path, "e")
    assert _states(tmp_path) == {
        done.id: "done",
        paused.id: "paused",
        failed.id: "failed",
        died.id: "died",
        fresh.id: "never begun",
    }
    with died.drive():
        assert _states(tmp_path)[died.id] == "running"
    out, _ = _list(tmp_path)
    assert "olga@desk" in out
    assert "restart 2 clusters" in out
    assert "1 failed" in out


def test_a_damaged_one_hides_no_other(tmp_path: Path) -> None:
    whole, damaged = _begin(tmp_path), _begin(tmp_path)
    (damaged.folder / "plan.json").write_text("{")
    assert _states(tmp_path) == {whole.id: "never begun", damaged.id: "damaged"}
    assert "no JSON document" in _list(tmp_path)[0]


def test_the_oldest_are_listed_only_when_all_are_asked_for(tmp_path: Path) -> None:
    plan = rehearsals.make_plan(["a"])
    for number in range(MOST + 2):
        moment = datetime(2026, 11, 1, 0, number, tzinfo=UTC)
        one = replace(plan, id=f"{moment:%Y%m%dT%H%M%SZ}-0000", created=moment)
        rehearsals.create(tmp_path, one)
    out, err = _list(tmp_path)
    assert "20261101T000000Z-0000" not in out
    assert "and 2 older ones: invoke rollouts.list --all" in err
    assert "20261101T000000Z-0000" in _list(tmp_path, every=True)[0]


def test_a_failed_one_shows_step_cause_and_next_command(tmp_path: Path) -> None:
    rollout = _begin(tmp_path)
    rehearsals.run(rollout, failures=[Failure(cluster="a", step=Step.START)])
    text = _show(tmp_path)
    assert text.startswith(f"rollout {rollout.id}: failed\n")
    assert "restart 2 clusters of infra/fleet.yaml, by olga@desk" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("a ")]
    assert row[:4] == ["a", "1", "failed", "start"]
    assert "\na: failed: " in text
    assert text.rstrip().splitlines()[-1].startswith(f"next: invoke rollouts.retry {rollout.id}")


def test_one_that_was_killed_says_where_it_was_cut_off(tmp_path: Path) -> None:
    rollout = _begin(tmp_path)
    rollout.append(Kind.BEGUN, data=myself("olga@desk"))
    rollout.append(Kind.HELD, cluster="a")
    rollout.append(Kind.INTENT, cluster="a", step=Step.SNAPSHOT)
    text = _show(tmp_path)
    assert "died" in text.splitlines()[0]
    assert "last driven by olga@desk, process" in text
    (row,) = [line for line in text.splitlines() if line.startswith("a ")]
    assert "cut off" in row
    assert "snapshot" in row
    assert f"next: invoke rollouts.resume {rollout.id}" in text
    with rollout.drive():
        running = _show(tmp_path)
    assert "running" in running.splitlines()[0]
    assert "under way" in running
    assert f"invoke rollouts.pause {rollout.id}" in running


def test_a_pause_that_was_asked_for_and_a_bake_are_told_while_it_runs(tmp_path: Path) -> None:
    rollout = _begin(tmp_path, bake=600.0)
    rollout.append(Kind.BEGUN, data=myself("olga@desk"))
    until = datetime.now(UTC).timestamp() + 500
    rollout.append(Kind.BAKING, data={"wave": 0, "until": until})
    asked = {"verb": "pause", "clusters": [], "by": "kay@laptop"}
    rollout.append(Kind.REQUEST, data=asked)
    with rollout.drive():
        text = _show(tmp_path)
    assert "a pause was asked for" in text
    assert "wave 1 bakes for another 8 min" in text


def test_one_that_is_done_has_nothing_next(tmp_path: Path) -> None:
    rollout = _begin(tmp_path)
    rehearsals.run(rollout)
    assert "next:" not in _show(tmp_path, rollout.id)


def test_as_json_it_has_states_steps_next_command_and_plan(tmp_path: Path) -> None:
    rollout = _begin(tmp_path)
    rehearsals.run(rollout, failures=[Failure(cluster="a", step=Step.START)])
    document = json.loads(_show(tmp_path, as_json=True))
    assert document["kind"] == "rollout"
    assert document["rollout"] == rollout.id
    assert (document["state"], document["running"]) == ("failed", False)
    assert document["steps"] == {"a": "start", "a2": ""}
    assert document["next"].startswith(f"invoke rollouts.retry {rollout.id}")
    assert document["clusters"]["a"]["outcome"] == "failed"
    assert document["plan"]["command"] == "invoke restart --all"


def test_the_page_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    rollout = _begin(tmp_path)
    rehearsals.run(rollout)
    page = tmp_path / "out" / "page.html"
    _show(tmp_path, html=str(page))
    assert rollout.id in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600


def test_an_engine_that_runs_can_be_looked_at(tmp_path: Path) -> None:
    rollout = _begin(tmp_path)
    seen: list[str] = []

    class Curious(rehearsals.Listener):
        def hear(self, record: Any, state: Any) -> None:
            if record.kind is Kind.DONE and record.step is Step.STOP:
                seen.append(_show(tmp_path))

    performer = rehearsals.Rehearsal(tmp_path)
    Engine(rollout, performer, Curious(), operator="olga@desk", poll=0.02).run()
    assert len(seen) == 2
    assert all("running" in text.splitlines()[0] for text in seen)

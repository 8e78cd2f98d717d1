"""A cluster that a rollout is changing now is not unhealthy, and nothing of it is to be mended."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from rayfleet.cluster.health import Observed
from rayfleet.console import Console
from rayfleet.errors import PartialFailure
from rayfleet.fleet.model import Cluster
from rayfleet.health.look import Looker
from rayfleet.health.report import examine_clusters
from rayfleet.health.sight import Sight
from rayfleet.health.states import findings
from rayfleet.health.status import show_status
from rayfleet.rollout.progress import Progress
from tests.unit.health.sights import CLUSTER, CONFIG, NOW

PROGRESS = Progress(
    rollout="20261122T125500Z-4f2a",
    operator="olga@desk",
    word="restarting",
    step="start",
    since=datetime(2026, 11, 22, 12, 55, tzinfo=UTC),
    running=True,
)
SILENT = Sight(
    cluster=CLUSTER,
    config=CONFIG,
    observed=Observed(cluster=CLUSTER.name, head="h", problem="connection refused"),
    now=NOW,
)


@dataclass(frozen=True)
class Sees(Looker):
    """Sees one thing, whatever there is."""

    sight: Sight = SILENT

    def look(self, cluster: Cluster) -> Sight:
        return self.sight


class Screen:
    """A console whose both sides can be read."""

    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.console = Console(out=self.out, err=self.err)

    def sees(self, rollout: Progress | None) -> Looker:
        life = SimpleNamespace(console=self.console)
        return Sees(life=life, sight=replace(SILENT, rollout=rollout))  # type: ignore[arg-type]


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_status_says_who_restarts_it_and_at_which_step(screen: Screen) -> None:
    show_status(screen.sees(PROGRESS), [CLUSTER], as_json=False)
    shown = " ".join(screen.out.getvalue().split())
    assert "us-east5 restarting" in shown
    assert "rollout 20261122T125500Z-4f2a of olga@desk, step start, since 12:55 UTC" in shown
    assert "invoke rollouts.show 20261122T125500Z-4f2a" in shown
    assert "unhealthy" not in shown
    assert "--unhealthy repair" not in shown


def test_status_as_json_has_the_rollout_and_no_trouble(screen: Screen) -> None:
    show_status(screen.sees(PROGRESS), [CLUSTER], as_json=True)
    (entry,) = json.loads(screen.out.getvalue())["clusters"]
    assert (entry["state"], entry["trouble"], entry["findings"]) == ("restarting", [], [])
    assert entry["rollout"] == PROGRESS.document()


def test_the_doctor_mends_nothing_of_it(screen: Screen) -> None:
    examine_clusters(screen.sees(PROGRESS), [CLUSTER], as_json=False)
    shown = " ".join(screen.out.getvalue().split())
    assert "us-east5 rollout restarting" in shown
    assert "invoke rollouts.show 20261122T125500Z-4f2a" in shown
    assert "--unhealthy repair" not in shown


def test_without_a_rollout_it_is_unhealthy_as_ever(screen: Screen) -> None:
    show_status(screen.sees(None), [CLUSTER], as_json=False)
    assert "unhealthy" in screen.out.getvalue()
    with pytest.raises(PartialFailure):
        examine_clusters(screen.sees(None), [CLUSTER], as_json=False)


def test_a_rollout_that_nobody_carries_on_is_a_state_to_mend(screen: Screen) -> None:
    died = replace(PROGRESS, running=False)
    (first, *_) = findings(replace(SILENT, rollout=died))
    assert first.state == "unfinished rollout"
    assert first.remedy == "invoke rollouts.show 20261122T125500Z-4f2a"
    show_status(screen.sees(died), [CLUSTER], as_json=False)
    shown = " ".join(screen.out.getvalue().split())
    assert "us-east5 unhealthy" in shown
    assert "no process works on it" in shown

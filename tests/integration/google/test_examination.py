"""A cluster is looked at from all sides: an emulated cloud, and machines behind real sshds."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayfleet.console import Console
from rayfleet.errors import PartialFailure
from rayfleet.health.report import examine_clusters
from rayfleet.health.status import show_status
from tests.support.google import Google
from tests.support.scripted_http import scripted_server
from tests.support.sshd import PROGRAM
from tests.support.watched import TIGHT, Watched

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path(PROGRAM).exists(), reason="needs sshd"),
]

MINIMUM = 4  # of tpu_worker, in infra/fleet.yaml


@pytest.fixture
def watched(google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    google.cloud.clock.step = 0.0
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with scripted_server() as dashboard:
        yield Watched(google=google, folder=tmp_path, patch=monkeypatch, dashboard=dashboard)


def healthy(watched: Watched) -> list[str]:
    """A head and its minimum of slices, all joined; returns the slices' names."""
    watched.bucket("US-CENTRAL2")
    watched.add_head()
    names = []
    for number in range(MINIMUM):
        name, addresses = watched.add_slice(number)
        watched.enterable(name, *addresses)
        watched.join("tpu_worker", *addresses)
        names.append(name)
    return names


def examined(watched: Watched) -> dict[str, Any]:
    """The document of ``invoke doctor --cluster us-central2 --json``."""
    out = io.StringIO()
    looker = watched.looker
    life = replace(looker.life, console=Console(out=out, err=io.StringIO()))
    caught: PartialFailure | None = None
    try:
        examine_clusters(replace(looker, life=life), [watched.cluster], as_json=True)
    except PartialFailure as error:
        caught = error
    (found,) = json.loads(out.getvalue())["clusters"]
    assert (caught is not None) == bool(found["findings"] or found["not_seen"])
    assert not caught or caught.next_step.endswith("invoke doctor --cluster us-central2")
    return dict(found)


def states(found: dict[str, Any]) -> dict[str, list[str]]:
    return {one["state"]: one["subjects"] for one in found["findings"]}


def test_a_healthy_cluster_is_in_no_known_state_and_all_of_it_was_seen(watched: Watched) -> None:
    healthy(watched)
    found = examined(watched)
    assert (found["findings"], found["not_seen"], found["state"]) == ([], {}, "healthy")
    assert len(found["disks"]) == 1 + MINIMUM


def test_preempted_workers_that_the_autoscaler_lost_are_told_and_then_collected(
    watched: Watched,
) -> None:
    names = healthy(watched)
    for name in names:
        watched.google.preempt(name)
    watched.joined.clear()
    found = examined(watched)
    assert states(found) == {
        "autoscaler lost its workers": ["tpu_worker"],
        "leftovers": names,
    }
    assert found["not_seen"] == {}
    watched.littered.garbage.sweep([watched.cluster], remove=True)
    assert set(states(examined(watched))) == {"autoscaler lost its workers"}
    # A moment later the autoscaler asks for them: that was it.
    watched.pending = [" tpu_worker, 4 launching"]
    assert examined(watched)["findings"] == []


def test_a_state_that_passes_is_not_told(watched: Watched) -> None:
    names = healthy(watched)
    watched.google.preempt(names[0])
    watched.joined.pop(0)

    class Recovering:
        def monotonic(self) -> float:
            return 0.0

        def sleep(self, seconds: float) -> None:
            watched.pending = [" tpu_worker, 1 launching"]

    _, found = replace(watched.looker, clock=Recovering()).examine(watched.cluster)
    assert [one.state for one in found] == ["leftovers"]


def test_slices_that_did_not_join_are_told_once_they_had_the_time(watched: Watched) -> None:
    healthy(watched)
    half, addresses = watched.add_slice(16, hosts=2, kind="tpu_slice_v4_16")
    watched.join("tpu_slice_v4_16", addresses[0])
    never, _ = watched.add_slice(17)
    watched.add_slice(18, age=60.0)
    found = states(examined(watched))
    assert (found["half-registered slice"], found["unregistered slice"]) == ([half], [never])


def test_nodes_that_differ_and_full_disks_are_told(watched: Watched) -> None:
    watched.bucket("EUROPE-WEST4")
    watched.add_head(df=TIGHT, image="old/image:1@sha256:" + "0" * 64)
    for number in range(MINIMUM):
        name, addresses = watched.add_slice(number)
        watched.enterable(name, *addresses, ray="2.53.0" if not number else "2.60.0")
        watched.join("tpu_worker", *addresses)
    found = examined(watched)
    assert found["not_seen"] == {}
    told = [(one["state"], one["found"]) for one in found["findings"]]
    assert ("image drift", "the head runs sha256:000000000000, not sha256:dddddddddddd") in told
    assert (
        "bucket of another region",
        "gs://marin-us-central2 is in europe-west4, the cluster in us-central2",
    ) in told
    assert (
        "version skew",
        "us-central2/worker-00000000-tpu has Ray 2.53.0, the head runs 2.60.0",
    ) in told
    assert ("disk nearly full", "us-central2: / is 97% full, 5.7 GiB are free") in told
    assert len([1 for state, _ in told if state == "image drift"]) == 1 + MINIMUM


def test_what_cannot_be_looked_at_is_said_and_nothing_concluded(watched: Watched) -> None:
    names = healthy(watched)
    watched.google.preempt(names[0])
    watched.google.inject("tpu.projects.locations.queuedResources.list", times=-1, status=403)
    stranger, addresses = watched.add_slice(32)  # nobody knows its host key
    watched.join("tpu_worker", *addresses)
    found = examined(watched)
    assert found["findings"] == []
    assert set(found["not_seen"]) == {
        "the cloud",
        f"us-central2/{stranger.partition('central2-')[2]}",
    }
    assert "list the queued resources" in found["not_seen"]["the cloud"]


def test_status_has_the_known_states_below_its_rows(watched: Watched) -> None:
    names = healthy(watched)
    watched.google.preempt(names[0])
    watched.joined.pop(0)
    out = io.StringIO()
    looker = replace(watched.looker, deep=False)
    life = replace(looker.life, console=Console(out=out, err=io.StringIO()))
    show_status(replace(looker, life=life), [watched.cluster], as_json=False)
    text = out.getvalue()
    assert "3 of 4 tpu_worker joined" in text
    assert "invoke gc --cluster us-central2" in text
    assert "invoke restart --cluster us-central2" in text

"""The full life of clusters on the emulated Google Cloud, as an operator drives it: Ray's own
launcher and provider, all of rayfleet's own steps, and an inventory that ends empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rayfleet.worker.model import Capacity
from tests.support.google import Google
from tests.support.living import TABLES, Living
from tests.support.scripted_http import scripted_server
from tests.support.sshd import PROGRAM

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path(PROGRAM).exists(), reason="needs sshd"),
]

MAIN, CANARY = "us-central2", "us-central2-staging"
MINIMUM = {MAIN: {"tpu_worker": 1, "tpu_slice_v4_16": 1}, CANARY: {"tpu_worker": 1}}
NEW = "us-central2-docker.pkg.dev/hai-gcp-models/marin/marin_cluster:new"
NOTHING: dict[str, Any] = {table: {} for table in TABLES}


@pytest.fixture
def living(google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Living]:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with ExitStack() as stack:
        dashboards = {name: stack.enter_context(scripted_server()) for name in MINIMUM}
        yield Living(
            google=google,
            folder=tmp_path,
            patch=monkeypatch,
            minimum=MINIMUM,
            dashboards=dashboards,
        )


def test_clusters_come_up_lose_a_slice_are_restarted_in_order_and_go(living: Living) -> None:
    google = living.google
    living.start(CANARY, MAIN)
    for row in google.cloud.state.table("instances").values():
        view = row["view"]
        assert view["labels"]["ray-node-status"] == "up-to-date"
        assert view["serviceAccounts"][0]["email"].startswith("ray-autoscaler-sa-v1@")
    assert len(google.states("instances")) == 2
    assert set(google.states("nodes").values()) == {"READY"}
    (pod,) = [name for name, row in rows(google).items() if len(row["networkEndpoints"]) == 2]

    google.preempt(pod)
    told = living.status(MAIN)
    assert "0 of 1 tpu_slice_v4_16 joined" in told
    assert f"invoke gc --cluster {MAIN}" in told
    assert living.gc(MAIN, remove=True) == {pod: "gone"}
    (again,) = living.autoscale(MAIN)
    assert "joined" not in living.status(MAIN).replace("joined:", "")

    care = living.care(MAIN)
    made = care.add("v4-8", Capacity.RESERVED, name="mine", owner="ann", wait=3600.0)
    assert (made.state, made.node) == ("ACTIVE", "READY")
    assert google.write(made.name, "rayfleet/state", f"joined {made.image} ")
    assert living.care(MAIN).all()[0].trouble == ""

    for name in MINIMUM:
        living.change(name, lambda content: content["docker"].update(image=NEW))
    begun = len(google.seen())
    plan = living.restart(MAIN, CANARY)
    assert [wave.clusters for wave in plan.waves] == [(CANARY,), (MAIN,)]
    gone = [seen.resource for seen in google.seen()[begun:] if seen.method.endswith(".delete")]
    kinds = [("staging" in name, "-head-" in name) for name in gone]
    assert kinds == [(True, True), (True, False), (False, True), (False, False), (False, False)]
    assert again.rpartition("/")[2] not in google.states("nodes")
    (added,) = living.care(MAIN).all()
    assert (added.name, added.image, added.trouble) == (made.name, NEW, "another image")

    living.care(MAIN).remove(["mine"])
    living.stop(MAIN, CANARY)
    assert living.inventory() == NOTHING


def rows(google: Google) -> dict[str, Any]:
    """The slices by their last names, as the API shows them."""
    with google.cloud.lock:
        table = google.cloud.state.table("nodes")
        return {name.rpartition("/")[2]: row["view"] for name, row in table.items()}

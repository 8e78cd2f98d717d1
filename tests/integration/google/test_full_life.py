"""The full life of clusters on the emulated Google Cloud, as an operator drives it: Ray's own
launcher and provider, all of rayfleet's own steps, and an inventory that ends empty."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from rayfleet import google_api
from rayfleet.cluster import google as google_cloud
from rayfleet.cluster import machines
from rayfleet.cluster.google import ALIVE
from rayfleet.errors import RayfleetError
from rayfleet.worker.model import Capacity
from tests.support.depth import series
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
NODES = "tpu.projects.locations.nodes"
QUEUE = "tpu.projects.locations.queuedResources"
INSERT, DELETE = "compute.instances.insert", "compute.instances.delete"
FAULTS: dict[str, dict[str, Any]] = {
    "an operation that never ends": {"never": True},
    "500s": {"status": 500, "message": "Internal error encountered."},
    "timeouts": {"hang": 60.0},
    "quota": {"status": 429, "message": "Quota exceeded for quota metric 'Requests'."},
}
MESSAGES = {
    "500s": "500.*Internal error encountered",
    "timeouts": "timed out",
    "quota": "Quota exceeded",
    "an operation that never ends": "waited .* for Google to take the request",
}
OF_LAUNCHES: dict[str, dict[str, Any]] = {
    "timeouts": {"hang": 0.2, "times": 1},
    "quota": {"status": 403, "reason": "quotaExceeded"},
}
# Ray asks again where no answer came, and goes on where a machine is slow to come.
PASSED = {(INSERT, "timeouts"), (INSERT, "an operation that never ends")}

IMPATIENT: tuple[tuple[Any, str, float], ...] = (  # seconds of this machine
    (google_api, "FIRST_WAIT", 0.01),
    (google_api, "TIMEOUT", 1.0),
    (google_cloud, "DELETE_TIMEOUT", 0.5),
    (google_cloud, "DELETE_INTERVAL", 0.1),
    (machines, "GONE_TIMEOUT", 1.0),
)


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
    addition = care.plan("v4-8", Capacity.RESERVED, name="mine")
    made = care.add(addition, owner="ann", wait=3600.0)
    assert (made.state, made.node) == ("ACTIVE", "READY")
    assert google.write(made.name, "rayfleet/state", f"joined {made.image} ")
    assert living.care(MAIN).all()[0].trouble == ""
    with living.heads() as heads:
        targets = heads.targets([living.cluster(MAIN)], "workers")
        assert targets[0].name == f"{MAIN}/mine-tpu"
        assert len(targets) == 1 + 1 + 2  # the pod has two machines
        living.write_host_key(made.name)
        home = heads.open(targets[0]).run('echo "$HOME"', timeout=30).stdout
        assert home.strip().startswith(str(living.folder))

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


@pytest.mark.parametrize("fault", series(FAULTS, few=1))
def test_a_fault_at_each_stage_is_told_and_what_it_leaves_is_seen_and_goes(
    living: Living, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    google = living.google

    def strike(method: str, work: Callable[[], object], *, told: str, **other: Any) -> None:
        google.inject(method, **({"times": -1} | FAULTS[fault] | other))
        passes = (method, fault) in PASSED
        with monkeypatch.context() as patch:
            for module, name, value in IMPATIENT:
                patch.setattr(module, name, value)
            with nullcontext() if passes else pytest.raises(RayfleetError) as caught:
                work()
        text = caught.value.text() if caught else ""
        assert passes or re.search(rf"error: .*{told}.*\n  next: \w", text, re.DOTALL), text
        google.heal()
        assert unnoticed(living, text) == set()
        living.finish()

    def add() -> None:
        care = living.care(MAIN)
        addition = care.plan("v4-8", Capacity.RESERVED, name="mine")
        care.add(addition, owner="ann", wait=3600.0)

    def remove() -> None:
        living.care(MAIN).remove(["mine"])

    # Ray's own process has a patience of its own.
    strike(INSERT, lambda: living.start(MAIN), told=MESSAGES[fault], **OF_LAUNCHES.get(fault, {}))
    living.start(MAIN)

    lost = next(iter(google.states("nodes")))
    google.preempt(lost)
    strike(f"{NODES}.delete", lambda: living.gc(MAIN, remove=True), told=lost)
    living.gc(MAIN, remove=True)
    assert lost not in google.states("nodes")

    strike(f"{QUEUE}.create", add, told=MESSAGES[fault])
    add()
    strike(DELETE, lambda: living.restart(MAIN), told=r"-head-")
    living.retry(MAIN)
    assert living.care(MAIN).all()[0].node == "READY"

    strike(f"{QUEUE}.delete", remove, told="mine-tpu")
    if living.care(MAIN).all():  # not where Google did it at last
        remove()
    strike(f"{NODES}.delete", lambda: living.stop(MAIN), told="-worker-")
    living.stop(MAIN)
    assert living.inventory() == NOTHING


def unnoticed(living: Living, text: str) -> set[str]:
    """What is there and neither the error ``text`` nor a command tells of."""
    shown = living.status(MAIN)
    runs = "stopped" not in shown or "workers without a head" in shown
    told = {one.name for one in living.care(MAIN).all(ask_machines=False)}
    told |= living.gc(MAIN, remove=False).keys()
    return {
        name
        for states in living.inventory().values()
        for name, state in states.items()
        if not (name in text or name in told or (runs and state in ALIVE))
    }


def rows(google: Google) -> dict[str, Any]:
    """The slices by their last names, as the API shows them."""
    with google.cloud.lock:
        table = google.cloud.state.table("nodes")
        return {name.rpartition("/")[2]: row["view"] for name, row in table.items()}

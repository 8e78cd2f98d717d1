"""What goes wrong at Google ends in a clear error or is tried again, and nothing is left unseen."""

from __future__ import annotations

from typing import Any

import pytest

from rayfleet import google_api
from rayfleet.cluster.machines import GONE_TIMEOUT
from rayfleet.emulator import tpu
from rayfleet.emulator.cloud import Cloud
from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.project import Project
from tests.support.google import Google
from tests.support.google_cluster import GoogleCluster, google_cluster

pytestmark = pytest.mark.integration

NODES = "tpu.projects.locations.nodes"
CALLS = ("compute.instances.list", "compute.instances.delete", f"{NODES}.list", f"{NODES}.delete")
FAULTS: dict[str, dict[str, Any]] = {
    "500": {"status": 500},
    "503": {"status": 503},
    "too many requests": {"status": 429, "message": "Rate limit"},
    "busy": {"status": 409, "message": "unable to queue the operation"},
    "rate limit": {"status": 403, "reason": "rateLimitExceeded"},
    "cut before": {"cut": "before"},
    "cut after": {"cut": "after"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_passes_is_tried_again(google: Google, cluster: GoogleCluster, fault: str) -> None:
    for method in CALLS:
        google.inject(method, times=2, **FAULTS[fault])
    google.inject("*perations.get", times=1, **FAULTS[fault])
    assert len(cluster.nodes.terminate_all()) == 3
    assert cluster.nodes.remaining() == ()
    assert google.states("nodes") == google.states("instances") == {}


@pytest.mark.parametrize("method", CALLS)
def test_what_does_not_pass_is_said_after_a_few_tries(
    google: Google, cluster: GoogleCluster, method: str
) -> None:
    google.inject(method, times=-1, status=503, message="Try later.")
    asked = len(google.seen(method))
    with pytest.raises(Unreachable, match=r"cannot .*: 503: Try later\."):
        cluster.nodes.terminate_all()
    failed = len(google.seen(method)) - asked
    assert google_api.ATTEMPTS <= failed <= 2 * google_api.ATTEMPTS  # two slices at once
    google.heal()
    left = cluster.nodes.remaining()
    assert len(left) == len(google.states("nodes")) + len(google.states("instances")) > 0


@pytest.mark.parametrize("method", ["compute.instances.list", f"{NODES}.list"])
def test_half_an_answer_is_no_answer(
    google: Google, cluster: GoogleCluster, project: Project, method: str
) -> None:
    """'Nothing is left' would let a restart give jobs back beside workers that still run them."""
    machines, there = cluster.machines(project), cluster.nodes.remaining()
    google.inject(method, times=-1, unreachable="us-central2-b")
    for look in (machines.require_none, machines.terminate, cluster.nodes.head):
        with pytest.raises(Unreachable, match=r"cannot .*: Google .*us-central2-b") as error:
            look()
        assert error.value.next_step == "run the same again later"
    google.heal()
    assert cluster.nodes.remaining() == there


def test_half_an_answer_that_is_whole_a_moment_later_is_asked_for_again(
    google: Google, cluster: GoogleCluster, project: Project
) -> None:
    machines = cluster.machines(project)
    machines.terminate()
    cluster.add("tpu_worker")
    google.inject(f"{NODES}.list", times=2, unreachable="us-central2-b")
    machines.require_none()
    assert google.states("nodes") == {}


def test_an_api_that_does_not_answer_is_not_waited_for_for_ever(
    google: Google, cluster: GoogleCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google_api, "TIMEOUT", 0.3)
    google.inject(f"{NODES}.list", times=1, hang=60)
    assert len(cluster.nodes.everything()) == 3
    google.inject(f"{NODES}.list", times=-1, hang=60)
    with pytest.raises(Unreachable, match=r"cannot list the nodes: .*timed out"):
        cluster.nodes.everything()


def test_without_permission_the_head_stays_and_so_do_its_workers(
    google: Google, cluster: GoogleCluster
) -> None:
    why = "Required 'compute.instances.delete' permission for 'projects/p/zones/z/instances/i'"
    google.inject("compute.instances.delete", times=-1, status=403, message=why)
    with pytest.raises(Unreachable, match=f"cannot terminate .*: 403: {why}"):
        cluster.nodes.terminate_all()
    assert len(google.seen("compute.instances.delete")) == 1
    assert set(google.states("nodes").values()) == {"READY"}


@pytest.mark.parametrize("method", ["compute.instances.delete", f"{NODES}.delete"])
def test_a_deletion_that_never_ends_is_named(
    google: Google, cluster: GoogleCluster, project: Project, method: str
) -> None:
    google.inject(method, never=True)
    google.cloud.clock.step = 0.0
    machines, start = cluster.machines(project), google.cloud.now()
    assert machines.terminate() == 3
    (left,) = machines.nodes.remaining()
    with pytest.raises(ToolFailed, match=f"is not all gone: still there: {left}"):
        machines.require_none()
    assert google.cloud.now() - start < 2 * GONE_TIMEOUT
    assert machines.nodes.everything() == ()  # it is on its way out, and was not asked again
    assert len(google.seen(method)) == (1 if "compute" in method else 2)


def test_forty_slices_go_in_the_time_of_one(
    google: Google, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tpu, "PAGE", 15)  # all pages are read, too
    cluster = google_cluster(google)
    cluster.add("head_default")
    cluster.add("tpu_worker", 40)
    assert len(cluster.nodes.everything()) == 41
    google.cloud.clock.step = 0.0
    start = google.cloud.now()
    assert len(cluster.nodes.terminate_all()) == 41
    assert cluster.nodes.remaining() == ()
    slowest = google.cloud.durations.delete + google.cloud.durations.tpu_delete
    assert google.cloud.now() - start < 2 * slowest


def test_a_slow_deletion_is_waited_for(
    google: Google, cluster: GoogleCluster, project: Project
) -> None:
    google.inject(f"{NODES}.delete", takes=250.0)
    google.cloud.clock.step = 0.0
    machines = cluster.machines(project)
    machines.terminate()
    assert len(machines.nodes.remaining()) == 1
    machines.require_none()
    assert machines.nodes.remaining() == ()


@pytest.mark.parametrize(
    ("method", "code", "said"),
    [
        ("compute.instances.delete", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "RESOURCE_IN_USE"),
        (f"{NODES}.delete", "13", "13: "),
    ],
)
def test_a_deletion_that_fails_says_why(
    google: Google, cluster: GoogleCluster, method: str, code: str, said: str
) -> None:
    google.inject(method, fails=code, message="An internal error occurred.")
    with pytest.raises(Unreachable, match=f"{said}.*An internal error occurred"):
        cluster.nodes.terminate_all()
    assert len(cluster.nodes.everything()) >= 1
    cluster.nodes.terminate_all()
    assert cluster.nodes.remaining() == ()


def test_what_somebody_else_deleted_is_fine(google: Google, cluster: GoogleCluster) -> None:
    for method in CALLS[1::2]:
        google.inject(method, times=-1, status=404, message="was not found")
    assert len(cluster.nodes.terminate_all()) == 3


@pytest.mark.parametrize("node_type", ["head_default", "tpu_worker"])
def test_a_node_whose_creation_was_lost_on_the_way_is_found(google: Google, node_type: str) -> None:
    cluster = google_cluster(google)
    google.inject("*.create", cut="after")
    google.inject("compute.instances.insert", cut="after")
    # httplib2 sends a request again whose connection was cut, also one that makes something.
    with pytest.raises(Exception, match="already exists"):
        cluster.add(node_type)
    (lost,) = cluster.nodes.everything()
    cluster.nodes.terminate(lost)
    assert cluster.nodes.remaining() == ()


@pytest.mark.parametrize("node_type", ["head_default", "tpu_worker"])
def test_a_node_that_is_never_finished_is_taken_down_with_the_rest(
    google: Google, project: Project, node_type: str
) -> None:
    cluster = google_cluster(google)
    google.inject("*.create", never=True)
    google.inject("compute.instances.insert", never=True)
    assert len(cluster.add(node_type)) == 1  # Ray stops waiting and says nothing
    machines = cluster.machines(project)
    assert machines.terminate() == 1
    machines.require_none()
    assert google.states("nodes") == google.states("instances") == {}


@pytest.mark.parametrize(
    ("node_type", "kind", "said"),
    [
        ("head_default", "n2-standard-8", "ZONE_RESOURCE_POOL_EXHAUSTED"),
        ("tpu_worker", "v4-8", "There is no more capacity in the zone"),
    ],
)
def test_where_nothing_is_to_be_had_nothing_is_left(
    google: Google, node_type: str, kind: str, said: str
) -> None:
    cluster = google_cluster(google)
    google.cloud.stockouts.add((kind, "us-central2-b"))
    with pytest.raises(Exception, match=said):
        cluster.add(node_type)
    assert cluster.nodes.remaining() == ()
    google.cloud.stockouts.clear()
    assert len(cluster.add(node_type)) == 1


@pytest.mark.parametrize(
    ("node_type", "quota", "said"),
    [
        ("head_default", ("CPUS", "us-central2"), "Quota 'CPUS' exceeded"),
        ("tpu_worker", ("v4 preemptible", "us-central2-b"), "Quota limit 'TPUV4Preemptible"),
    ],
)
def test_beyond_the_quota_nothing_is_made(
    google: Google, node_type: str, quota: tuple[str, str], said: str
) -> None:
    cluster = google_cluster(google)
    google.cloud.quotas[quota] = 0
    with pytest.raises(Exception, match=said):
        cluster.add(node_type)
    assert cluster.nodes.remaining() == ()


def test_a_preempted_slice_eats_quota_until_it_is_deleted(
    google: Google, cluster: GoogleCluster
) -> None:
    google.cloud.quotas["v4 preemptible", "us-central2-b"] = 8  # chips: two slices of v4-8
    lost = next(iter(cluster.nodes.workers()))
    google.preempt(lost)
    with pytest.raises(Exception, match="Quota limit"):
        cluster.add("tpu_worker")
    assert lost in cluster.nodes.everything()
    cluster.nodes.terminate(lost)
    assert len(cluster.add("tpu_worker")) == 1


def test_a_restarted_cloud_knows_its_machines(google: Google, cluster: GoogleCluster) -> None:
    google.advance(0)
    path = google.cloud.state.path
    again = Cloud.open(google.cloud.project, path.parent if path else None)
    assert again.state.tables == google.cloud.state.tables
    assert again.now() == google.cloud.now()

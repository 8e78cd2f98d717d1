"""A cluster on Google Cloud is asked what it runs: its VMs are no images, only its head knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.cluster.nodes import known_hosts
from rayfleet.registry.uses import Uses
from rayfleet.rollout.uses.clusters import Asker
from tests.support.google import Google
from tests.support.google_cluster import GoogleCluster
from tests.support.protected_fleet import ProtectedFleet, protected_fleet

pytestmark = pytest.mark.integration

DIGEST = f"sha256:{'5e' * 32}"
REGION = "us-central2"

Ask = Callable[[], Uses]


@pytest.fixture
def fleet(tmp_path: Path, google: Google, cluster: GoogleCluster) -> ProtectedFleet:
    """One whose cluster of us-central2 is the emulated one; its head is a local sshd."""
    made = protected_fleet(tmp_path / "fleet")
    name = cluster.name
    one = replace(made.fleet.clusters[REGION], identity=name)
    fleet = replace(made.fleet, clusters={**made.fleet.clusters, REGION: one})
    content = {
        "cluster_name": name,
        "provider": cluster.launch_config.provider,
        "docker": {"image": made.image(REGION, tag="4554f82")},
        **{key: cluster.content[key] for key in ("head_node_type", "available_node_types")},
    }
    fleet.config_path(one).write_text(json.dumps(content))
    key = (made.sshd.folder / "host_key.pub").read_text()
    record_host_key(known_hosts(made.project, fleet), name, key)
    return replace(made, fleet=fleet)


@pytest.fixture
def ask(fleet: ProtectedFleet) -> Ask:
    asker = Asker(project=fleet.project, fleet=fleet.fleet)
    return lambda: asker.ask(fleet.fleet.clusters[REGION])


def test_a_head_says_what_it_and_its_workers_run(fleet: ProtectedFleet, ask: Ask) -> None:
    fleet.started(fleet.image(REGION, DIGEST, "4554f82"))
    found = ask()
    assert found.unknown == ()
    assert {(use.by, use.digest, use.region) for use in found.known} == {
        (f"the head of {REGION}", DIGEST, REGION)
    }


def test_slices_without_a_head_may_run_anything(
    google: Google, cluster: GoogleCluster, ask: Ask
) -> None:
    cluster.nodes.terminate(cluster.nodes.head())
    (unknown,) = ask().unknown
    assert "no head that could say" in unknown.why
    assert unknown.next_step == f"invoke stop --cluster {REGION}"
    cluster.nodes.terminate_all()
    assert ask() == Uses()


def test_an_api_that_fails_is_not_taken_for_a_cluster_that_is_gone(
    google: Google, ask: Ask
) -> None:
    google.inject("compute.instances.list", status=403)
    (unknown,) = ask().unknown
    assert unknown.region == REGION

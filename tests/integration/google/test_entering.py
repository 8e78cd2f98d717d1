"""How the workers of a big cluster are entered: what that asks of Google, and what it writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rayfleet.cluster.heads import Heads, NodeGone, Target
from tests.support.google import Google
from tests.support.leftovers import Littered

pytestmark = pytest.mark.integration

CLUSTER = "us-central2"
SLICES, HOSTS = 64, 4
MACHINES = SLICES * HOSTS
LISTS = ("tpu.projects.locations.nodes.list", "compute.instances.list")
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIPUHODfVrlx7GzfyGe3FbGof/j0pqgVCYfo8DvOxlF7q"


@pytest.fixture
def littered(google: Google, tmp_path: Path) -> Littered:
    """A cluster with 64 slices of four machines, each with its host key on record."""
    google.cloud.clock.step = 0.0
    world = Littered(google=google, folder=tmp_path)
    identity = world.cluster(CLUSTER).identity
    for number in range(SLICES):
        name = f"ray-{identity}-worker-{number:08x}-tpu"
        ends = [
            {
                "ipAddress": f"10.1.{number}.{host}",
                "accessConfig": {"externalIp": f"34.1.{number}.{host}"},
            }
            for host in range(HOSTS)
        ]
        world.slice(
            name,
            "READY",
            owner=identity,
            networkEndpoints=ends,
            metadata={"enable-guest-attributes": "TRUE"},
        )
        for host in range(HOSTS):
            assert google.write(name, "hostkeys/ssh-ed25519", KEY, worker=host)
    return world


def listings(google: Google) -> list[int]:
    return [len(google.seen(method)) for method in LISTS]


def test_a_look_at_256_workers_is_one_listing_and_no_write(
    google: Google, littered: Littered
) -> None:
    state = littered.project.state
    with Heads(littered.project, littered.fleet) as heads, ThreadPoolExecutor(MACHINES) as pool:
        targets = heads.targets([littered.cluster(CLUSTER)], "workers")
        found = dict(zip(targets, pool.map(heads.address, targets), strict=True))
        assert listings(google) == [1, 1]
        assert len({address.host for address in found.values()}) == MACHINES
        named = {target.node.rpartition("/")[2]: each for target, each in found.items()}
        identity = littered.cluster(CLUSTER).identity
        third = named[f"ray-{identity}-worker-00000007-tpu#3"]
        assert third.host.endswith(".1.7.3")
        assert third.host_keys == f"ssh-ed25519 {KEY}"
        assert not [path for path in state.rglob("*") if "known_hosts" in path.name]

        # All connections broke at once: what is found now was asked for after that.
        google.preempt(f"ray-{identity}-worker-00000007-tpu")

        def again(target: Target) -> str:
            try:
                return heads.address(target).host
            except NodeGone:
                return "gone"

        assert list(pool.map(again, targets)).count("gone") == HOSTS
        # One for those who asked before it began, one for those who asked meanwhile, at a time.
        assert max(listings(google)) <= 1 + MACHINES // 16

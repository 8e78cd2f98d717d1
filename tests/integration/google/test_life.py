"""The life of a cluster on the emulated Google Cloud, through Ray's own provider."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayfleet.cluster.nodes import Nodes
from rayfleet.emulator.provider import pointed_at
from tests.support.google import Google
from tests.support.google_cluster import google_cluster, read_production

pytestmark = pytest.mark.integration


def whole(workers: tuple[str, ...]) -> set[str]:
    """The slices of these machines."""
    return {worker.partition("#")[0] for worker in workers}


def test_a_cluster_comes_up_loses_a_slice_and_goes_head_first(google: Google) -> None:
    cluster = google_cluster(google)
    assert cluster.nodes.remaining() == ()

    (head,) = cluster.add("head_default")
    workers = cluster.add("tpu_worker", 2)
    (slice_,) = cluster.add("tpu_slice_v4_16")
    nodes = cluster.nodes
    assert nodes.head() == head
    assert whole(nodes.workers()) == {*workers, slice_}
    assert nodes.address(head).startswith("127.")

    google.preempt(slice_)
    assert whole(nodes.workers()) == set(workers)
    assert slice_ in nodes.remaining()

    gone = nodes.terminate_all()
    assert gone[0] == head
    assert set(gone) == {head, *workers, slice_}
    deleted = [seen.resource for seen in google.seen() if seen.method.endswith(".delete")]
    assert deleted[0].endswith(head)
    assert cluster.nodes.remaining() == ()
    assert google.states("nodes") == google.states("instances") == {}


def test_the_provider_of_a_production_config_as_it_is(google: Google) -> None:
    cluster = google_cluster(google)
    made = {*cluster.add("head_default"), *cluster.add("tpu_worker", 2)}
    section = read_production("us-central2")["provider"]
    assert section["type"] == "gcp"
    with pointed_at(google.url):
        nodes = Nodes(replace(cluster.launch_config, provider=section), clock=google.clock)
        assert set(nodes.everything()) == made
    assert set(nodes.terminate_all()) == made
    assert nodes.remaining() == ()

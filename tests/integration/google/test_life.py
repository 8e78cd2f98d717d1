"""Ray's own provider of Google Cloud, as a production config names it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rayfleet.cluster.nodes import Nodes
from rayfleet.emulator.provider import pointed_at
from tests.support.google import Google
from tests.support.google_cluster import google_cluster, read_production

pytestmark = pytest.mark.integration


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

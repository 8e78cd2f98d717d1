"""Ray's own provider of Google Cloud, as a production config names it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.cluster.nodes import Nodes
from rayfleet.emulator.provider import pointed_at
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Pin
from rayfleet.fleet.render import checked_configs, render_configs
from tests.support.google import Google
from tests.support.google_cluster import (
    GoogleCluster,
    bootstrapped,
    google_cluster,
    read_production,
)
from tests.support.quick_yaml import read_yaml, write_yaml

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[3]
SHIPPED = REPOSITORY / "infra" / "fleet.yaml"


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


def test_a_cluster_without_accelerators_has_vms_for_workers(google: Google, tmp_path: Path) -> None:
    document = read_yaml(SHIPPED.read_text())
    document["clusters"] = {
        "us-central2": {
            "zone": "us-central2-b",
            "accelerator": "cpu",
            "bucket": "marin-us-central2",
            "workers": {"base": {"min": 1, "max": 4}},
        }
    }
    document["rollout"]["order"] = []
    (tmp_path / "fleet.yaml").write_text(write_yaml(document))
    fleet = load_fleet(tmp_path / "fleet.yaml", root=REPOSITORY, state=tmp_path / "state")
    templates = REPOSITORY / "infra" / "templates"
    texts = checked_configs(render_configs(fleet, {"cluster": Pin(tag="t")}, templates=templates))
    content = bootstrapped(google, read_yaml(texts["us-central2"]))
    cluster = GoogleCluster(google=google, content=content)
    made = {*cluster.add("head_default"), *cluster.add("worker", 2)}
    assert len(made) == 3
    assert all(name.endswith("-compute") for name in made)
    workers = [cluster.provider.node_tags(name)["ray-user-node-type"] for name in made]
    assert sorted(workers) == ["head_default", "worker", "worker"]
    assert content["available_node_types"]["worker"]["resources"]["CPU"] == 8
    options = read_yaml(texts["us-central2"])["docker"]["worker_run_options"]
    assert not [one for one in options if "shm" in one]  # of a VM's memory Ray takes its share

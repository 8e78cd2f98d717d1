"""Guest attributes: what a machine says of itself, if it may."""

from __future__ import annotations

import pytest

from tests.support.google import Google
from tests.support.google_cluster import GoogleCluster, google_cluster

pytestmark = pytest.mark.integration

ON = {"enable-guest-attributes": "TRUE"}


def allowed(cluster: GoogleCluster) -> GoogleCluster:
    types = cluster.content["available_node_types"]
    items = [{"key": key, "value": value} for key, value in ON.items()]
    types["head_default"]["node_config"]["metadata"] = {"items": items}
    types["tpu_slice_v4_16"]["node_config"]["metadata"] = ON
    return cluster


def test_machines_that_may_say_their_host_keys(google: Google) -> None:
    cluster = allowed(google_cluster(google))
    (head,), (slice_,) = cluster.add("head_default"), cluster.add("tpu_slice_v4_16")
    assert cluster.nodes.host_key(head) == ""
    assert google.write(head, "hostkeys/ssh-ed25519", "AAAA")
    assert google.write(slice_, "hostkeys/ssh-ed25519", "BBBB", worker=1)
    assert cluster.nodes.host_key(head) == "ssh-ed25519 AAAA"
    assert cluster.nodes.host_key(f"{slice_}#1") == "ssh-ed25519 BBBB"
    assert cluster.nodes.host_key(f"{slice_}#0") == ""


def test_a_machine_that_may_not_says_nothing(google: Google) -> None:
    cluster = google_cluster(google)
    (head,) = cluster.add("head_default")
    assert not google.write(head, "hostkeys/ssh-ed25519", "AAAA")
    assert cluster.nodes.host_key(head) == ""

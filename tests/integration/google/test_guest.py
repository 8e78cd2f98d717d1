"""Guest attributes: what a machine says of itself, if it may."""

from __future__ import annotations

import pytest

from tests.support.google import Google
from tests.support.google_cluster import google_cluster

pytestmark = pytest.mark.integration


def test_machines_of_the_shipped_configs_say_their_host_keys(google: Google) -> None:
    cluster = google_cluster(google)
    (head,), (slice_,) = cluster.add("head_default"), cluster.add("tpu_slice_v4_16")
    assert cluster.nodes.host_key(head) == ""
    assert google.write(head, "hostkeys/ssh-ed25519", "AAAA")
    assert google.write(slice_, "hostkeys/ssh-ed25519", "BBBB", worker=1)
    assert cluster.nodes.host_key(head) == "ssh-ed25519 AAAA"
    assert cluster.nodes.host_key(f"{slice_}#1") == "ssh-ed25519 BBBB"
    assert cluster.nodes.host_key(f"{slice_}#0") == ""


def test_a_machine_that_may_not_says_nothing(google: Google) -> None:
    cluster = google_cluster(google)
    del cluster.content["available_node_types"]["head_default"]["node_config"]["metadata"]
    (head,) = cluster.add("head_default")
    assert not google.write(head, "hostkeys/ssh-ed25519", "AAAA")
    assert cluster.nodes.host_key(head) == ""

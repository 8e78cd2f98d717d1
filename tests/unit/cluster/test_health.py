"""What a head is asked with the cluster's token, and how a refusal is told."""

from __future__ import annotations

import pytest

from rayfleet.cluster.config import NodeType
from rayfleet.cluster.health import Observed, live_nodes, ray_version
from rayfleet.cluster.live import GROUP, SLICE, LiveNode
from rayfleet.errors import Unreachable
from tests.support.fake_dashboard import FakeDashboard


def test_the_token_goes_with_every_question() -> None:
    head = FakeDashboard(token="s3cret")
    assert ray_version(head, "s3cret") == "2.60.0"
    assert live_nodes(head, "s3cret") == ()


def test_a_slice_counts_when_all_its_hosts_have_joined() -> None:
    kind = NodeType(name="tpu_slice_v5e_16", most=4, hosts=4)
    hosts = [
        LiveNode(id=str(number), labels={GROUP: kind.name, SLICE: name})
        for number, name in enumerate("aaaabb")
    ]
    seen = Observed(
        cluster="us-west4", head="head", ray_version="2.60.0", wanted_workers={kind.name: 2}
    ).with_workers([LiveNode(id="head", head=True), *hosts], [kind])
    assert seen.joined == 1
    assert len(seen.members) == 6
    assert seen.failing() == ("1 of 2 tpu_slice_v5e_16 joined, 1 with only some of their hosts",)


def test_a_cluster_without_authentication_gets_no_token() -> None:
    head = FakeDashboard()
    ray_version(head)
    assert "Authorization" not in head.requests[0][2]


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (None, "it wants a token (HTTP 401)"),
        ("s3cret", "the token is not the cluster's (HTTP 403)"),
    ],
)
def test_a_refusal_is_told_as_one_and_shows_no_token(token: str | None, why: str) -> None:
    with pytest.raises(Unreachable) as caught:
        ray_version(FakeDashboard(token="another"), token)
    assert caught.value.why == why
    assert "s3cret" not in str(caught.value)

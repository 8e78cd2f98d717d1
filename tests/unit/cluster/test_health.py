"""What a head is asked with the cluster's token, and how a refusal is told."""

from __future__ import annotations

import pytest

from rayfleet.cluster.health import live_workers, ray_version
from rayfleet.errors import Unreachable
from tests.unit.job.canned import Canned, CannedPool, answer

VERSION = answer({"ray_version": "2.60.0"})


def test_the_token_goes_with_every_question() -> None:
    nodes = answer({"data": {"result": {"result": []}}})
    pool = CannedPool([VERSION, nodes])
    assert ray_version(pool, "s3cret") == "2.60.0"
    assert live_workers(pool, "s3cret") == {}
    assert [headers["Authorization"] for _, _, headers, _ in pool.requests] == ["Bearer s3cret"] * 2


def test_a_cluster_without_authentication_gets_no_token() -> None:
    pool = CannedPool([VERSION])
    ray_version(pool)
    assert "Authorization" not in pool.requests[0][2]


@pytest.mark.parametrize(
    ("token", "status", "why"),
    [
        (None, 401, "it wants a token (HTTP 401)"),
        ("s3cret", 403, "the token is not the cluster's (HTTP 403)"),
    ],
)
def test_a_refusal_is_told_as_one_and_shows_no_token(
    token: str | None, status: int, why: str
) -> None:
    with pytest.raises(Unreachable) as caught:
        ray_version(CannedPool([Canned(status=status, text="s3cret")]), token)
    assert caught.value.why == why
    assert "s3cret" not in str(caught.value)

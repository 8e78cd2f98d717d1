"""The filters that Ray and rayfleet send to Compute Engine."""

from __future__ import annotations

import pytest

from rayfleet.emulator.filters import matches
from rayfleet.emulator.refusals import Refused

ROW = {
    "name": "head-1",
    "status": "RUNNING",
    "zone": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central2-b",
    "labels": {"ray-cluster-name": "marin", "ray-node-type": "head"},
    "scheduling": {"preemptible": True},
}


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("", True),
        ("labels.ray-cluster-name = marin", True),
        ("labels.ray-cluster-name=mari", False),
        ('labels.ray-cluster-name = "marin"', True),
        ("labels.ray-cluster-name != marin", False),
        ("labels.none != marin", True),
        ("labels.ray-node-type:*", True),
        ("labels.tpu_cores:*", False),
        ("NOT labels.tpu_cores:*", True),
        ("name:head", True),
        ("name:worker", False),
        ("scheduling.preemptible = true", True),
        ("zone:us-central2-b", True),
        ("status = RUNNING labels.ray-node-type = head", True),
        ("status = STAGING OR status = RUNNING", True),
        ("status = STAGING OR status = RUNNING AND name = x", False),
        ("(status = RUNNING OR name = x) AND NOT name = head-1", False),
        (
            "((labels.ray-node-type = head)) AND ((status = PROVISIONING) OR (status = RUNNING))"
            " AND (labels.ray-cluster-name = marin) AND (NOT labels.tpu_cores:*)",
            True,
        ),
    ],
)
def test_a_row_matches_what_asks_for_it(expression: str, wanted: bool) -> None:
    assert matches(expression, ROW) is wanted


@pytest.mark.parametrize(
    "expression", ["name", "name =", "(name = x", "name = x)", "name == x", "= x", "name ? x"]
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(Refused, match="Invalid list filter expression"):
        matches(expression, ROW)

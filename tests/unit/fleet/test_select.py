"""Which clusters ``--cluster`` and ``--all`` mean."""

from __future__ import annotations

import pytest

from rayfleet.errors import UnknownCluster, UsageError
from rayfleet.fleet.select import select_clusters, select_one
from tests.unit.fleet.conftest import Place


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["us-west4"], ["us-west4"]),
        (["us-west4", "us-east5", "us-west4"], ["us-east5", "us-west4"]),
        (["us-*"], ["us-east5", "us-west4"]),
        (["*-east?", "us-east5"], ["us-east5"]),
    ],
)
def test_names_and_globs_select_in_fleet_order(
    place: Place, names: list[str], expected: list[str]
) -> None:
    chosen = select_clusters(place.load(), names, every=False)
    assert [cluster.name for cluster in chosen] == expected


def test_all_means_all(place: Place) -> None:
    assert len(select_clusters(place.load(), [], every=True)) == 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("us-east", "did you mean us-east5, us-west4?"),
        ("marin-us-east5", "did you mean us-east5?"),
        ("US-EAST5", "no cluster 'US-EAST5': the fleet has us-east5, us-west4"),
        ("eu-*", "no cluster 'eu-*': the fleet has us-east5, us-west4"),
    ],
)
def test_nothing_is_guessed(place: Place, name: str, hint: str) -> None:
    with pytest.raises(UnknownCluster) as caught:
        select_clusters(place.load(), ["us-west4", name], every=False)
    assert hint in str(caught.value)


def test_neither_and_both_are_refused(place: Place) -> None:
    with pytest.raises(UsageError, match="no cluster is chosen"):
        select_clusters(place.load(), [], every=False)
    with pytest.raises(UsageError, match="both"):
        select_clusters(place.load(), ["us-west4"], every=True)


def test_where_one_cluster_is_needed_a_glob_of_several_is_refused(place: Place) -> None:
    assert select_one(place.load(), ["us-east5"]).name == "us-east5"
    with pytest.raises(UsageError, match="one --cluster is needed here: these were chosen"):
        select_one(place.load(), ["*"])

"""Leases: a rollout's cluster is its own until it gives it free, however long it is silent."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayfleet.cluster.lease import (
    STALE_SECONDS,
    Lease,
    Names,
    free_cluster,
    hold_cluster,
    lease_of,
    release_cluster,
)
from rayfleet.errors import Locked
from rayfleet.waiting import wait_until

A = Names(name="us-east5", identity="ray-us-east5")
B = Names(name="europe", identity="ray-europe")


@dataclass(frozen=True)
class Place:
    """Where the state folder is."""

    state: Path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def hold(place: Place, rollout: str = "R1", cluster: Names = A, beat: float = 5.0):  # type: ignore[no-untyped-def]
    return hold_cluster(place, cluster, rollout=rollout, operator="olga@desk", beat=beat)


def lease(place: Place, cluster: Names = A) -> Lease:
    found = lease_of(place, cluster)
    assert found is not None
    return found


def silent(place: Place, seconds: float) -> None:
    """Let the last sign of life of the lease be so long ago."""
    then = time.time() - seconds
    os.utime(place.state / "leases" / f"{A.identity}.json", (then, then))


def test_a_lease_names_its_rollout_and_outlives_the_work(place: Place) -> None:
    assert lease_of(place, A) is None
    with hold(place):
        held = lease(place)
        assert (held.rollout, held.operator, held.pid) == ("R1", "olga@desk", os.getpid())
        assert held.running
        assert not held.stale(time.time())
    left = lease(place)
    assert left.rollout == "R1"
    assert not left.running
    assert left.stale(time.time())
    assert lease_of(place, B) is None


def test_the_same_rollout_takes_its_lease_up_again(place: Place) -> None:
    with hold(place):
        pass
    silent(place, 3600)
    with hold(place):
        assert not lease(place).stale(time.time())


@pytest.mark.parametrize("seconds", [0, STALE_SECONDS + 1, 86400 * 30])
def test_the_lease_of_another_rollout_is_never_taken(place: Place, seconds: float) -> None:
    with hold(place):
        pass
    silent(place, seconds)
    with pytest.raises(Locked) as refused, hold(place, "R2"):
        pass
    assert refused.value.exit_code == 5
    assert lease(place).rollout == "R1"
    text = refused.value.text()
    for word in ("us-east5", "R1", "olga@desk", str(os.getpid()), "last sign of life"):
        assert word in text
    assert "invoke rollouts.show R1" in refused.value.next_step
    with hold(place, "R2", B):
        pass


def test_a_stale_lease_says_since_when_it_is_silent(place: Place) -> None:
    with hold(place):
        pass
    silent(place, 7200)
    assert "gave its last sign of life 2 hours ago" in lease(place).describe(time.time())
    assert "unlock" in lease(place).refusal(time.time()).next_step


def test_start_and_stop_are_refused_while_a_rollout_has_the_cluster(place: Place) -> None:
    with free_cluster(place, A, next_step="invoke status --cluster us-east5"):
        pass
    with hold(place):
        with pytest.raises(Locked) as living, free_cluster(place, A, next_step=""):
            pass
        assert "works on it since" in living.value.text()
    with pytest.raises(Locked, match="R1"), free_cluster(place, A, next_step=""):
        pass
    release_cluster(place, A, rollout="R1")
    with free_cluster(place, A, next_step=""):
        pass


def test_a_run_outside_of_rollouts_keeps_a_rollout_away(place: Place) -> None:
    with (
        free_cluster(place, A, next_step="invoke status --cluster us-east5"),
        pytest.raises(Locked, match="being changed by another run"),
        hold(place),
    ):
        pass
    assert lease_of(place, A) is None


def test_only_its_own_rollout_gives_a_cluster_free(place: Place) -> None:
    with hold(place):
        pass
    release_cluster(place, A, rollout="R2")
    assert lease(place).rollout == "R1"
    release_cluster(place, A, rollout="R1")
    assert lease_of(place, A) is None
    release_cluster(place, A, rollout="R1")


def test_a_damaged_lease_is_a_lease(place: Place) -> None:
    with hold(place):
        pass
    path = place.state / "leases" / f"{A.identity}.json"
    for text in ("", "[1]", "{}", json.dumps({"acquired": "x", "pid": 1})):
        path.write_text(text)
        with pytest.raises(Locked, match="UNKNOWN"), hold(place):
            pass
    release_cluster(place, A)
    assert lease_of(place, A) is None


def test_a_held_lease_gives_signs_of_life(place: Place) -> None:
    with hold(place, beat=0.01):
        silent(place, 3600)
        wait_until(lambda: not lease(place).stale(time.time()), what="a sign of life", timeout=30)
    silent(place, 3600)
    time_of_death = lease(place).beat
    with hold(place, cluster=B, beat=0.01):
        pass
    assert lease(place).beat == time_of_death


def test_no_sign_of_life_is_stale_even_if_somebody_has_the_lock(place: Place) -> None:
    with hold(place):
        silent(place, STALE_SECONDS + 1)
        assert lease(place).running
        assert lease(place).stale(time.time())

"""Each known state is recognised, told from its neighbours, and never seen in what was not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rayfleet.cluster.health import ask
from rayfleet.errors import Unreachable
from rayfleet.health.holding import Holdings, Kind
from rayfleet.health.sight import Finding, Sight
from rayfleet.health.states import KNOWN, LOST, findings
from rayfleet.rollout.gates.scaling import Scaling
from tests.support.fake_dashboard import FakeDashboard
from tests.unit.health.sights import (
    IDENTITY,
    NOW,
    ONE,
    PAIR,
    SLICES,
    head,
    joined,
    node,
    sight,
    slice_,
)

GONE = tuple(replace(one, state="PREEMPTED") for one in SLICES)


def states(seen: Sight) -> dict[str, Finding]:
    found = findings(seen)
    assert len({(one.state, one.subjects) for one in found}) == len(found)
    assert all(one.remedy for one in found)
    return {one.state: one for one in found}


def test_a_healthy_cluster_is_in_no_known_state() -> None:
    assert findings(sight()) == ()


def test_a_stopped_cluster_is_in_none_either() -> None:
    seen = {"head": "", "ray_version": "", "image_digest": "", "config_hash": ""}
    stopped = sight(members=(), seen=seen, nodes={}, scaling=None, holdings=Holdings())
    assert findings(stopped) == ()


def test_only_a_head_left_because_the_autoscaler_lost_its_workers() -> None:
    found = states(sight(head(), *GONE, members=()))
    assert set(found) == {"autoscaler lost its workers", "leftovers"}
    lost = found["autoscaler lost its workers"]
    assert lost.found == (
        "only the head left, 3 PREEMPTED; "
        "the autoscaler asks for none of the missing 1 tpu_slice_v6e_16, 2 tpu_worker"
    )
    assert lost.remedy == "invoke restart --cluster us-east5"


@pytest.mark.parametrize(
    "changes",
    [
        {"scaling": Scaling(asked={PAIR: 1, ONE: 2})},
        {"scaling": None},
        {"holdings": None},
        {"holdings": Holdings(things=(head(), *(replace(s, state="CREATING") for s in SLICES)))},
        {"seen": {"wanted_workers": {}}},
        {"seen": {"ray_version": "", "problem": "x"}},
    ],
    ids=["asked", "no report", "cloud silent", "being made", "no minimum", "head silent"],
)
def test_workers_that_are_missing_for_another_reason_are_not_lost(changes: dict[str, Any]) -> None:
    assert "autoscaler lost its workers" not in states(sight(head(), *GONE, members=(), **changes))


@pytest.mark.parametrize("state", ["TERMINATED", "STOPPING"])
def test_a_vm_that_runs_does_not_hide_the_preempted_ones_beside_it(state: str) -> None:
    """A VM that runs is RUNNING, a slice READY: neither is on its way."""
    runs, gone = (
        slice_(number, f"10.0.{number}.1", kind=Kind.VM, state=now)
        for number, now in enumerate(("RUNNING", state), 2)
    )
    seen = {"wanted_workers": {ONE: 2}}
    lost = states(sight(head(), runs, gone, members=joined(runs), seen=seen))[LOST]
    assert lost.found == (
        f"1 worker left, 1 {state}; the autoscaler asks for none of the missing 1 tpu_worker"
    )
    for now in ("PROVISIONING", "STAGING"):
        coming = replace(gone, state=now)
        assert LOST not in states(sight(head(), runs, coming, members=joined(runs), seen=seen))
    # One that runs and has not joined is another state.
    unjoined = replace(gone, state="RUNNING")
    assert LOST not in states(sight(head(), runs, unjoined, members=joined(runs), seen=seen))


def test_one_type_may_be_lost_while_another_is_on_its_way() -> None:
    found = states(sight(head(), *GONE, members=(), scaling=Scaling(asked={ONE: 2})))
    assert found["autoscaler lost its workers"].subjects == (PAIR,)


def test_a_cloud_that_gives_none_is_no_fault_of_the_autoscaler() -> None:
    failures = {PAIR: ("There is no more capacity in the zone",), ONE: ("Quota limit",)}
    found = findings(sight(head(), members=(), scaling=Scaling(failures=failures)))
    assert [(one.state, one.subjects) for one in found] == [
        ("launches fail", (PAIR,)),
        ("launches fail", (ONE,)),
    ]
    eaten = findings(sight(head(), *GONE, members=(), scaling=Scaling(failures=failures)))
    assert eaten[0].remedy == "invoke gc --cluster us-east5"


def test_a_slice_of_which_a_machine_never_joined_is_half_registered() -> None:
    found = states(sight(members=joined(*SLICES)[1:]))
    half = found.pop("half-registered slice")
    assert half.found == f"1 of the 2 machines of {SLICES[0].name} joined"
    assert half.remedy.startswith(f"gcloud compute tpus tpu-vm delete {SLICES[0].name} --zone us-")
    assert found == {}


def test_a_slice_that_runs_and_never_joined_is_unregistered() -> None:
    found = states(sight(members=joined(*SLICES[:2])))
    assert found["unregistered slice"].subjects == (SLICES[2].name,)


@pytest.mark.parametrize("changes", [{"created": NOW - 600}, {"created": None}])
def test_a_slice_that_is_still_booting_is_not(changes: dict[str, Any]) -> None:
    young = slice_(1, "10.0.1.1", "10.0.1.2", **changes)
    assert states(sight(head(), young, *SLICES[1:], members=joined(*SLICES)[1:])) == {}


def test_workers_without_a_head_are_told() -> None:
    gone = {"head": "", "ray_version": "", "image_digest": "", "config_hash": ""}
    found = states(sight(*SLICES, members=(), seen=gone, nodes={}, scaling=None))
    assert set(found) == {"workers without a head"}
    # Not where nobody could say whether there is one.
    unknown = sight(*SLICES, members=(), seen=gone | {"problem": "?"}, nodes={}, scaling=None)
    assert set(states(unknown)) == {"head unknown"}


def test_workers_without_a_head_are_told_where_the_cloud_has_no_list() -> None:
    gone = {"head": "", "ray_version": "", "orphans": ("worker-1", "worker-2")}
    blind = replace(sight(members=(), seen=gone, nodes={}, scaling=None), holdings=None)
    (found,) = findings(blind)
    assert (found.state, found.subjects) == ("workers without a head", ("worker-1", "worker-2"))
    assert found.remedy == "invoke restart --cluster us-east5 --unhealthy repair"
    assert blind.observed.word() == "no head"


def test_what_is_still_ending_without_a_head_is_told() -> None:
    gone = {"head": "", "ray_version": "", "image_digest": "", "config_hash": ""}
    ending = replace(SLICES[0], state="DELETING")
    (found,) = findings(sight(ending, members=(), seen=gone, nodes={}, scaling=None))
    assert (found.state, found.subjects) == ("not gone yet", (ending.name,))
    assert found.remedy == "invoke stop --cluster us-east5"
    # Beside a head it is the autoscaler's daily work.
    assert findings(sight(head(), *SLICES, replace(ending, name="other"))) == ()


def test_workers_that_were_added_by_hand_wait_for_a_head_and_are_not_deleted() -> None:
    hand = slice_(9, "10.0.9.1", by_hand=True)
    gone = {"head": "", "ray_version": "", "image_digest": "", "config_hash": ""}
    assert findings(sight(hand, members=(), seen=gone, nodes={}, scaling=None)) == ()
    found = states(sight(head(), *SLICES, hand))
    assert set(found) == {"unregistered slice"}
    assert found["unregistered slice"].remedy == (
        "invoke workers.init --cluster us-east5 --name worker-00000009 --again"
    )


def test_two_heads_are_told() -> None:
    found = states(sight(head(), head(name="ray-x-head-2-compute"), *SLICES))
    assert set(found) == {"several heads"}


def test_a_dead_autoscaler_is_told_and_only_of_the_head() -> None:
    found = states(sight(nodes={"us-east5": node(autoscaler=False)}))
    assert set(found) == {"no autoscaler"}


def test_versions_that_differ_are_told_of_this_machine_and_of_workers() -> None:
    found = findings(
        sight(ours="2.61.0", nodes={"us-east5": node(), "us-east5/w": node(ray="2.53.0")})
    )
    assert [one.found for one in found if one.state == "version skew"] == [
        "the head runs Ray 2.60.0, this machine has 2.61.0",
        "us-east5/w has Ray 2.53.0, the head runs 2.60.0",
    ]


def test_a_worker_that_was_added_by_hand_and_differs_is_set_up_anew_alone() -> None:
    hand = slice_(9, "10.0.9.1", by_hand=True)
    short = hand.name.partition(f"{IDENTITY}-")[2]
    nodes = {"us-east5": node(), f"us-east5/{short}#1": node(ray="2.53.0")}
    (found,) = findings(sight(head(), *SLICES, hand, members=joined(*SLICES, hand), nodes=nodes))
    assert found.state == "version skew"
    name = short.removesuffix("-tpu")
    assert found.remedy == f"invoke workers.init --cluster us-east5 --name {name} --again"


def test_other_images_are_told_of_the_head_and_of_workers() -> None:
    other = f"sha256:{'b' * 64}"
    found = findings(
        sight(
            seen={"image_digest": other, "config_hash": "before"},
            nodes={"us-east5": node(image="r/i@b"), "us-east5/w": node(image="r/i@c")},
        )
    )
    assert [(one.state, one.found) for one in found] == [
        ("image drift", "the head runs sha256:bbbbbbbbbbbb, not sha256:aaaaaaaaaaaa"),
        ("image drift", "us-east5/w runs r/i@c, the head r/i@b"),
        ("config drift", "it was started with another config than the generated one"),
    ]


def test_a_bucket_of_two_regions_is_right_in_both() -> None:
    for region, right in (("us-central1", True), ("us-east1", True), ("us-east5", False)):
        cluster = replace(sight().cluster, region=region)
        assert (findings(sight(cluster=cluster, bucket="nam4")) == ()) is right


@pytest.mark.parametrize("place", ["us-east5", "us"])
def test_a_bucket_of_the_region_or_its_continent_is_right(place: str) -> None:
    assert findings(sight(bucket=place)) == ()


@pytest.mark.parametrize(
    ("place", "state"),
    [
        ("us-central2", "bucket of another region"),
        ("us-east1", "bucket of another region"),
        ("eu", "bucket of another region"),
        ("nam4", "bucket of another region"),
        ("", "no bucket"),
    ],
)
def test_a_bucket_elsewhere_is_told(place: str, state: str) -> None:
    assert set(states(sight(bucket=place))) == {state}


def test_a_disk_nearly_full_is_told_with_the_way_to_its_node() -> None:
    found = states(sight(nodes={"us-east5": node(), "us-east5/worker-1": node(used=0.97)}))
    full = found.pop("disk nearly full")
    assert found == {}
    assert full.found == "us-east5/worker-1: / is 97% full, 6.0 GiB are free"
    assert full.remedy.startswith("invoke ssh --cluster us-east5 --node worker-1 -- ")
    assert findings(sight(nodes={"us-east5": node(used=0.89)})) == ()


def test_nothing_is_concluded_from_what_was_not_seen() -> None:
    silent = sight(
        members=(),
        seen={"ray_version": "", "problem": "no answer", "image_digest": "", "config_hash": ""},
        holdings=None,
        nodes={},
        scaling=None,
        bucket=None,
        ours="",
    )
    assert set(states(silent)) == {"head does not answer"}


def test_a_token_that_is_refused_is_no_reason_for_a_restart() -> None:
    with pytest.raises(Unreachable) as caught:
        ask(FakeDashboard(token="new"), "/api/version", "old")
    problem = f"{caught.value.what}: {caught.value.why}"
    seen = {"ray_version": "", "problem": problem, "image_digest": "", "config_hash": ""}
    found = states(sight(members=(), seen=seen, nodes={}, scaling=None))
    assert set(found) == {"token refused"}
    assert "restart" not in found["token refused"].remedy


def test_every_state_has_a_name_of_its_own() -> None:
    assert len(KNOWN) == len(set(KNOWN.values()))

"""What a fleet needs, asked of its files, its cloud and its heads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rayfleet.fleet.model import Pin
from rayfleet.fleet.pins import write_pin
from rayfleet.registry.uses import Kind, Use, Uses
from rayfleet.rollout.uses.collect import images_in_use
from tests.support.protected_fleet import ProtectedFleet, protected_fleet

pytestmark = pytest.mark.integration

ONE, TWO, THREE, FOUR = (f"sha256:{str(number) * 64}" for number in range(1, 5))
NOW = datetime(2026, 11, 21, 20, tzinfo=UTC)


@pytest.fixture
def fleet(tmp_path: Path) -> ProtectedFleet:
    return protected_fleet(tmp_path)


def in_use(fleet: ProtectedFleet) -> Uses:
    return images_in_use(fleet.project, fleet.fleet, now=NOW)


def named(uses: Uses, *, region: str = "") -> dict[str, set[str]]:
    """Who needs what, by digest or tag."""
    found: dict[str, set[str]] = {}
    for use in uses.known:
        if use.region in {"", region} or not region:
            found.setdefault(use.digest or use.tag, set()).add(use.by)
    return found


def test_both_pins_are_needed_in_every_region(fleet: ProtectedFleet) -> None:
    for digest in (ONE, TWO):
        write_pin(fleet.fleet.outputs.pins, "cluster", Pin(tag="t", digest=digest))
    found = {use.digest: use for use in in_use(fleet).known if use.digest}
    assert found[TWO].by == "the current pin of cluster"
    assert found[ONE].by == "the previous pin of cluster"
    assert {use.region for use in found.values()} == {""}
    assert {(use.repository, use.package) for use in found.values()} == {("marin", "marin_cluster")}


def test_configs_count_also_those_of_clusters_that_left_the_fleet(fleet: ProtectedFleet) -> None:
    fleet.config("us-east5", fleet.image("us-east5", ONE, "t1"))
    left = fleet.fleet.outputs.configs / "gone.yaml"
    left.write_text(f"docker: {{image: '{fleet.image('us-central2', tag='t2')}'}}")
    found = in_use(fleet)
    assert (
        Use(
            by="the config of us-east5",
            kind=Kind.CONFIG,
            digest=ONE,
            region="us-east5",
            repository="marin",
            package="marin_cluster",
        )
        in found.known
    )
    assert named(found)["t2"] == {"the config of gone"}


def test_nodes_and_heads_are_asked_what_they_run(fleet: ProtectedFleet) -> None:
    fleet.nodes(
        us_central2={"head": ONE, "w1": ONE, "w2": TWO},
        us_east5={},
    )
    fleet.started(fleet.image("us-central2", THREE))
    found = in_use(fleet)
    assert found.unknown == ()
    by_digest = named(found, region="us-central2")
    assert by_digest[ONE] == {"2 nodes of us-central2"}
    assert by_digest[TWO] == {"1 node of us-central2"}
    assert by_digest[THREE] == {"the head of us-central2"}
    assert THREE not in named(found, region="us-east5")


def test_a_head_of_google_says_it_itself_by_its_records_or_by_docker(fleet: ProtectedFleet) -> None:
    fleet.nodes(us_central2={"head": "", "w1": ""}, us_east5={})
    bootstrap = fleet.sshd.folder / "ray_bootstrap_config.yaml"
    bootstrap.write_text(f"docker: {{image: {fleet.image('us-central2', FOUR, '20260101')}}}")
    found = in_use(fleet)
    assert found.unknown == ()
    assert named(found)[FOUR] == {"the head of us-central2"}


def test_a_cloud_that_does_not_answer_makes_the_region_unknown(fleet: ProtectedFleet) -> None:
    kept = fleet.project.state / "started"
    kept.mkdir()
    (kept / "us-central2.yaml").write_text(fleet.image("us-central2", ONE))
    fleet.nodes(us_east5={})
    found = in_use(fleet)
    (unknown,) = found.unknown
    assert (unknown.by, unknown.region) == ("us-central2", "us-central2")
    assert "the cloud does not answer" in unknown.why
    assert unknown.next_step
    assert named(found)[ONE] == {"the last start of us-central2"}


def test_a_head_that_refuses_us_is_unknown_and_its_nodes_count(fleet: ProtectedFleet) -> None:
    fleet.nodes(us_central2={"head": ONE}, us_east5={})
    (fleet.sshd.folder / "client_key.pub").write_text("")
    found = in_use(fleet)
    assert [each.by for each in found.unknown] == ["us-central2"]
    assert ONE in named(found)


def test_a_head_that_says_nothing_is_unknown(fleet: ProtectedFleet) -> None:
    fleet.nodes(us_central2={"head": ""}, us_east5={})
    (unknown,) = in_use(fleet).unknown
    assert "does not say which image it runs" in unknown.why


def test_workers_without_a_head_are_unknown_where_a_vm_is_no_image(fleet: ProtectedFleet) -> None:
    fleet.nodes(us_central2={"w1": ""}, us_east5={"w1": TWO})
    found = in_use(fleet)
    (unknown,) = found.unknown
    assert unknown.by == "us-central2"
    assert unknown.next_step == "invoke stop --cluster us-central2"
    assert named(found)[TWO] == {"1 node of us-east5"}


def test_a_cluster_without_a_config_cannot_be_asked(fleet: ProtectedFleet) -> None:
    fleet.fleet.config_path(fleet.fleet.clusters["us-east5"]).unlink()
    (unknown,) = in_use(fleet).unknown
    assert unknown.by == "us-east5"
    assert "invoke update-configs" in unknown.next_step


def test_only_clusters_of_the_named_regions_are_asked(fleet: ProtectedFleet) -> None:
    fleet.nodes(us_east5={})
    found = images_in_use(fleet.project, fleet.fleet, regions=["us-east5"], now=NOW)
    assert found.unknown == ()


def rollout(fleet: ProtectedFleet, begun: datetime, *, plan: str, previous: str) -> Path:
    folder = fleet.project.state / "rollouts" / f"{begun:%Y%m%dT%H%M%SZ}-abcd"
    for name, image in (("configs", fleet.image("us-east5", ONE)), ("previous", previous)):
        (folder / name).mkdir(parents=True)
        (folder / name / "us-east5.yaml").write_text(f"docker: {{image: {image}}}")
    (folder / "plan.json").write_text(plan)
    (folder / "journal.jsonl").write_text("")
    return folder


def test_a_rollout_needs_what_it_brings_and_what_it_goes_back_to(fleet: ProtectedFleet) -> None:
    # Damaged, so nobody knows whether it is finished: it counts, however old it is.
    begun = NOW - timedelta(days=400)
    gone = f"127.0.0.1:1/{fleet.fleet.project}/marin/marin_cluster@{TWO}"
    rollout(fleet, begun, plan=f'{{"digest_now": "{THREE}"', previous=gone)
    found = named(in_use(fleet), region="us-east5")
    name = f"{begun:%Y%m%dT%H%M%SZ}-abcd"
    assert found[ONE] == {f"the target of us-east5 in rollout {name}"}
    assert found[TWO] == {f"the way back of us-east5 in rollout {name}"}
    assert found[THREE] == {f"rollout {name}"}


def test_a_rollout_that_cannot_be_read_is_not_taken_for_none(fleet: ProtectedFleet) -> None:
    folder = rollout(fleet, NOW, plan="{}", previous=fleet.image("us-east5", TWO))
    (folder / "plan.json").unlink()
    (folder / "plan.json").mkdir()
    (unknown,) = in_use(fleet).unknown
    assert (unknown.by, unknown.region) == (f"rollout {folder.name}", "")

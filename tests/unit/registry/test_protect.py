"""Protecting what a pin is about to name."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rayfleet.errors import Locked, RayfleetError, ToolFailed, Unreachable
from rayfleet.fleet.model import Cleanup, Fleet, Outputs, Pin
from rayfleet.fleet.pins import write_pin
from rayfleet.registry.cleanup import set_cleanup_policies
from rayfleet.registry.client import Repository
from rayfleet.registry.plan import taken
from rayfleet.registry.policy import Action, Condition, Policy, Version, desired_policies
from rayfleet.registry.protect import protect_pin
from rayfleet.registry.protection import protected, protection
from rayfleet.registry.uses import Kind, Use, Uses
from tests.support.artifact_registry import fleet_of, place, quiet
from tests.support.memory_api import MemoryApi

NOW = datetime(2026, 11, 21, tzinfo=UTC)
REGIONS = ("us-east5", "us-central2")
ONE, TWO, THREE = (f"sha256:{str(number) * 64}" for number in range(1, 4))
OURS = desired_policies(Cleanup(keep_most_recent=1))


def version(digest: str, *, days: int, children: tuple[str, ...] = ()) -> Version:
    return Version(
        package="marin_cluster",
        digest=digest,
        uploaded=NOW - timedelta(days=days),
        children=children,
    )


def api_with(*policies: Policy, dry_run: bool = False) -> MemoryApi:
    found = {
        place(region): Repository(place=place(region), policies=policies, policies_dry_run=dry_run)
        for region in REGIONS
    }
    held = (version(ONE, days=90), version(TWO, days=60), version(THREE, days=1))
    return MemoryApi(found, held=dict.fromkeys(found, held))


def kept(api: MemoryApi, region: str = "us-east5") -> frozenset[str]:
    return protected(api.repositories[place(region)].policies)[0]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    plain = fleet_of(REGIONS, api="127.0.0.1:1")
    return replace(plain, outputs=Outputs(pins=tmp_path / "pins.yaml", configs=tmp_path))


def uses_of(digest: str) -> Uses:
    return Uses(known=(Use(by="a pin elsewhere", kind=Kind.PIN, digest=digest),))


def protect(fleet: Fleet, api: MemoryApi | None, digest: str, *, strict: bool = False) -> str:
    """Protect a pin to ``digest``; returns what was said."""
    console = quiet()
    pin = Pin(tag="t", digest=digest)
    protect_pin(fleet, "cluster", pin, console=console, now=NOW, api=api, strict=strict)
    assert isinstance(console.err, io.StringIO)
    return console.err.getvalue()


def test_the_new_and_the_old_pin_are_kept_in_every_region(fleet: Fleet) -> None:
    write_pin(fleet.outputs.pins, "cluster", Pin(tag="old", digest=TWO))
    api = api_with(*OURS)
    assert protect(fleet, api, ONE) == ""
    assert all(kept(api, region) == {ONE, TWO} for region in REGIONS)
    assert set(OURS) <= set(api.repositories[place("us-east5")].policies)


def test_what_is_kept_already_is_not_written_again(fleet: Fleet) -> None:
    api = api_with(*OURS, *protection([ONE, TWO], [], room=1))
    protect(fleet, api, ONE)
    assert api.writes == []
    assert kept(api) == {ONE, TWO}


def test_nothing_that_was_kept_is_given_up_and_a_rehearsal_stays_one(fleet: Fleet) -> None:
    api = api_with(*OURS, *protection([TWO], ["v1"], room=2), dry_run=True)
    protect(fleet, api, ONE)
    assert kept(api) == {ONE, TWO}
    assert protected(api.repositories[place("us-east5")].policies)[1] == {"v1"}
    assert api.repositories[place("us-east5")].policies_dry_run


def test_the_parts_of_an_index_are_kept_as_well(fleet: Fleet) -> None:
    api = api_with(*OURS)
    api.held = dict.fromkeys(
        api.repositories, (version(ONE, days=90, children=(TWO,)), version(TWO, days=90))
    )
    protect(fleet, api, ONE)
    assert kept(api) == {ONE, TWO}


def test_a_repository_that_deletes_nothing_is_left_alone(fleet: Fleet) -> None:
    api = api_with()
    protect(fleet, api, ONE)
    assert api.writes == []
    protect(fleet, MemoryApi(), ONE)


def test_who_may_not_set_policies_may_publish_and_hears_of_it(fleet: Fleet) -> None:
    api = api_with(*OURS)
    api.read_only = True
    said = protect(fleet, api, THREE)
    assert said.count("not protected from cleanup policies: not permitted") == len(REGIONS)
    assert "next: invoke registry.cleanup" in said


def test_an_image_that_would_go_at_the_next_sweep_is_not_pinned_unprotected(fleet: Fleet) -> None:
    api = api_with(*OURS)
    api.read_only = True
    with pytest.raises(ToolFailed, match="delete what is in use") as caught:
        protect(fleet, api, ONE)
    assert ONE in caught.value.text()
    rehearsed = api_with(*OURS, dry_run=True)
    rehearsed.read_only = True
    assert "not protected" in protect(fleet, rehearsed, ONE)


def test_a_cleanup_that_looked_before_does_not_take_the_rule_away(fleet: Fleet) -> None:
    cleanup = Cleanup(keep_most_recent=1)
    registries = replace(fleet.registries, regions=("us-east5",), cleanup=cleanup)
    one_region = replace(fleet, registries=registries)
    api = api_with(*OURS)
    # A rollback of another checkout, whose pin file this one does not see.
    api.meanwhile.append(lambda: protect(one_region, api, ONE))

    report = set_cleanup_policies(one_region, console=quiet(), uses=uses_of(TWO), api=api)

    report.raise_failures()
    policies = api.repositories[place("us-east5")].policies
    assert not taken(policies, api.versions(place("us-east5")), uses_of(ONE), now=NOW)


def test_two_who_protect_at_once_keep_both_images(fleet: Fleet) -> None:
    api = api_with(*OURS)
    api.meanwhile.append(lambda: protect(fleet, api, TWO))
    protect(fleet, api, ONE)
    assert all(kept(api, region) == {ONE, TWO} for region in REGIONS)


def test_policies_that_never_stay_are_an_error_and_not_a_loop(fleet: Fleet) -> None:
    one_region = replace(fleet, registries=replace(fleet.registries, regions=("us-east5",)))
    api = api_with(*OURS)
    here = place("us-east5")

    def change(number: int) -> None:
        other = Policy(id=f"other-{number}", action=Action.KEEP, rule=Condition())
        api.repositories[here] = replace(api.repositories[here], policies=(*OURS, other))

    api.meanwhile += [lambda number=number: change(number) for number in range(50)]  # type: ignore[misc]
    report = set_cleanup_policies(
        one_region, console=quiet(), uses=uses_of(ONE), api=api, regions=["us-east5"]
    )
    with pytest.raises(Locked, match="change again and again"):
        report.raise_failures()
    assert api.writes == []


@pytest.mark.parametrize("broken", [("us-central2",), REGIONS])
def test_a_pin_that_must_be_protected_needs_every_region(
    fleet: Fleet, broken: tuple[str, ...]
) -> None:
    api = api_with(*OURS)
    api.broken = frozenset(broken)
    with pytest.raises(RayfleetError, match=f"{broken[0]}/marin is down") as caught:
        protect(fleet, api, ONE, strict=True)
    assert "cannot be protected from cleanup policies" in caught.value.text()
    assert "not pinned" in caught.value.text()
    assert caught.value.next_step


def test_a_pin_that_must_be_protected_needs_an_api(fleet: Fleet) -> None:
    with pytest.raises(Unreachable, match="cannot be protected"):
        protect(
            replace(fleet, registries=replace(fleet.registries, api="")), None, ONE, strict=True
        )


def test_a_pin_that_must_be_protected_needs_the_right_to_set_policies(fleet: Fleet) -> None:
    api = api_with(*OURS)
    api.read_only = True
    with pytest.raises(ToolFailed, match="not permitted"):
        protect(fleet, api, THREE, strict=True)
    # Nothing has to be written where nothing is deleted, or the rule is there.
    for fine in (api_with(), api_with(*OURS, *protection([THREE], [], room=1))):
        fine.read_only = True
        assert protect(fleet, fine, THREE, strict=True) == ""


def test_a_region_that_does_not_answer_is_told_and_stops_no_publish(fleet: Fleet) -> None:
    api = api_with(*OURS)
    api.broken = frozenset({"us-central2"})
    said = protect(fleet, api, ONE)
    assert "us-central2/marin: not protected" in said
    assert kept(api) == {ONE}

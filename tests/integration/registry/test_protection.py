"""Policies that protect, set through the loopback API and carried out on real registries."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rayfleet.errors import PartialFailure, ToolFailed, Unreachable
from rayfleet.fleet.model import Pin
from rayfleet.fleet.pins import write_pin
from rayfleet.registry.cleanup import CleanupReport, set_cleanup_policies
from rayfleet.registry.client import Repository, artifact_registry_client
from rayfleet.registry.policy import Action, Condition, Policy, TagState
from rayfleet.registry.preview import Preview, preview_cleanup
from rayfleet.registry.protect import protect_pin
from rayfleet.rollout.uses.collect import images_in_use
from tests.integration.registry.test_policies import until_gone
from tests.support.artifact_registry import ApiServer, place, quiet
from tests.support.protected_fleet import ProtectedFleet, protected_fleet
from tests.support.registry import LocalRegistry
from tests.support.tiny_images import IMAGE, client_of, push

pytestmark = pytest.mark.integration

EAST = "us-east5"
TAKE_ALL = Policy(id="take-all", action=Action.DELETE, rule=Condition())


@pytest.fixture
def server(tmp_path: Path, registries: Mapping[str, LocalRegistry]) -> Iterator[ApiServer]:
    """One that sweeps when policies change, and not by itself: no test has to be quick."""
    api = ApiServer(folder=tmp_path / "api", registries=registries, interval=3600.0)
    api.start()
    yield api
    api.end(signal.SIGKILL)


@pytest.fixture
def fleet(
    tmp_path: Path, server: ApiServer, registries: Mapping[str, LocalRegistry]
) -> ProtectedFleet:
    hosts = {region: registry.host for region, registry in registries.items()}
    return protected_fleet(tmp_path / "fleet", hosts=hosts, api=server.address)


def clean_up(fleet: ProtectedFleet, *regions: str, rehearse: bool | None = False) -> CleanupReport:
    uses = images_in_use(fleet.project, fleet.fleet)
    return set_cleanup_policies(
        fleet.fleet, console=quiet(), uses=uses, regions=regions, rehearse=rehearse
    )


def until_swept(fleet: ProtectedFleet, registry: LocalRegistry) -> str:
    """Set the policies, and let the sweep that follows take something; returns what it left."""
    victim = push(registry, "victim", days_old=90)
    left = push(registry, "left", days_old=60)
    clean_up(fleet).raise_failures()
    until_gone(registry, victim)
    return left


def preview(fleet: ProtectedFleet) -> Preview:
    return preview_cleanup(fleet.fleet, uses=images_in_use(fleet.project, fleet.fleet))


def shown(found: Preview, region: str = EAST) -> dict[str, object]:
    console = quiet()
    found.show(console, as_json=True)
    assert isinstance(console.out, io.StringIO)
    rows = {each["region"]: each for each in json.loads(console.out.getvalue())}
    return dict(rows[region])


def is_there(registry: LocalRegistry, digest: str) -> bool:
    return client_of(registry).manifest_digest(IMAGE, digest) == digest


def test_old_images_of_a_pin_a_tag_and_a_head_stay_and_what_nobody_needs_goes(
    fleet: ProtectedFleet, registries: Mapping[str, LocalRegistry]
) -> None:
    registry = registries[EAST]
    pinned, tagged, runs, idle = (
        push(registry, tag, days_old=90) for tag in ("pinned", "20251209", "runs", "idle")
    )
    newest = push(registry, "newest", days_old=60)
    write_pin(fleet.fleet.outputs.pins, "cluster", Pin(tag="pinned", digest=pinned))
    fleet.config(EAST, fleet.image(EAST, tag="20251209"))
    fleet.nodes(us_central2={}, us_east5={"head": runs})
    # The sandbox's way in is the only one that has to work: this head is not asked by SSH.
    fleet.started(fleet.image(EAST, runs))
    clean_up(fleet)  # creates the repositories, which have no versions before that
    forecast = shown(preview(fleet))
    fates = {row["digest"]: row for row in forecast["versions"]}  # type: ignore[attr-defined]
    clean_up(fleet).raise_failures()
    until_gone(registry, idle)
    assert all(is_there(registry, digest) for digest in (pinned, tagged, runs, newest))
    assert [digest for digest, row in fates.items() if row["goes"]] in ([idle], [])
    assert fates[pinned]["used_by"] == ["the current pin of cluster"]
    assert fates[tagged]["used_by"] == [f"the config of {EAST}"]
    assert fates[runs]["used_by"] == [f"1 node of {EAST}", f"the head of {EAST}"]


def test_the_preview_says_what_goes_and_why_before_anything_does(
    fleet: ProtectedFleet, registries: Mapping[str, LocalRegistry]
) -> None:
    registry = registries[EAST]
    newest = until_swept(fleet, registry)
    idle = push(registry, "idle", days_old=90)
    found = preview(fleet)
    found.raise_failures()
    rows = {row["digest"]: row for row in shown(found)["versions"]}  # type: ignore[attr-defined]
    assert (rows[idle]["goes"], rows[newest]["goes"]) == (True, False)
    assert rows[idle]["why"] == "deleted by delete-older-than-30d: 90d old, number 2"
    assert rows[newest]["why"] == "kept by keep-1"
    table = quiet()
    found.show(table, as_json=False)
    assert isinstance(table.err, io.StringIO)
    assert "us-east5/marin: 1 of 2 versions go" in table.err.getvalue()
    assert is_there(registry, idle)


def test_where_a_cluster_does_not_answer_rules_are_only_added(
    fleet: ProtectedFleet, registries: Mapping[str, LocalRegistry]
) -> None:
    central, east = registries["us-central2"], registries[EAST]
    api = artifact_registry_client(fleet.fleet)
    for region in registries:
        api.create(place(region))
    old = {name: push(one, "old", days_old=90) for name, one in registries.items()}
    for registry in registries.values():
        push(registry, "new")
    pinned = push(east, "pinned", days_old=80)
    write_pin(fleet.fleet.outputs.pins, "cluster", Pin(tag="pinned", digest=pinned))
    fleet.nodes(us_central2={})
    report = clean_up(fleet)
    with pytest.raises(PartialFailure, match="us-east5/marin: not all that may need") as caught:
        report.raise_failures()
    assert "the cloud does not answer" in caught.value.text()
    report.raise_failures(strict=False)
    until_gone(central, old["us-central2"])
    found = api.read(place(EAST))
    assert found is not None
    assert [policy.id for policy in found.policies] == ["keep-in-use-1", "keep-in-use-tags"]
    assert is_there(east, old[EAST])
    with pytest.raises(PartialFailure, match="the cloud does not answer"):
        preview(fleet).raise_failures()
    fleet.nodes()
    with pytest.raises(Unreachable):
        clean_up(fleet).raise_failures()
    fleet.nodes(us_central2={}, us_east5={})
    clean_up(fleet).raise_failures()
    until_gone(east, old[EAST])
    assert is_there(east, pinned)


def test_a_rehearsal_is_set_and_read_back_and_ends(
    fleet: ProtectedFleet, server: ApiServer, registries: Mapping[str, LocalRegistry]
) -> None:
    api = artifact_registry_client(fleet.fleet)
    api.create(place(EAST))
    old = push(registries[EAST], "old", days_old=90)
    push(registries[EAST], "new")
    clean_up(fleet, rehearse=True).raise_failures()
    found = api.read(place(EAST))
    assert found is not None
    assert found.policies_dry_run
    kept = clean_up(fleet, rehearse=None)
    assert all(each.value and each.value.dry_run for each in kept.outcomes)
    assert is_there(registries[EAST], old)
    report = clean_up(fleet)
    assert all(each.value and each.value.goes_live for each in report.outcomes)
    until_gone(registries[EAST], old)


def test_a_pin_that_moves_to_an_old_image_protects_it_first(
    fleet: ProtectedFleet, registries: Mapping[str, LocalRegistry]
) -> None:
    registry = registries[EAST]
    until_swept(fleet, registry)
    promoted, idle = (push(registry, tag, days_old=90) for tag in ("promoted", "idle"))
    push(registry, "new")
    protect_pin(
        fleet.fleet, "cluster", Pin(tag="promoted", digest=promoted), console=quiet()
    )  # which wakes the sweeper, as every change of policies does
    until_gone(registry, idle)
    assert is_there(registry, promoted)
    found = artifact_registry_client(fleet.fleet).read(place(EAST))
    assert found is not None
    (rule,) = [p.rule for p in found.policies if p.id == "keep-in-use-1"]
    assert rule == Condition(tag_state=TagState.ANY, version_name_prefixes=(promoted,))


def test_a_policy_of_others_that_takes_what_runs_is_refused_with_the_remedy(
    fleet: ProtectedFleet, registries: Mapping[str, LocalRegistry]
) -> None:
    registry = registries[EAST]
    api = artifact_registry_client(fleet.fleet)
    api.create(place(EAST))
    victim = push(registry, "victim")
    assert api.set_policies(place(EAST), [TAKE_ALL], found=Repository(place=place(EAST)))
    until_gone(registry, victim)
    runs = push(registry, "runs")
    fleet.nodes(us_central2={}, us_east5={"head": runs})
    with pytest.raises(ToolFailed, match="delete what is in use") as caught:
        preview_cleanup(
            fleet.fleet, uses=images_in_use(fleet.project, fleet.fleet), regions=[EAST]
        ).raise_failures()
    said = caught.value.text()
    assert f"marin_cluster@{runs}, needed by 1 node of us-east5: deleted by take-all" in said
    assert said.endswith("next: invoke registry.cleanup --region us-east5")
    # Of this region alone: policies that are set anywhere make the server sweep everywhere.
    clean_up(fleet, EAST).raise_failures()
    preview(fleet).raise_failures()
    gone = push(registry, "gone", days_old=40)
    push(registry, "newest")
    clean_up(fleet, EAST, rehearse=True)
    clean_up(fleet, EAST)
    until_gone(registry, gone)
    assert is_there(registry, runs)


def test_nothing_is_missing_unsaid(fleet: ProtectedFleet) -> None:
    digest = f"sha256:{'9' * 64}"
    fleet.nodes(us_central2={}, us_east5={"head": digest})
    found = shown(preview(fleet))
    assert {"image": f"the image@{digest}", "needed_by": "1 node of us-east5"} in found["missing"]  # type: ignore[operator]

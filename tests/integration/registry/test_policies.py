"""Cleanup policies set through the loopback API and carried out on real registries."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rayfleet.registry.cleanup import set_cleanup_policies
from rayfleet.registry.client import artifact_registry_client
from rayfleet.registry.plan import Change
from rayfleet.registry.policy import Action, Condition, Policy, TagState, desired_policies
from rayfleet.registry.repositories import ensure_repositories
from rayfleet.registry.uses import Uses
from rayfleet.waiting import wait_until
from tests.support.artifact_registry import (
    ApiServer,
    family,
    fleet_of,
    place,
    quiet,
    raw_client,
)
from tests.support.registry import LocalRegistry
from tests.support.tiny_images import IMAGE, client_of, push, put_manifest

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.integration

REGIONS = ("us-central2", "us-east5")
KEEP_RELEASES = Policy(
    id="keep-releases",
    action=Action.KEEP,
    rule=Condition(tag_state=TagState.TAGGED, tag_prefixes=("v",)),
)


def until_gone(registry: LocalRegistry, digest: str) -> None:
    client = client_of(registry)
    wait_until(
        lambda: client.manifest_digest(IMAGE, digest) is None,
        what=f"{digest} to be deleted",
        timeout=30,
        interval=0.1,
    )


def until_tagged(registry: LocalRegistry, *tags: str) -> None:
    """Wait for just these tags: a registry deletes a manifest first, and then its tags."""
    client = client_of(registry)
    wait_until(
        lambda: client.tags(IMAGE) == tags, what=f"the tags {tags}", timeout=30, interval=0.1
    )


def test_policies_are_set_read_back_and_not_written_again(server: ApiServer) -> None:
    fleet = fleet_of(REGIONS, api=server.address)
    ensure_repositories(fleet, family(), console=quiet())
    reports = [set_cleanup_policies(fleet, console=quiet(), uses=Uses()) for _ in range(2)]
    changes = [[each.value.change for each in r.outcomes if each.value] for r in reports]
    assert changes == [[Change.SET] * 2, [Change.NONE] * 2]
    api = artifact_registry_client(fleet)
    for region in REGIONS:
        found = api.read(place(region))
        assert found is not None
        assert found.policies == desired_policies(fleet.registries.cleanup)
        assert not found.policies_dry_run


def test_a_foreign_policy_stays_and_our_older_value_goes(server: ApiServer) -> None:
    fleet = fleet_of(REGIONS, api=server.address, keep=4)
    set_cleanup_policies(fleet, console=quiet(), uses=Uses()).raise_failures()
    api = artifact_registry_client(fleet)
    found = api.read(place("us-east5"))
    assert found is not None
    assert api.set_policies(found.place, [KEEP_RELEASES], found=found)
    fleet = fleet_of(REGIONS, api=server.address, keep=5)
    report = set_cleanup_policies(fleet, console=quiet(), uses=Uses())
    report.raise_failures()
    found = api.read(place("us-east5"))
    assert found is not None
    assert {policy.id for policy in found.policies} == {
        "delete-older-than-30d",
        "keep-5",
        "keep-releases",
    }
    assert KEEP_RELEASES in found.policies


def test_what_is_old_and_not_among_the_newest_leaves_the_registry(
    server: ApiServer, registries: Mapping[str, LocalRegistry]
) -> None:
    registry = registries["us-east5"]
    old = [push(registry, f"old{number}", days_old=50 - number) for number in range(3)]
    young = [push(registry, f"young{number}") for number in range(3)]
    fleet = fleet_of(REGIONS, api=server.address, keep=4)
    set_cleanup_policies(fleet, console=quiet(), uses=Uses()).raise_failures()
    for digest in old[:2]:
        until_gone(registry, digest)
    until_tagged(registry, "old2", "young0", "young1", "young2")
    versions = artifact_registry_client(fleet).versions(place("us-east5"))
    assert {each.digest for each in versions} == {old[2], *young}
    said = f"marin_cluster@{old[0]} [old0] deleted by delete-older-than-30d: 50d"
    wait_until(lambda: said in server.log, what=f"the log to say {said}", timeout=30, interval=0.1)


def test_a_new_tag_does_not_make_an_old_version_young(
    server: ApiServer, registries: Mapping[str, LocalRegistry]
) -> None:
    registry = registries["us-east5"]
    fleet = fleet_of(REGIONS, api=server.address, keep=1)
    ensure_repositories(fleet, family(), console=quiet())
    old = push(registry, "old", days_old=40)
    api = artifact_registry_client(fleet)
    assert [each.digest for each in api.versions(place("us-east5"))] == [old]
    put_manifest(registry, "again", client_of(registry).manifest(IMAGE, old).raw)
    push(registry, "new")
    set_cleanup_policies(fleet, console=quiet(), uses=Uses()).raise_failures()
    until_gone(registry, old)
    until_tagged(registry, "new")


def test_the_sweep_comes_again_by_itself_and_a_rehearsal_deletes_nothing(
    tmp_path: Path, registries: Mapping[str, LocalRegistry]
) -> None:
    from google.cloud import artifactregistry_v1 as ar

    server = ApiServer(folder=tmp_path / "api", registries=registries, interval=0.2)
    server.start()
    try:
        registry = registries["us-east5"]
        fleet = fleet_of(REGIONS, api=server.address, keep=1)
        set_cleanup_policies(fleet, console=quiet(), uses=Uses()).raise_failures()
        raw = raw_client(server)
        repository = ar.Repository(name=place("us-east5").name, cleanup_policy_dry_run=True)
        mask = {"paths": ["cleanup_policy_dry_run"]}
        raw.update_repository({"repository": repository, "update_mask": mask}, timeout=10)
        old = push(registry, "old", days_old=40)
        push(registry, "new")
        wait_until(lambda: f"dry run: {repository.name}" in server.log, what="a sweep", timeout=30)
        assert client_of(registry).manifest_digest(IMAGE, old) == old
        set_cleanup_policies(fleet, console=quiet(), uses=Uses()).raise_failures()
        until_gone(registry, old)
        second = push(registry, "second", days_old=40)
        until_gone(registry, second)
    finally:
        assert server.end(signal.SIGTERM) == 0

"""Repositories through the loopback API: made, listed, refused, and there again after a kill."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.fleet.model import Cleanup
from rayfleet.registry.cleanup import set_cleanup_policies
from rayfleet.registry.client import (
    Place,
    Repositories,
    Repository,
    artifact_registry_client,
)
from rayfleet.registry.inventory import read_inventory
from rayfleet.registry.policy import desired_policies
from rayfleet.registry.repositories import ensure_repositories
from rayfleet.registry.uses import Uses
from tests.support.artifact_registry import (
    PROJECT,
    ApiServer,
    family,
    fleet_of,
    place,
    quiet,
    raw_client,
)
from tests.support.memory_api import MemoryApi
from tests.support.registry import LocalRegistry
from tests.support.tiny_images import IMAGE, client_of, push

if TYPE_CHECKING:
    from google.cloud import artifactregistry_v1 as ar

pytestmark = pytest.mark.integration

REGIONS = ("us-central2", "us-east5")


def test_missing_repositories_are_created_once_in_every_region(server: ApiServer) -> None:
    fleet = fleet_of(REGIONS, api=server.address)
    first = ensure_repositories(fleet, family(), console=quiet())
    second = ensure_repositories(fleet, family(), console=quiet())
    assert [(each.place.region, each.created) for each in first] == [(r, True) for r in REGIONS]
    assert [each.created for each in second] == [False, False]
    assert artifact_registry_client(fleet).create(place("us-east5")) is False


@pytest.mark.parametrize("kind", ["served", "memory"])
def test_policies_are_written_only_over_what_they_were_planned_from(
    server: ApiServer, kind: str
) -> None:
    """The same of the API and of the fake that unit tests use."""
    api: Repositories = MemoryApi()
    if kind == "served":
        api = artifact_registry_client(fleet_of(REGIONS, api=server.address))
    here, (delete, keep) = place("us-east5"), desired_policies(Cleanup())
    nothing = Repository(place=here)
    assert api.read(here) is None
    assert not api.set_policies(here, [delete], found=nothing)
    assert api.create(here)
    assert not api.create(here, [delete])
    assert api.set_policies(here, [delete], found=nothing)
    assert not api.set_policies(here, [keep], found=nothing, replaced=[delete.id])
    found = api.read(here)
    assert found == replace(nothing, policies=(delete,))
    assert not api.set_policies(here, [keep], found=replace(found, policies_dry_run=True))
    assert api.set_policies(here, [keep], found=found, dry_run=True)
    assert api.read(here) == replace(nothing, policies=(delete, keep), policies_dry_run=True)


def test_a_killed_server_comes_back_with_its_repositories(server: ApiServer) -> None:
    fleet = fleet_of(REGIONS, api=server.address)
    set_cleanup_policies(fleet, console=quiet(), uses=Uses()).raise_failures()
    before = artifact_registry_client(fleet).read(place("us-east5"))
    server.end(signal.SIGKILL)
    server.start()
    assert artifact_registry_client(fleet).read(place("us-east5")) == before
    assert before is not None
    assert before.policies == desired_policies(fleet.registries.cleanup)


def test_a_second_server_on_the_same_port_says_so(
    tmp_path: Path, server: ApiServer, registries: Mapping[str, LocalRegistry]
) -> None:
    second = ApiServer(folder=tmp_path / "two", registries=registries, address=server.address)
    assert second.start_in_vain() == 1
    assert f"cannot listen on {server.address}" in second.log
    assert "Traceback" not in second.log


def test_a_dead_api_is_unreachable_and_names_the_next_command(server: ApiServer) -> None:
    server.end(signal.SIGTERM)
    fleet = fleet_of(REGIONS, api=server.address)
    with pytest.raises(Unreachable, match=r"does not answer.*\n.*invoke sandbox\.up") as caught:
        ensure_repositories(fleet, family(), console=quiet())
    assert server.address in str(caught.value)


def test_the_inventory_shows_policies_and_versions(
    server: ApiServer, registries: Mapping[str, LocalRegistry]
) -> None:
    digest = push(registries["us-east5"], "v1", days_old=3)
    fleet = fleet_of(REGIONS, api=server.address)
    set_cleanup_policies(fleet, console=quiet(), uses=Uses(), regions=["us-east5"]).raise_failures()
    console = quiet()
    inventory = read_inventory(fleet)
    inventory.show(console, as_json=True)
    assert isinstance(console.out, io.StringIO)
    absent, there = json.loads(console.out.getvalue())
    assert (absent["region"], absent["exists"]) == ("us-central2", False)
    (version,) = there["versions"]
    assert (version["package"], version["digest"]) == ("marin_cluster", digest)
    assert version["tags"] == ["v1"]
    assert version["age_seconds"] // 86400 == 3
    assert version["size_bytes"] > 0
    table = quiet()
    inventory.show(table, as_json=False)
    assert isinstance(table.out, io.StringIO)
    assert digest[:19] in table.out.getvalue()
    assert "keep-16 (KEEP newest 16)" in table.out.getvalue()


def test_lists_come_in_pages_and_a_deleted_repository_takes_its_versions(
    server: ApiServer, registries: Mapping[str, LocalRegistry]
) -> None:
    registry = registries["us-east5"]
    fleet = fleet_of(REGIONS, api=server.address)
    ensure_repositories(fleet, family(), console=quiet())
    digests = {push(registry, f"t{number}") for number in range(5)}
    raw, parent = raw_client(server), place("us-east5").name
    pager = raw.list_docker_images({"parent": parent, "page_size": 2}, timeout=10)
    pages = [[image.name for image in page.docker_images] for page in pager.pages]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert {name.partition("@")[2] for page in pages for name in page} == digests
    by_tag = raw.get_docker_image(name=f"{parent}/dockerImages/marin_cluster:t3", timeout=10)
    assert list(by_tag.tags) == ["t3"]
    raw.delete_repository(name=parent, timeout=30).result(timeout=30)  # type: ignore[no-untyped-call]
    assert client_of(registry).tags(IMAGE) == ()
    assert artifact_registry_client(fleet).read(place("us-east5")) is None


def refusals() -> Mapping[str, tuple[str, Callable[[ar.ArtifactRegistryClient], object]]]:
    """What the API must refuse: the exception's name and the call."""
    from google.cloud import artifactregistry_v1 as ar

    name = place("us-east5").name

    def policy(key: str, **fields: object) -> dict[str, ar.CleanupPolicy]:
        return {key: ar.CleanupPolicy(**{"id": key, **fields})}

    def update(
        policies: Mapping[str, ar.CleanupPolicy], path: str = "cleanup_policies"
    ) -> Callable[[ar.ArtifactRegistryClient], object]:
        repository = ar.Repository(name=name, cleanup_policies=policies)
        request = {"repository": repository, "update_mask": {"paths": [path]}}
        return lambda client: client.update_repository(request, timeout=10)

    recent, aged = {"keep_count": 3}, {"older_than": timedelta(days=1)}
    many = {k: v for n in range(11) for k, v in policy(f"p{n}", action=1, condition=aged).items()}
    return {
        "eleven policies": ("InvalidArgument", update(many)),
        "a count that deletes": (
            "InvalidArgument",
            update(policy("x", action=1, most_recent_versions=recent)),
        ),
        "a count of none": (
            "InvalidArgument",
            update(policy("x", action=2, most_recent_versions={"keep_count": 0})),
        ),
        "no rule": ("InvalidArgument", update(policy("x", action=1))),
        "no action": ("InvalidArgument", update(policy("x", condition=aged))),
        "another id": (
            "InvalidArgument",
            update({"y": policy("x", action=1, condition=aged)["x"]}),
        ),
        "an unknown mask": ("InvalidArgument", update({}, "cleanup_policies.x")),
        "another project": (
            "PermissionDenied",
            lambda client: client.get_repository(
                name="projects/other/locations/us-east5/repositories/marin", timeout=10
            ),
        ),
        "another region": (
            "NotFound",
            lambda client: client.get_repository(
                name=f"projects/{PROJECT}/locations/mars/repositories/marin", timeout=10
            ),
        ),
        "an unserved method": (
            "MethodNotImplemented",
            lambda client: client.list_packages(parent=name, timeout=10),
        ),
    }


def test_the_api_refuses_what_google_refuses(server: ApiServer) -> None:
    from google.api_core import exceptions

    fleet = fleet_of(REGIONS, api=server.address)
    set_cleanup_policies(fleet, console=quiet(), uses=Uses()).raise_failures()
    api, raw = artifact_registry_client(fleet), raw_client(server)
    before = api.read(place("us-east5"))
    for what, (expected, call) in refusals().items():
        with pytest.raises(exceptions.GoogleAPICallError) as caught:
            call(raw)
        assert type(caught.value).__name__ == expected, what
    assert api.read(place("us-east5")) == before
    elsewhere = Place(project="other", region="us-east5", repository="marin")
    with pytest.raises(ToolFailed, match=r"artifactregistry\.repositories\.get on projects/other"):
        api.read(elsewhere)

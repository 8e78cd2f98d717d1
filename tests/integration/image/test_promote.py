"""Promotions and rollbacks in real registries."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rayfleet.console import Console
from rayfleet.errors import (
    Declined,
    Locked,
    PartialFailure,
    ToolFailed,
    Unreachable,
    UsageError,
)
from rayfleet.image.inspect import inspect_image
from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.promote.carry import carry
from rayfleet.image.promote.promoter import Promoter, next_commands
from rayfleet.image.references import find_reference
from rayfleet.locks import exclusive
from tests.support.artifact_registry import fleet_of
from tests.support.depot import Depot, make_depot
from tests.support.layered_images import (
    MANIFEST,
    digest_of,
    push_image,
    push_index,
    request,
    tag_of,
)
from tests.support.registry import LocalRegistry
from tests.support.scripted_http import Answer, scripted_server

pytestmark = pytest.mark.integration

REGIONS = ("us-central2", "europe-west4")


@pytest.fixture
def depot(tmp_path: Path, start_registry: Callable[[str], LocalRegistry]) -> Depot:
    return make_depot(tmp_path, {region: start_registry(region) for region in REGIONS})


def test_a_pin_that_cleanup_policies_would_take_moves_neither_latest_nor_the_pin(
    depot: Depot,
) -> None:
    def refuse(*_: object) -> None:
        raise ToolFailed("the cleanup policies delete what is in use")

    depot.push("cluster", "one")
    with depot.open() as registries:
        promoter = replace(depot.promoter(registries), protect_pin=refuse)
        with pytest.raises(ToolFailed, match="delete what is in use"):
            promoter.promote(depot.order("one", "v1", pin=True))
    assert depot.tags("cluster", "latest") == ["", ""]
    assert not depot.fleet.outputs.pins.exists()


@pytest.mark.parametrize("kind", ["rollback", "promote", "promote to another image"])
def test_an_api_that_does_not_answer_means_no_pin(depot: Depot, kind: str) -> None:
    depot.pin("cluster", "one")
    two = depot.pin("cluster", "two")
    pins = depot.fleet.outputs.pins.read_bytes()
    order = {
        "rollback": depot.rollback(),
        "promote": depot.order("one", "fresh", pin=True),
        "promote to another image": depot.order("one", "vllm:fresh", pin=True),
    }[kind]
    # Nothing listens there.
    dead = replace(depot.fleet, registries=replace(depot.fleet.registries, api="127.0.0.1:1"))
    said = Console(out=io.StringIO(), err=io.StringIO())
    with depot.open() as registries:
        promoter = Promoter(
            project=depot.project,
            fleet=dead,
            console=said,
            registries=registries,
            ensure_repositories=lambda *_: None,
        )
        with pytest.raises(Unreachable, match="so it is not pinned") as failed:
            promoter.promote(order, yes=True)
    assert failed.value.next_step
    assert depot.fleet.outputs.pins.read_bytes() == pins
    assert depot.tags("cluster", "latest") == [two, two]
    assert depot.tags("cluster", "fresh") == depot.tags("vllm", "fresh") == ["", ""]


def test_a_tag_is_given_in_every_region(depot: Depot) -> None:
    digest = depot.push("cluster", "one")
    promotion = depot.promote(depot.order("one", "stable"))
    promotion.require()
    assert depot.tags("cluster", "stable") == [digest, digest]
    assert depot.tags("cluster", "latest") == ["", ""]
    assert not depot.fleet.outputs.pins.exists()
    assert [each.tags_set for each in promotion.regions] == [("stable",), ("stable",)]
    assert [each.tags_set for each in depot.promote(depot.order("one", "stable")).regions] == [
        (),
        (),
    ]


def test_an_image_goes_to_another_one_with_all_its_blobs(depot: Depot) -> None:
    digest = depot.push("cluster", "one")
    promotion = depot.promote(depot.order("cluster:one", "vllm", "vllm:two"))
    promotion.require()
    assert depot.tags("vllm", "one") == depot.tags("vllm", "two") == [digest, digest]
    assert [each.mounted for each in promotion.regions] == [3, 3]
    for registry in depot.registries.values():
        assert_whole(registry, depot.repository("vllm"), digest)
    again = depot.promote(depot.order("cluster:one", "vllm:three"))
    assert [each.mounted for each in again.regions] == [0, 0]


def assert_whole(registry: LocalRegistry, repository: str, digest: str) -> None:
    """Everything that the manifest names is in the repository."""
    answer = request(registry, "GET", f"{repository}/manifests/{digest}", accept=MANIFEST)
    assert answer.status == 200
    manifest = json.loads(answer.data)
    for blob in (manifest["config"], *manifest["layers"]):
        found = request(registry, "GET", f"{repository}/blobs/{blob['digest']}")
        assert (found.status, len(found.data)) == (200, blob["size"])


def test_an_index_goes_with_its_images(depot: Depot) -> None:
    source, goal = depot.repository("cluster"), depot.repository("vllm")
    for registry in depot.registries.values():
        images = [push_image(registry, source, architecture=a) for a in ("amd64", "arm64")]
        index = push_index(registry, source, "both", images)

    promotion = depot.promote(depot.order("both", "vllm:both"))

    promotion.require()
    assert depot.tags("vllm", "both") == [index, index]
    assert [each.mounted for each in promotion.regions] == [4, 4]  # layers are shared
    for registry in depot.registries.values():
        for image in images:
            assert_whole(registry, goal, image)


def test_regions_that_disagree_are_shown_and_nothing_is_changed(depot: Depot) -> None:
    digest = depot.push("cluster", "one")
    other = depot.push("cluster", "one", regions="europe-west4", content="other")
    with pytest.raises(PartialFailure) as refused:
        depot.promote(depot.order("one", "stable"))
    assert f"us-central2   holds {digest}" in refused.value.why
    assert f"europe-west4  holds {other}" in refused.value.why
    assert "name the digest" in refused.value.next_step
    assert depot.tags("cluster", "stable") == ["", ""]


def test_a_region_that_lacks_the_image_is_shown(depot: Depot) -> None:
    depot.push("cluster", "one", regions="us-central2")
    with pytest.raises(PartialFailure) as refused:
        depot.promote(depot.order("one", "stable"))
    assert "europe-west4  lacks it" in refused.value.why
    assert refused.value.exit_code == 2
    with pytest.raises(UsageError, match="no region has cluster:none"):
        depot.promote(depot.order("none", "stable"))


def test_one_region_down_leaves_latest_and_the_pin(depot: Depot) -> None:
    old, new = depot.pin("cluster", "one"), depot.push("cluster", "two")
    depot.registries["europe-west4"].stop()
    order = depot.order("two", "stable", pin=True)

    promotion = depot.promote(order, yes=True)

    with pytest.raises(PartialFailure) as failed:
        promotion.require()
    assert "1 of 2 regions failed; latest and the pin stayed as they were" in failed.value.what
    assert "europe-west4  failed: registry 127.0.0.1" in failed.value.why
    assert "invoke image.promote two --to stable --pin" in failed.value.next_step
    depot.registries["europe-west4"].start()
    assert depot.tags("cluster", "stable") == [new, ""]
    assert depot.tags("cluster", "latest") == [old, old]
    assert depot.pins("cluster").current.tag == "one"

    depot.promote(order, yes=True).require()
    assert depot.tags("cluster", "stable") == depot.tags("cluster", "latest") == [new, new]
    assert depot.pins("cluster").current.digest == new


def test_all_regions_down_is_unreachable(depot: Depot) -> None:
    for registry in depot.registries.values():
        registry.stop()
    with pytest.raises(Unreachable) as failed:
        depot.promote(depot.order("one", "stable"))
    assert "2 of 2 regions could not be asked; nothing was changed" in failed.value.what


def test_moving_a_tag_is_asked_first(depot: Depot) -> None:
    old, new = depot.push("cluster", "one"), depot.push("cluster", "two")
    depot.promote(depot.order("one", "stable"))
    with pytest.raises(Declined) as declined:
        depot.promote(depot.order("two", "stable", "fresh"))
    assert "move stable of cluster in 2 regions" in declined.value.what
    assert declined.value.next_step == ("invoke image.promote two --to stable --to fresh --yes")
    assert depot.tags("cluster", "stable") == [old, old]
    assert depot.tags("cluster", "fresh") == ["", ""]

    depot.promote(depot.order("two", "stable", "fresh"), yes=True).require()
    assert depot.tags("cluster", "stable") == depot.tags("cluster", "fresh") == [new, new]


def test_a_pin_says_what_the_image_was_built_from(depot: Depot) -> None:
    digest = depot.push("cluster", "one")
    promotion = depot.promote(depot.order("cluster:one", "vllm", pin=True))
    assert promotion.pinned
    pin = depot.pins("vllm").current
    assert (pin.tag, pin.digest, pin.commit) == ("one", digest, "commit of one")
    assert pin.published.endswith("+00:00")
    assert depot.tags("vllm", "latest") == [digest, digest]


def test_a_dry_run_changes_nothing_and_says_all(depot: Depot) -> None:
    old, new = depot.pin("cluster", "one"), depot.push("cluster", "two")
    console = Console(out=io.StringIO(), err=io.StringIO())
    assert isinstance(console.out, io.StringIO)
    with depot.open() as registries:
        plan = depot.promoter(registries, console).plan(depot.order("two", pin=True))
    plan.show(console, as_json=True)
    shown = json.loads(console.out.getvalue())
    assert shown["digest"] == new
    assert shown["tags"] == ["two", "latest"]
    assert shown["regions"]["us-central2"]["tags"] == {"two": new, "latest": old}
    assert shown["pin"]["commit"] == "commit of two"
    plan.show(console, as_json=False)
    assert "moves from sha256:" in console.out.getvalue()
    assert depot.tags("cluster", "latest") == [old, old]


def test_a_registry_that_mounts_nothing_is_an_error() -> None:
    with scripted_server() as server:
        layers = {"digest": f"sha256:{'1' * 64}", "size": 1, "mediaType": "x"}
        raw = json.dumps({"schemaVersion": 2, "layers": [layers]}).encode()
        server.script += [
            Answer(status=404),
            Answer(body=raw),
            Answer(status=202, headers={"Location": "/v2/b/blobs/uploads/1"}),
            Answer(status=404),
        ]
        client = RegistryClient(server.host, None)
        with pytest.raises(ToolFailed, match="does not hand"):
            carry(client, digest_of(raw), source="a", destination="b")


def test_a_publish_of_the_same_image_excludes_a_promotion(depot: Depot) -> None:
    depot.push("cluster", "one")
    with exclusive(depot.project.state, "publish-cluster"), pytest.raises(Locked):
        depot.promote(depot.order("one", "stable"))


def test_a_rollback_swaps_the_pins_and_latest(depot: Depot) -> None:
    one, two = depot.pin("cluster", "one"), depot.pin("cluster", "two")
    assert depot.tags("cluster", "latest") == [two, two]
    before = depot.pins("cluster")

    depot.promote(depot.rollback(), yes=True).require()

    after = depot.pins("cluster")
    assert (after.current, after.previous) == (before.previous, before.current)
    assert depot.tags("cluster", "latest") == [one, one]
    assert depot.tags("cluster", "two") == [two, two]
    depot.promote(depot.rollback(), yes=True).require()
    assert depot.pins("cluster") == before
    assert depot.tags("cluster", "latest") == [two, two]


def test_a_rollback_always_asks(depot: Depot) -> None:
    depot.pin("cluster", "one")
    depot.pin("cluster", "two")
    with pytest.raises(Declined, match=r"to one \(sha256:.* and pin it"):
        depot.promote(depot.rollback())
    assert depot.pins("cluster").current.tag == "two"


def test_a_rollback_needs_the_image_in_every_region(depot: Depot) -> None:
    one, two = depot.pin("cluster", "one"), depot.pin("cluster", "two")
    gone = depot.registries["europe-west4"]
    path = f"{depot.repository('cluster')}/manifests/{one}"
    assert request(gone, "DELETE", path).status == 202
    with pytest.raises(PartialFailure) as refused:
        depot.promote(depot.rollback(), yes=True)
    assert "europe-west4  lacks it" in refused.value.why
    assert "nothing was changed" in refused.value.what
    assert depot.tags("cluster", "latest") == [two, two]

    gone.stop()
    with pytest.raises(PartialFailure, match="nothing was changed") as refused:
        depot.promote(depot.rollback(), yes=True)
    assert "europe-west4  failed" in refused.value.why
    assert "then: invoke image.rollback" in refused.value.next_step
    assert depot.pins("cluster").current.tag == "two"


def test_a_rollback_goes_back_to_any_pin_by_tag_or_digest(depot: Depot) -> None:
    digests = [depot.pin("cluster", tag) for tag in ("one", "two")]
    assert depot.rollback("one").source.digest == digests[0]
    assert depot.rollback(digests[0][:20]).source.tag == "one"
    with pytest.raises(UsageError, match="none was never a pin"):
        depot.rollback("none")
    with pytest.raises(UsageError, match="no pin of 'vllm' before"):
        depot.rollback(family="vllm")


def test_next_come_the_clusters_that_run_the_image(depot: Depot) -> None:
    assert next_commands(depot.fleet, "cluster") == ()
    (made,) = fleet_of(REGIONS).clusters.values()
    one = replace(made, name="one", image="cluster", tag="")
    others = {"fixed": replace(one, name="fixed", tag="v1"), "two": replace(one, name="two")}
    fleet = replace(depot.fleet, clusters={"one": one, **others})
    assert next_commands(fleet, "cluster") == (
        "invoke update-configs",
        "invoke restart --cluster one --cluster two",
    )
    fleet = replace(depot.fleet, clusters={"one": one})
    assert next_commands(fleet, "cluster")[1] == "invoke restart --all"
    assert next_commands(fleet, "vllm") == ()


def test_an_inspection_shows_where_the_image_is(depot: Depot) -> None:
    digest = depot.pin("cluster", "one")
    other = depot.push("cluster", "latest", regions="europe-west4", content="other")
    with depot.open() as registries:
        found = inspect_image(depot.fleet, find_reference("current", depot.fleet), registries)
    found.require()
    assert (found.digest, found.pinned) == (digest, "current")
    assert found.image.labels["org.opencontainers.image.revision"] == "commit of one"
    assert len(found.image.contents.layers) == 2
    assert found.image.platforms == ("linux/amd64",)
    shown = found.as_json()
    assert isinstance(shown["regions"], dict)
    assert shown["regions"]["europe-west4"]["tags"] == {"one": digest, "latest": other}
    console = Console(out=io.StringIO(), err=io.StringIO())
    assert isinstance(console.out, io.StringIO)
    found.show(console, as_json=False)
    assert f"but latest is {other[:19]}" in console.out.getvalue()


def test_a_region_that_is_down_has_a_row_and_decides_the_exit_code(depot: Depot) -> None:
    depot.push("cluster", "one")
    depot.registries["europe-west4"].stop()
    with depot.open() as registries:
        found = inspect_image(depot.fleet, find_reference("one", depot.fleet), registries)
    console = Console(out=io.StringIO(), err=io.StringIO())
    assert isinstance(console.out, io.StringIO)
    found.show(console, as_json=False)
    assert "failed: registry 127.0.0.1" in console.out.getvalue()
    with pytest.raises(Unreachable, match="1 of 2 registries") as failed:
        found.require()
    assert failed.value.exit_code == 4
    with depot.open() as registries:
        one = inspect_image(
            depot.fleet, find_reference("one", depot.fleet), registries, regions=["us-central2"]
        )
    one.require()


def test_an_inspection_of_what_is_nowhere_says_so(depot: Depot) -> None:
    with depot.open() as registries, pytest.raises(UsageError, match="no region has cluster:x"):
        inspect_image(depot.fleet, find_reference("x", depot.fleet), registries)


def test_an_index_is_inspected_with_its_platforms(depot: Depot) -> None:
    repository = depot.repository("cluster")
    for registry in depot.registries.values():
        images = [push_image(registry, repository, architecture=a) for a in ("amd64", "arm64")]
        index = push_index(registry, repository, "both", images)
    with depot.open() as registries:
        found = inspect_image(depot.fleet, find_reference("both", depot.fleet), registries)
    assert found.digest == index == tag_of(registry, repository, "both")
    assert found.image.platforms == ("linux/amd64", "linux/arm64")
    assert [each["digest"] for each in found.as_json()["images"]] == images

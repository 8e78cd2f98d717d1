"""What is shown of an image and of a promotion, from what the regions hold."""

from __future__ import annotations

import hashlib
import io
import json
import re
from dataclasses import replace

import pytest

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError, ToolFailed, Unreachable, UsageError
from rayfleet.fleet.model import Pin
from rayfleet.image.contents import Contents, Described, Part, read_contents
from rayfleet.image.fanout import Outcome
from rayfleet.image.inspection import Inspection, Seen, leading_digest
from rayfleet.image.oci.client import Manifest
from rayfleet.image.promote.promotion import Held, Order, Plan, Promoted, Promotion, one_digest
from rayfleet.image.references import Reference

ONE, TWO = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
IMAGE = Reference(family="cluster", tag="one")
DOWN = Unreachable("registry c does not answer", why="refused")
CONFIG = Part(digest=f"sha256:{'c' * 64}", size=10, media_type="config")
LAYER = Part(digest=f"sha256:{'a' * 64}", size=2_000_000, media_type="layer")


def inspection(**regions: Seen | RayfleetError) -> Inspection:
    """An image ONE, and what the regions hold."""
    return Inspection(
        reference=IMAGE,
        digest=ONE,
        pinned="current",
        image=Described(
            media_type="manifest",
            contents=Contents(config=CONFIG, layers=(LAYER, LAYER), images=()),
            blobs={LAYER.digest: LAYER.size, CONFIG.digest: CONFIG.size},
            created="2025-12-09T00:00:00Z",
            labels={"org.opencontainers.image.revision": "abc"},
            platforms=("linux/amd64",),
        ),
        destinations={region: f"{region}.example/p/r/i" for region in regions},
        regions=outcomes(**regions),
    )


def outcomes(**regions: Seen | RayfleetError) -> tuple[Outcome[Seen], ...]:
    return tuple(
        Outcome(region=region, error=found)
        if isinstance(found, RayfleetError)
        else Outcome(region=region, value=found)
        for region, found in regions.items()
    )


def shown(value: Inspection | Plan | Promotion, *, as_json: bool = False) -> str:
    """What is printed on stdout."""
    out = io.StringIO()
    value.show(Console(out=out, err=io.StringIO()), as_json=as_json)
    return out.getvalue()


def test_an_inspection_marks_where_a_region_differs() -> None:
    found = inspection(
        a=Seen(digest=ONE, tags={"one": ONE, "latest": ONE}),
        b=Seen(digest=TWO, tags={"one": TWO, "old": TWO}),
        c=DOWN,
        d=Seen(digest="", tags={}, skipped=3),
    )
    text = shown(found)
    assert re.search(r"^a +present +latest, one", text, re.MULTILINE)
    assert "differs: sha256:222222222222" in text
    assert "but one is sha256:222222222222" in text
    assert "but latest is missing" in text
    assert "failed: registry c does not answer: refused" in text
    assert re.search(r"^d +missing", text, re.MULTILINE)
    assert "3 more tags were not looked at" in text
    assert f"a  a.example/p/r/i@{ONE}" in text
    assert "b.example" not in text, "what is not there cannot be pulled"
    assert "2.0 MB in 2 blobs" in text
    assert found.tags == ("latest", "one")


def test_an_inspection_is_complete_as_json() -> None:
    found = json.loads(
        shown(inspection(a=Seen(digest=ONE, tags={"one": ONE}), c=DOWN), as_json=True)
    )
    assert found["layers"][1] == {
        "digest": LAYER.digest,
        "size": LAYER.size,
        "media_type": "layer",
    }
    assert found["regions"]["a"] == {
        "state": "present",
        "digest": ONE,
        "tags": {"one": ONE},
        "pull": f"a.example/p/r/i@{ONE}",
    }
    assert found["regions"]["c"]["state"] == "failed"
    assert (found["pinned"], found["platforms"]) == ("current", ["linux/amd64"])


def test_most_regions_say_what_a_tag_is() -> None:
    one, two = Seen(digest=ONE, tags={}), Seen(digest=TWO, tags={})
    assert leading_digest(IMAGE, outcomes(a=one, b=two, c=two)) == TWO
    assert leading_digest(IMAGE, outcomes(a=one, b=two)) == ONE
    assert leading_digest(IMAGE, outcomes(a=DOWN, b=two)) == TWO
    nothing = Seen(digest="", tags={})
    with pytest.raises(UsageError, match="no region has cluster:one"):
        leading_digest(IMAGE, outcomes(a=nothing, b=nothing))
    with pytest.raises(Unreachable, match="1 of 2 registries"):
        leading_digest(IMAGE, outcomes(a=nothing, b=DOWN))


def order(**changes: object) -> Order:
    given = Order(
        source=IMAGE, family="cluster", tags=("stable", "latest"), command="invoke image.promote"
    )
    return replace(given, **changes)  # type: ignore[arg-type]


def held(digest: str, **tags: str) -> Held:
    return Held(digest=digest, tags={"stable": "", "latest": "", **tags})


def asked(**regions: Held | RayfleetError) -> tuple[Outcome[Held], ...]:
    return tuple(
        Outcome(region=region, error=found)
        if isinstance(found, RayfleetError)
        else Outcome(region=region, value=found)
        for region, found in regions.items()
    )


def plan(given: Order, **regions: Held | RayfleetError) -> Plan:
    places = {region: f"{region}.example/p/r/i" for region in regions}
    return Plan(
        order=given,
        digest=ONE,
        sources=places,
        destinations=places,
        regions=asked(**regions),
        blobs=3,
        size=1,
        pin=given.pin,
    )


def test_tags_that_move_come_last() -> None:
    fresh = plan(order(), a=held(ONE), b=held(ONE, stable=ONE))
    assert (fresh.fixed, fresh.moving) == (("stable",), ("latest",))
    moving = plan(order(), a=held(ONE), b=held(ONE, stable=TWO))
    assert (moving.fixed, moving.moving) == ((), ("stable", "latest"))


def test_only_what_moves_is_asked_about() -> None:
    assert plan(order(), a=held(ONE), b=held(ONE, latest=ONE)).question == ""
    assert (
        plan(order(), a=held(ONE, latest=TWO), b=held(ONE, latest=TWO)).question
        == "move latest of cluster in 2 regions to one (sha256:111111111111)?"
    )
    pinned = order(pin=Pin(tag="one"), strict=True)
    assert (
        plan(pinned, a=held(ONE, latest=TWO)).question
        == "move latest of cluster in 1 region to one (sha256:111111111111) and pin it?"
    )
    assert plan(pinned, a=held(ONE)).question == "pin one (sha256:111111111111) of cluster?"


@pytest.mark.parametrize(
    ("strict", "regions", "error", "expected"),
    [
        (False, {"a": held(""), "b": held("")}, UsageError, "no region has cluster:one"),
        (False, {"a": held(ONE), "b": held("")}, PartialFailure, "or publish this one again"),
        (False, {"a": held(ONE), "b": held(TWO)}, PartialFailure, "name the digest"),
        (False, {"a": held(""), "b": DOWN}, PartialFailure, "mend the cause, then: invoke"),
        (True, {"a": held(ONE), "b": DOWN}, PartialFailure, "1 of 2 regions could not be asked"),
        (False, {"a": DOWN, "b": DOWN}, Unreachable, "registry c does not answer"),
        (False, {"a": ToolFailed("no"), "b": DOWN}, Unreachable, "2 of 2 regions could not"),
    ],
)
def test_regions_must_agree_before_anything_is_changed(
    strict: bool,
    regions: dict[str, Held | RayfleetError],
    error: type[RayfleetError],
    expected: str,
) -> None:
    with pytest.raises(error) as refused:
        one_digest(order(strict=strict), asked(**regions))
    assert expected in refused.value.text()


def test_a_region_that_is_down_does_not_keep_the_others_from_a_promotion() -> None:
    assert one_digest(order(), asked(a=held(ONE), b=DOWN)) == ONE


def test_a_plan_shows_every_change() -> None:
    text = shown(plan(order(), a=held(ONE, stable=ONE, latest=TWO), b=held(ONE), c=DOWN))
    assert "moves from sha256:222222222222" in text
    assert "failed: registry c does not answer" in text
    assert "same repository" in text


@pytest.mark.parametrize(
    ("moved", "pin", "expected"),
    [
        (False, None, "1 of 2 regions failed; latest stayed as it was"),
        (False, Pin(tag="one"), "1 of 2 regions failed; latest and the pin stayed as they were"),
        (True, Pin(tag="one"), "1 of 2 regions failed; the pin stayed as it was"),
        (True, None, "1 of 2 regions failed"),
    ],
)
def test_a_failure_says_what_it_has_kept(moved: bool, pin: Pin | None, expected: str) -> None:
    regions = (Promoted(region="a", tags_set=("stable",)), Promoted(region="c", error=DOWN))
    what = plan(order(pin=pin), a=held(ONE), c=held(ONE))
    promotion = Promotion(plan=what, regions=regions, moved=moved, pinned=False)
    with pytest.raises(PartialFailure) as failed:
        promotion.require()
    assert failed.value.what == expected
    assert "c  failed: registry c does not answer: refused" in failed.value.why
    assert "stable set" in shown(promotion)
    assert json.loads(shown(promotion, as_json=True))["complete"] is False


def manifest(document: object) -> Manifest:
    raw = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    return Manifest(raw=raw, media_type="a/type", digest=digest)


def test_a_manifest_names_distinct_blobs_without_those_kept_elsewhere() -> None:
    layer = {"digest": ONE, "size": 5, "mediaType": "layer"}
    foreign = {"digest": TWO, "size": 9, "mediaType": "x.docker.image.rootfs.foreign.diff.tar"}
    config = {"digest": f"sha256:{'c' * 64}", "size": 1, "mediaType": "config"}
    found = read_contents(manifest({"config": config, "layers": [layer, foreign, layer]}))
    assert [part.digest for part in found.blobs] == [ONE, config["digest"]]
    assert len(found.layers) == 3


def test_an_index_names_its_images_and_their_platforms() -> None:
    platform = {"os": "linux", "architecture": "arm", "variant": "v7"}
    image = {"digest": ONE, "size": 5, "mediaType": "manifest", "platform": platform}
    found = read_contents(manifest({"manifests": [image, {**image, "platform": None}]}))
    assert [part.platform for part in found.images] == ["linux/arm/v7", ""]
    assert found.blobs == ()


@pytest.mark.parametrize(
    "document", [[], {}, "x", {"layers": [1]}, {"layers": [{}]}, {"manifests": 5}, {"config": 5}]
)
def test_what_is_no_manifest_is_refused(document: object) -> None:
    with pytest.raises(ToolFailed, match="is not one of an image"):
        read_contents(manifest(document))

"""Manifests: the same bytes for the same image, OCI types, layers in the image's order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.errors import ToolFailed
from rayfleet.image.layers.blobs import Blob
from rayfleet.image.layers.collect import Collected
from rayfleet.image.publish.manifest import build_manifest, sha256

GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"


def blob(name: str, size: int = 10) -> Blob:
    return Blob(
        digest=sha256(f"blob {name}".encode()),
        size=size,
        diff_id=sha256(name.encode()),
        media_type=GZIP,
        path=Path("nowhere"),
        raw_size=2 * size,
    )


def collected(*blobs: Blob, labels: dict[str, str] | None = None) -> Collected:
    config = {
        "config": {"Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in blobs]},
    }
    return Collected(
        config=json.dumps(config).encode(), blobs=tuple(blobs), compressed=0, source="cache"
    )


@given(st.lists(st.sampled_from("abc"), max_size=6))
def test_layers_keep_their_order_and_repeats(names: list[str]) -> None:
    image = collected(*(blob(name) for name in names))
    built = build_manifest(image)
    document = json.loads(built.raw)
    assert [each["digest"] for each in document["layers"]] == [each.digest for each in image.blobs]
    assert built.size == 10 * len(set(names)) + len(image.config)


def test_the_manifest_is_oci_and_names_the_config_as_the_engine_has_it() -> None:
    image = collected(blob("a"))
    built = build_manifest(image)
    document = json.loads(built.raw)
    assert document["schemaVersion"] == 2
    assert document["mediaType"] == built.media_type
    assert built.media_type == "application/vnd.oci.image.manifest.v1+json"
    assert document["config"] == {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": sha256(image.config),
        "size": len(image.config),
    }
    assert built.config.open().read() == image.config
    assert document["layers"] == [{"mediaType": GZIP, "digest": blob("a").digest, "size": 10}]


def test_the_same_image_has_the_same_bytes() -> None:
    one, two = (build_manifest(collected(blob("a"), blob("b"))) for _ in range(2))
    assert one == two
    assert one.digest == sha256(one.raw)


def test_layers_that_are_not_the_configurations_are_refused() -> None:
    image = collected(blob("a"))
    other = Collected(config=image.config, blobs=(blob("b"),), compressed=0, source="cache")
    with pytest.raises(ToolFailed, match="not those of the image's configuration"):
        build_manifest(other)


@pytest.mark.parametrize("config", [b"no json", b"[]", b"{}", b'{"rootfs": 1}'])
def test_an_unreadable_configuration_is_refused(config: bytes) -> None:
    with pytest.raises(ToolFailed):
        build_manifest(Collected(config=config, blobs=(), compressed=0, source="cache"))


def test_the_commit_comes_from_the_images_label() -> None:
    labelled = collected(blob("a"), labels={"org.opencontainers.image.revision": "abc"})
    assert build_manifest(labelled).config.revision == "abc"
    assert build_manifest(collected(blob("a"))).config.revision == ""

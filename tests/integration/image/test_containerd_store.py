"""A real engine with the containerd image store: recognised, and read through its export."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from docker import DockerClient

from rayfleet.image.engine import ImageEngine
from tests.support.archives import digest_of, legacy_archive, make_image, tar_of
from tests.support.collector_process import collect_now
from tests.support.containerd_engine import containerd_engine
from tests.support.odd_images import odd_layer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run an engine of its own"),
]


@pytest.fixture(scope="module")
def env() -> Iterator[Mapping[str, str]]:
    with containerd_engine() as made:
        yield made


def test_its_store_is_recognised_and_its_export_is_the_image(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    odd = odd_layer()
    made = make_image(odd, tar_of({"large": os.urandom(6 << 20)}), odd, config={"Env": ["A=b"]})
    engine = ImageEngine(env=env)
    with closing(DockerClient.from_env(environment=dict(env))) as client:
        assert client.info()["DriverStatus"] == [["driver-type", "io.containerd.snapshotter.v1"]]
        (loaded,) = client.images.load(legacy_archive(made))
    image = engine.look_up(str(loaded.id))

    # Its IDs are digests of manifests, so the config has to be found by way of them.
    assert image.id != digest_of(made.config)
    assert image.diff_ids == made.local.diff_ids
    assert engine.store_root() is None
    archive = tmp_path / "archive.tar"
    archive.write_bytes(b"".join(engine.export(image.id)))
    with tarfile.open(archive) as tar:
        assert {"oci-layout", "index.json", "manifest.json"} <= set(tar.getnames())
    collected = collect_now(image, engine, tmp_path / "blobs")

    assert collected.source == "export"
    assert collected.config == made.config
    for blob, layer in zip(collected.blobs, made.layers, strict=True):
        with blob.open() as content:
            assert gzip.decompress(content.read()) == layer
    assert collect_now(image, engine, tmp_path / "blobs").source == "cache"

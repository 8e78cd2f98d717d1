"""Layers of real images out of real engines: the machine's Docker engine, and podman."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from docker import DockerClient

from rayfleet.errors import PrerequisiteMissing, ToolFailed
from rayfleet.fleet.model import Compression
from rayfleet.image.engine import ImageEngine
from rayfleet.image.layers.blobs import BlobCache
from rayfleet.image.layers.collect import Collected, LocalImage, cached, collect
from rayfleet.image.layers.store import LayerStore, Unreadable
from rayfleet.waiting import wait_until
from tests.support.archives import EMPTY_LAYER, digest_of, legacy_archive, make_image, tar_of
from tests.support.collector_process import RemoteEngine, collect_now, collector, finish
from tests.support.loaded_images import loaded_image, random_layers
from tests.support.odd_images import (
    built_image,
    committed_image,
    detour_layer,
    odd_layer,
    sparse_layer,
    whiteout_layer,
)
from tests.support.podman import podman_service

pytestmark = pytest.mark.integration

ENGINE = ImageEngine()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a tiny disk")


def unpacked(collected: Collected, compression: Compression = Compression.GZIP) -> list[bytes]:
    layers = []
    for blob in collected.blobs:
        with blob.open() as content:
            packed = content.read()
        if compression is Compression.GZIP:
            layers.append(gzip.decompress(packed))
        else:
            layers.append(zstandard.ZstdDecompressor().decompressobj().decompress(packed))
    return layers


def check(collected: Collected, image: LocalImage) -> None:
    """Its layers are those of the engine, its config is the one that the ID names."""
    assert [digest_of(layer) for layer in unpacked(collected)] == list(image.diff_ids)
    assert digest_of(collected.config) == image.id


@pytest.fixture
def root() -> Path:
    """The engine's folder."""
    found = ENGINE.store_root()
    if found is None:
        pytest.skip("the engine's folder cannot be read: it is not local, or we are not root")
    return found


@pytest.fixture(scope="module")
def large_image() -> Iterator[str]:
    """An image that takes a moment to collect."""
    with loaded_image(random_layers(24 << 20, 20 << 20, 16 << 20)) as name:
        yield name


@pytest.fixture(scope="module")
def odd_image() -> Iterator[tuple[str, list[bytes]]]:
    """An image of layers of every kind, and these layers."""
    odd, holes = odd_layer(), tar_of({"holes": bytes(3_000_000) + b"end"})
    layers = [odd, EMPTY_LAYER, whiteout_layer(), odd, holes, detour_layer()]
    with loaded_image(layers) as name:
        yield name, layers


def test_layers_of_every_kind_come_out_of_the_engine_as_they_went_in(
    odd_image: tuple[str, list[bytes]], tmp_path: Path
) -> None:
    name, layers = odd_image
    image = ENGINE.look_up(name)
    assert image.diff_ids == tuple(map(digest_of, layers))
    remote = RemoteEngine()
    here = collect_now(image, ENGINE, tmp_path / "here")
    there = collect_now(image, remote, tmp_path / "there")
    for collected in (here, there):
        check(collected, image)
        assert unpacked(collected) == layers
    assert [blob.digest for blob in here.blobs] == [blob.digest for blob in there.blobs]
    assert here.config == there.config
    packed = collect_now(image, remote, tmp_path / "there", Compression.ZSTD)
    assert unpacked(packed, Compression.ZSTD) == layers


def test_all_that_a_tar_can_hold_is_read_without_an_export(
    odd_image: tuple[str, list[bytes]], root: Path
) -> None:
    name, layers = odd_image
    image = ENGINE.look_up(name)
    store = LayerStore(root, image_id=image.id, diff_ids=image.diff_ids)
    assert digest_of(store.config()) == image.id
    *readable, detour = layers
    for layer in dict.fromkeys(readable):
        assert b"".join(store.layer(digest_of(layer))) == layer
    # Its file lies elsewhere than its name says, and links are not followed.
    with pytest.raises(Unreadable):
        list(store.layer(digest_of(detour)))


def test_a_built_image_and_a_committed_one(tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    with (
        built_image(tmp_path / "context", files=2000) as built,
        committed_image(built) as committed,
    ):
        for name in (built, committed):
            image = ENGINE.look_up(name)
            here = collect_now(image, ENGINE, tmp_path / "here")
            check(here, image)
            there = collect_now(image, RemoteEngine(), tmp_path / "there")
            check(there, image)
            assert [blob.digest for blob in here.blobs] == [blob.digest for blob in there.blobs]
            if name == committed:
                top = here.blobs[-1].raw_size
                assert (here.compressed, there.compressed) == (top, top)
                assert len(image.diff_ids) == len(ENGINE.look_up(built).diff_ids) + 1


def test_a_local_engine_is_not_asked_for_an_export(
    large_image: str, root: Path, tmp_path: Path
) -> None:
    image = ENGINE.look_up(large_image)
    collected = collect_now(image, ENGINE, tmp_path)
    assert collected.source == "store"
    with BlobCache(tmp_path) as cache:
        again = cached(image, cache=cache, compression=Compression.GZIP)
    assert again is not None
    assert again.blobs == collected.blobs


def test_processes_of_their_own_give_the_same_digests(large_image: str, tmp_path: Path) -> None:
    one = finish(collector(tmp_path / "one", large_image, "store"))
    two = finish(collector(tmp_path / "two", large_image, "export"))
    assert one.digests == two.digests
    assert two.source == "export"


@pytest.mark.parametrize("source", ["store", "export"])
def test_two_that_collect_at_once_into_one_cache_both_end_right(
    source: str, large_image: str, tmp_path: Path
) -> None:
    processes = [collector(tmp_path / "blobs", large_image, source) for _ in range(2)]
    one, two = map(finish, processes)
    assert one.digests == two.digests
    image = ENGINE.look_up(large_image)
    again = collect_now(image, ENGINE, tmp_path / "blobs")
    assert (again.source, [blob.digest for blob in again.blobs]) == ("cache", one.digests)
    check(again, image)
    assert len(list((tmp_path / "blobs" / "sha256").iterdir())) == len(set(one.digests))


@pytest.mark.parametrize("source", ["store", "export"])
@pytest.mark.parametrize("moment", ["first bytes", "first blob"])
def test_one_that_is_killed_is_made_good_by_the_next(
    moment: str, source: str, large_image: str, tmp_path: Path
) -> None:
    folder = tmp_path / "blobs"
    watched = {"first bytes": "partial", "first blob": "sha256"}[moment]
    with collector(folder, large_image, source) as process:
        try:
            wait_until(
                lambda: any((folder / watched).glob("*")),
                what=f"the {moment}",
                timeout=60,
                interval=0.001,
            )
        finally:
            process.kill()
    kept = {path.name for path in (folder / "sha256").iterdir()}
    found = finish(collector(folder, large_image, source))
    image = ENGINE.look_up(large_image)
    again = collect_now(image, ENGINE, folder)
    check(again, image)
    assert [blob.digest for blob in again.blobs] == found.digests
    assert {f"sha256:{name}" for name in kept} <= set(found.digests)
    raw = {blob.digest: blob.raw_size for blob in again.blobs}
    assert found.compressed <= sum(raw.values())
    if moment == "first blob":
        assert kept
    assert list((folder / "partial").iterdir()) == []


def test_a_damaged_blob_is_made_again(large_image: str, tmp_path: Path) -> None:
    image = ENGINE.look_up(large_image)
    blob = collect_now(image, ENGINE, tmp_path).blobs[1]
    with blob.path.open("r+b") as damaged:
        damaged.seek(blob.size // 2)
        damaged.write(b"damage")
    with BlobCache(tmp_path) as cache:
        found = cached(image, cache=cache, compression=Compression.GZIP)
        assert found is not None
        with found.blobs[1].open() as content, pytest.raises(ToolFailed, match="is damaged"):
            content.read()
        again = collect(
            image,
            ENGINE,
            cache=cache,
            compression=Compression.GZIP,
            stop=threading.Event(),
        )
        check(again, image)
    assert (again.blobs[1], again.compressed) == (blob, blob.raw_size)


@needs_root
@pytest.mark.parametrize("engine", [ENGINE, RemoteEngine()], ids=["store", "export"])
def test_a_full_disk_is_a_clear_error_and_more_space_mends_it(
    engine: ImageEngine, large_image: str, tmp_path: Path
) -> None:
    folder = tmp_path / "blobs"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=30m", "rayfleet-test", folder]
    subprocess.run(argv, check=True)
    try:
        image = ENGINE.look_up(large_image)
        with pytest.raises(PrerequisiteMissing) as full:
            collect_now(image, engine, folder)
        assert f"cannot write {folder}" in full.value.what
        assert full.value.why == "No space left on device"
        assert "free space" in full.value.next_step
        assert list((folder / "partial").iterdir()) == []
        subprocess.run(["mount", "-o", "remount,size=200m", folder], check=True)
        check(collect_now(image, engine, folder), image)
    finally:
        subprocess.run(["umount", folder], check=True)


def test_an_image_that_is_gone_is_a_clear_error(tmp_path: Path) -> None:
    missing = LocalImage(
        id=digest_of(os.urandom(8)),
        diff_ids=(digest_of(b"1"),),
        size=1,
        architecture="amd64",
        os="linux",
    )
    with pytest.raises(ToolFailed, match="the Docker engine cannot export"):
        collect_now(missing, ENGINE, tmp_path)


def test_a_layer_that_the_engine_itself_cannot_read_is_a_clear_error(tmp_path: Path) -> None:
    # Docker 20.10 takes a sparse file in this form, but can neither export nor push it.
    with loaded_image([sparse_layer(tmp_path)]) as name:
        try:
            collected = collect_now(ENGINE.look_up(name), ENGINE, tmp_path / "blobs")
        except ToolFailed as error:
            assert "cannot export" in error.what  # noqa: PT017 (later engines can)
        else:
            check(collected, ENGINE.look_up(name))


def test_podman_gives_the_same_image_by_the_same_api(tmp_path: Path) -> None:
    odd = odd_layer()
    made = make_image(
        odd,
        tar_of({"large": os.urandom(6 << 20)}),
        EMPTY_LAYER,
        odd,
        created="2024-05-06T07:08:09Z",
        config={"Env": ["A=b"]},
        history=[{"created_by": f"step {number}"} for number in range(4)],
    )
    with podman_service() as env:
        with closing(DockerClient.from_env(environment=dict(env))) as client:
            (loaded,) = client.images.load(legacy_archive(made))
        engine = ImageEngine(env=env)
        image = engine.look_up(str(loaded.id))
        assert (image.id, image.diff_ids) == (made.local.id, made.local.diff_ids)
        assert engine.store_root() is None
        collected = collect_now(image, engine, tmp_path / "blobs")
    check(collected, image)
    assert collected.config == made.config
    assert unpacked(collected) == list(made.layers)
    assert collected.source == "export"
    assert hashlib.sha256(made.config).hexdigest() in image.id

"""Exported archives of every layout become the same blobs, and bad ones a clear error."""

from __future__ import annotations

import io
import os
import tarfile
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rayfleet.errors import Drift, PrerequisiteMissing, ToolFailed
from rayfleet.fleet.model import Compression
from rayfleet.image.interruption import Interrupted
from rayfleet.image.layers.archive import entries
from rayfleet.image.layers.blobs import Blob, BlobCache
from rayfleet.image.layers.collect import Collected, LocalImage, cached, collect
from rayfleet.image.layers.compression import decompressed
from rayfleet.image.layers.documents import SMALL
from rayfleet.waiting import wait_until
from tests.support.archives import (
    EMPTY_LAYER,
    ArchiveEngine,
    MadeImage,
    OciLayout,
    compress,
    digest_of,
    legacy_archive,
    make_image,
    podman_archive,
    tar_of,
)

GZIP, ZSTD = Compression.GZIP, Compression.ZSTD
BASE = tar_of({"etc/passwd": b"ray\n", "usr/lib/big": os.urandom(SMALL + 5000)})
TOP = tar_of({"opt/app.py": b"print()\n" * 1000})
IMAGE = make_image(BASE, TOP, EMPTY_LAYER, BASE, created="now")


def oci_archive(image: MadeImage) -> bytes:
    layout = OciLayout()
    return layout.archive(layout.add_image(image))


LAYOUTS = {"legacy": legacy_archive, "oci": oci_archive, "podman": podman_archive}


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[BlobCache]:
    with BlobCache(tmp_path / "blobs") as opened:
        yield opened


def read(
    engine: ArchiveEngine,
    image: LocalImage,
    cache: BlobCache,
    compression: Compression = GZIP,
    **options: object,
) -> Collected:
    options = {"stop": threading.Event(), **options}
    return collect(image, engine, cache=cache, compression=compression, **options)


def raw(blob: Blob, compression: Compression = GZIP) -> bytes:
    with blob.open() as content:
        return b"".join(decompressed([content.read()], compression))


def is_whole(collected: Collected, image: MadeImage, compression: Compression = GZIP) -> bool:
    blobs = {blob.diff_id: blob for blob in collected.blobs}
    assert [blob.diff_id for blob in collected.blobs] == list(image.local.diff_ids)
    assert collected.config == image.config
    return {each: raw(blob, compression) for each, blob in blobs.items()} == {
        digest_of(layer): layer for layer in image.layers
    }


@pytest.mark.parametrize("chunk", [700, 32 << 10, 1 << 30])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_in_any_chunks_gives_the_image(
    layout: str, chunk: int, cache: BlobCache
) -> None:
    ready: list[str] = []
    counted: list[int] = []
    collected = read(
        ArchiveEngine(LAYOUTS[layout](IMAGE), chunk=chunk),
        IMAGE.local,
        cache,
        on_blob=lambda blob: ready.append(blob.diff_id),
        on_compressed=counted.append,
    )
    assert is_whole(collected, IMAGE)
    assert sorted(ready) == sorted(set(IMAGE.local.diff_ids))
    assert collected.compressed == sum(counted) == len(BASE) + len(TOP) + len(EMPTY_LAYER)
    assert collected.source == "export"
    assert cached(IMAGE.local, cache=cache, compression=GZIP) == replace(
        collected, compressed=0, source="cache"
    )
    assert cached(IMAGE.local, cache=cache, compression=ZSTD) is None


def test_all_layouts_give_the_same_digests(tmp_path: Path) -> None:
    digests = set()
    for layout, make in LAYOUTS.items():
        with BlobCache(tmp_path / layout) as cache:
            collected = read(ArchiveEngine(make(IMAGE)), IMAGE.local, cache)
            digests.add(tuple(blob.digest for blob in collected.blobs))
    assert len(digests) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layer_in_the_cache_is_not_compressed_again(layout: str, cache: BlobCache) -> None:
    read(ArchiveEngine(legacy_archive(IMAGE)), IMAGE.local, cache)
    above = tar_of({"new": os.urandom(50_000)})
    changed = make_image(*IMAGE.layers, above)
    engine = ArchiveEngine(LAYOUTS[layout](changed))
    ready: list[str] = []
    collected = read(engine, changed.local, cache, on_blob=lambda blob: ready.append(blob.diff_id))
    assert is_whole(collected, changed)
    assert collected.compressed == len(above)
    assert ready[-1] == digest_of(above)
    assert sorted(ready) == sorted(set(changed.local.diff_ids))
    assert engine.exports == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layer_as_large_as_one_in_the_cache_is_not_taken_for_it(
    layout: str, cache: BlobCache
) -> None:
    one, other = (tar_of({"file": os.urandom(SMALL + 1)}) for _ in range(2))
    read(ArchiveEngine(legacy_archive(make_image(one))), make_image(one).local, cache)
    both = make_image(one, other)
    engine = ArchiveEngine(LAYOUTS[layout](both))
    assert is_whole(read(engine, both.local, cache), both)
    assert engine.exports == (2 if layout == "legacy" else 1)


def test_an_image_without_layers_and_one_of_only_empty_ones(cache: BlobCache) -> None:
    for image in (make_image(), make_image(EMPTY_LAYER, EMPTY_LAYER)):
        assert is_whole(read(ArchiveEngine(legacy_archive(image)), image.local, cache), image)
        assert cached(image.local, cache=cache, compression=GZIP) is not None


@pytest.mark.parametrize("compression", Compression)
def test_a_layer_that_is_compressed_as_wanted_keeps_its_bytes(
    compression: Compression, cache: BlobCache
) -> None:
    layout = OciLayout()
    packed = [compress(layer, compression) for layer in IMAGE.layers]
    archive = layout.archive(layout.add_image(IMAGE, packed=packed, suffix=f"+{compression}"))
    collected = read(ArchiveEngine(archive), IMAGE.local, cache, compression)
    assert [blob.digest for blob in collected.blobs] == [digest_of(each) for each in packed]
    assert is_whole(collected, IMAGE, compression)
    assert collected.compressed == 0
    assert [blob.raw_size for blob in collected.blobs] == [len(layer) for layer in IMAGE.layers]


@pytest.mark.parametrize("compression", Compression)
def test_a_layer_that_is_compressed_in_another_way_is_compressed_as_wanted(
    compression: Compression, tmp_path: Path
) -> None:
    other = ZSTD if compression is GZIP else GZIP
    layout = OciLayout()
    packed = [compress(layer, other) for layer in IMAGE.layers]
    archive = layout.archive(layout.add_image(IMAGE, packed=packed))
    with BlobCache(tmp_path / "packed") as one, BlobCache(tmp_path / "plain") as two:
        found = read(ArchiveEngine(archive), IMAGE.local, one, compression)
        plain = read(ArchiveEngine(oci_archive(IMAGE)), IMAGE.local, two, compression)
        assert is_whole(found, IMAGE, compression)
        assert [blob.digest for blob in found.blobs] == [blob.digest for blob in plain.blobs]


@pytest.mark.parametrize("id_is", ["index", "manifest", "config"])
def test_the_image_of_its_platform_is_taken_from_an_index(id_is: str, cache: BlobCache) -> None:
    layout = OciLayout()
    foreign = {"os": "linux", "architecture": "arm64"}
    arm = make_image(tar_of({"arm": os.urandom(SMALL + 1)}), **foreign)
    # The same layers for another platform: only the index and the config tell them apart.
    twin = make_image(*IMAGE.layers, **foreign)
    manifest = layout.add_image(IMAGE)
    index = layout.add_index(
        layout.add_attestation(manifest),
        layout.add_image(arm, platform=foreign),
        layout.add_image(twin, platform=foreign),
        manifest,
    )
    ids = {"index": index["digest"], "manifest": manifest["digest"], "config": IMAGE.local.id}
    local = replace(IMAGE.local, id=ids[id_is])
    collected = read(ArchiveEngine(layout.archive(index)), local, cache)
    assert is_whole(collected, IMAGE)
    assert collected.compressed == len(BASE) + len(TOP) + len(EMPTY_LAYER)
    assert cache.config(local.id) == IMAGE.config


def test_the_config_is_found_through_the_files_that_name_it(cache: BlobCache) -> None:
    image = make_image(BASE)
    elsewhere = replace(image.local, id=digest_of(b"an id that leads nowhere"))
    for make in LAYOUTS.values():
        assert read(ArchiveEngine(make(image)), elsewhere, cache).config == image.config


def test_a_large_document_is_no_layer(cache: BlobCache) -> None:
    layout = OciLayout()
    manifest = layout.add_image(IMAGE)
    layout.add(b'{"predicate": "' + b"x" * SMALL + b'"}', "application/vnd.in-toto+json")
    collected = read(ArchiveEngine(layout.archive(manifest)), IMAGE.local, cache)
    assert collected.compressed == len(BASE) + len(TOP) + len(EMPTY_LAYER)


def test_what_comes_after_the_image_is_complete_is_not_read(cache: BlobCache) -> None:
    image = make_image(TOP)
    config = image.local.id.removeprefix("sha256:")
    archive = tar_of({"a/layer.tar": TOP, f"{config}.json": image.config, "z": bytes(20 << 20)})
    engine = ArchiveEngine(archive)
    assert is_whole(read(engine, image.local, cache), image)
    assert engine.given < len(archive) / 2


def test_an_archive_of_another_image_is_a_clear_error(cache: BlobCache) -> None:
    other = make_image(TOP)
    with pytest.raises(ToolFailed, match="is not complete") as error:
        read(ArchiveEngine(legacy_archive(other)), IMAGE.local, cache)
    assert digest_of(BASE) in error.value.why
    assert digest_of(TOP) not in error.value.why
    with pytest.raises(ToolFailed, match="it lacks the config"):
        read(ArchiveEngine(tar_of({"layer.tar": TOP})), other.local, cache)


def test_a_damaged_layer_is_named_and_nothing_of_it_kept(cache: BlobCache) -> None:
    layout = OciLayout()
    packed = compress(BASE, GZIP)
    packed = packed[:5000] + bytes(100) + packed[5100:]
    image = make_image(BASE)
    archive = layout.archive(layout.add_image(image, packed=[packed]))
    with pytest.raises(ToolFailed, match="no sound gzip data") as error:
        read(ArchiveEngine(archive), image.local, cache)
    assert digest_of(packed).removeprefix("sha256:") in error.value.why
    assert list((cache.folder / "sha256").iterdir()) == []
    assert list((cache.folder / "partial").iterdir()) == []


SMALL_IMAGE = make_image(TOP, tar_of({"x": b"y" * 3000}), TOP)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(share=st.floats(0, 1, exclude_max=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_an_archive_that_ends_early_is_the_image_or_a_clear_error(
    layout: str, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    archive = LAYOUTS[layout](SMALL_IMAGE)
    engine = ArchiveEngine(archive[: int(len(archive) * share)])
    with BlobCache(tmp_path_factory.mktemp("blobs")) as cache, suppress(ToolFailed):
        assert is_whole(read(engine, SMALL_IMAGE.local, cache), SMALL_IMAGE)


def contents(archive: bytes) -> list[bytes]:
    return [b"".join(entry.chunks) for entry in entries([archive])]


@given(st.binary(max_size=3000))
def test_nonsense_is_a_clear_error(data: bytes) -> None:
    with pytest.raises(ToolFailed, match="archive of the image cannot be read"):
        contents(data + b"\1")


@given(at=st.integers(0, 600), value=st.integers(0, 255))
def test_a_damaged_header_is_a_clear_error_or_harmless(at: int, value: int) -> None:
    archive = bytearray(tar_of({"n" * 300: b"content"}))
    archive[at] = value
    with suppress(ToolFailed):
        assert contents(bytes(archive)) == [b"content"]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_names_and_sizes_are_read_in_every_format(form: int) -> None:
    names = ["short", "folder/" * 14 + "middle"]
    if form != tarfile.USTAR_FORMAT:
        names += ["folder/" * 60 + "long", "\N{SNOWMAN}" * 60]
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=form) as tar:
        for number, name in enumerate(names):
            entry = tarfile.TarInfo(name)
            entry.size = 600 * number
            if form == tarfile.PAX_FORMAT:
                entry.pax_headers = {"size": str(entry.size), "SCHILY.xattr.user.x": "\n12 a=b"}
            tar.addfile(entry, io.BytesIO(bytes(entry.size)))
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.SYMTYPE, "target/" * 10
            tar.addfile(link)
    found = [
        (entry.name, len(b"".join(entry.chunks)), entry.size)
        for entry in entries([content.getvalue()])
    ]
    assert found == [(name, 600 * number, 600 * number) for number, name in enumerate(names)]


def test_a_set_stop_ends_it(cache: BlobCache) -> None:
    stop = threading.Event()
    with pytest.raises(Interrupted):
        read(
            ArchiveEngine(legacy_archive(IMAGE)),
            IMAGE.local,
            cache,
            stop=stop,
            on_blob=lambda blob: stop.set(),
        )
    assert list((cache.folder / "partial").iterdir()) == []


class SilentEngine(ArchiveEngine):
    """An engine that says nothing until it is let; ``left`` is set when nobody listens."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.asked = threading.Event()
        self.let = threading.Event()
        self.left = threading.Event()

    def export(self, image_id: str) -> Iterator[bytes]:
        try:
            self.asked.set()
            self.let.wait(60)
            while True:
                yield bytes(1 << 20)
        finally:
            self.left.set()


def test_a_stop_does_not_wait_for_an_engine_that_is_silent(cache: BlobCache) -> None:
    engine, stop = SilentEngine(), threading.Event()

    def set_when_asked() -> None:
        engine.asked.wait(60)
        stop.set()

    setter = threading.Thread(target=set_when_asked)
    setter.start()
    with pytest.raises(Interrupted):
        read(engine, IMAGE.local, cache, stop=stop)
    setter.join()
    engine.let.set()
    wait_until(engine.left.is_set, what="the export to be given up", timeout=30, interval=0.01)


@pytest.mark.parametrize("error", [PrerequisiteMissing("no engine"), ToolFailed("no such image")])
def test_what_the_engine_says_is_not_covered_up(error: Exception, cache: BlobCache) -> None:
    class FailingEngine(ArchiveEngine):
        def export(self, image_id: str) -> Iterator[bytes]:
            yield legacy_archive(IMAGE)[:100_000]
            raise error

    with pytest.raises(type(error), match=str(error.args[0] if error.args else "")):
        read(FailingEngine(b""), IMAGE.local, cache)


def test_a_failing_listener_ends_it(cache: BlobCache) -> None:
    def fail(blob: Blob) -> None:
        raise Drift("enough")

    with pytest.raises(Drift, match="enough"):
        read(ArchiveEngine(legacy_archive(IMAGE)), IMAGE.local, cache, on_blob=fail)


def test_memory_does_not_grow_with_the_image(cache: BlobCache) -> None:
    size = 256 << 20
    layer = tarfile.TarInfo("layer.tar")
    layer.size = size

    class LargeEngine(ArchiveEngine):
        def export(self, image_id: str) -> Iterator[bytes]:
            yield layer.tobuf()
            for _ in range(size >> 20):
                yield bytes(1 << 20)
            yield bytes(1024)

    image = replace(make_image().local, diff_ids=(digest_of(bytes(size)),))
    tracemalloc.start()
    try:
        with pytest.raises(ToolFailed, match="it lacks the config"):
            read(LargeEngine(b""), image, cache)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert cache.find(image.diff_ids[0], GZIP) is not None
    assert peak < 32 << 20

"""Layers are put together from an engine's folders, and exported where that does not work."""

from __future__ import annotations

import gzip
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rayfleet.errors import Drift, PrerequisiteMissing
from rayfleet.fleet.model import Compression
from rayfleet.image.engine import has_overlay_store
from rayfleet.image.interruption import Interrupted
from rayfleet.image.layers.blobs import BlobCache
from rayfleet.image.layers.collect import Collected, collect
from rayfleet.image.layers.store import LayerStore, Unreadable, chain_ids
from tests.support.archives import EMPTY_LAYER, digest_of, make_image, tar_of
from tests.support.odd_images import odd_layer
from tests.support.overlay_store import LocalEngine, OverlayStore, literal

SECRET = b"not part of any image\n"


BASE = odd_layer()
TOP = tar_of({"app/one": b"1" * 3000, "app/two": b"2" * 10})
IMAGE = make_image(BASE, EMPTY_LAYER, TOP, BASE)


@pytest.fixture
def store(tmp_path: Path) -> OverlayStore:
    (tmp_path / "secret").write_bytes(SECRET)
    return OverlayStore(tmp_path / "engine", IMAGE)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[BlobCache]:
    with BlobCache(tmp_path / "blobs") as opened:
        yield opened


def reader(store: OverlayStore) -> LayerStore:
    return LayerStore(store.root, image_id=IMAGE.local.id, diff_ids=IMAGE.local.diff_ids)


def layer(store: OverlayStore, content: bytes) -> bytes:
    return b"".join(reader(store).layer(digest_of(content)))


def read(engine: LocalEngine, cache: BlobCache, **options: object) -> Collected:
    options = {"stop": threading.Event(), **options}
    return collect(IMAGE.local, engine, cache=cache, compression=Compression.GZIP, **options)


def unpacked(collected: Collected) -> list[bytes]:
    return [gzip.decompress(blob.path.read_bytes()) for blob in collected.blobs]


def test_the_chain_of_a_layer_is_all_that_is_below_it() -> None:
    first, second = digest_of(b"1"), digest_of(b"2")
    chain = digest_of(f"{first} {second}".encode())
    assert chain_ids([first, second]) == {first: first, second: chain}
    assert chain_ids([first, second, first]) == {first: first, second: chain}
    assert chain_ids([]) == {}


def test_every_layer_is_put_together_byte_for_byte(store: OverlayStore) -> None:
    for content in (BASE, EMPTY_LAYER, TOP):
        assert layer(store, content) == content
    assert reader(store).config() == IMAGE.config
    assert reader(store).size(digest_of(TOP)) == len(TOP)


def test_an_image_is_collected_without_an_export(store: OverlayStore, cache: BlobCache) -> None:
    engine = LocalEngine(store)
    ready: list[str] = []
    collected = read(engine, cache, on_blob=lambda blob: ready.append(blob.diff_id))
    assert collected.source == "store"
    assert collected.config == IMAGE.config
    assert unpacked(collected) == list(IMAGE.layers)
    assert collected.compressed == len(BASE) + len(EMPTY_LAYER) + len(TOP)
    assert sorted(ready) == sorted(set(IMAGE.local.diff_ids))
    assert engine.exports == 0


def test_only_what_the_cache_lacks_is_read(store: OverlayStore, cache: BlobCache) -> None:
    engine = LocalEngine(store)
    first = read(engine, cache)
    path = cache.folder / "layers" / "gzip" / digest_of(TOP).removeprefix("sha256:")
    path.unlink()
    shutil.rmtree(store.tree(BASE))
    again = read(engine, cache)
    assert again.blobs == first.blobs
    assert (again.compressed, again.source) == (len(TOP), "store")
    assert read(engine, cache).source == "cache"


def leave_by_link(store: OverlayStore) -> None:
    shutil.rmtree(store.tree(TOP) / "app")
    (store.tree(TOP) / "app").symlink_to(store.root.parent)
    store.write_split(TOP, {"type": 1, "name": "app/secret", "size": len(SECRET)})


def leave_by_link_at_the_end(store: OverlayStore) -> None:
    (store.tree(TOP) / "link").symlink_to(store.root.parent / "secret")
    store.write_split(TOP, {"type": 1, "name": "link", "size": len(SECRET)})


def leave_by_name(store: OverlayStore) -> None:
    up = "app/../../../../../secret"
    assert (store.tree(TOP) / up).read_bytes() == SECRET
    store.write_split(TOP, {"type": 1, "name": up, "size": len(SECRET)})


def leave_by_absolute_name(store: OverlayStore) -> None:
    name = str(store.root.parent / "secret")
    store.write_split(TOP, {"type": 1, "name": name, "size": len(SECRET)})


def wait_at_a_fifo(store: OverlayStore) -> None:
    os.mkfifo(store.tree(TOP) / "fifo")
    store.write_split(TOP, {"type": 1, "name": "fifo", "size": 5})


def read_a_folder(store: OverlayStore) -> None:
    store.write_split(TOP, {"type": 1, "name": "app", "size": 5})


def end_early(store: OverlayStore) -> None:
    (store.tree(TOP) / "app" / "one").write_bytes(b"1" * 2999)


def lose_a_file(store: OverlayStore) -> None:
    (store.tree(TOP) / "app" / "two").unlink()


def lose_the_layer(store: OverlayStore) -> None:
    shutil.rmtree(store.record(TOP))


def name_another_folder(store: OverlayStore) -> None:
    (store.record(TOP) / "cache-id").write_text("../../etc")


def cut_off(store: OverlayStore) -> None:
    path = store.record(TOP) / "tar-split.json.gz"
    path.write_bytes(path.read_bytes()[:-20])


def flip_a_bit(store: OverlayStore) -> None:
    path = store.record(TOP) / "tar-split.json.gz"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)


def compress_otherwise(store: OverlayStore) -> None:
    (store.record(TOP) / "tar-split.json.gz").write_bytes(b'{"type": 2, "payload": ""}\n')


def write_no_json(store: OverlayStore) -> None:
    (store.record(TOP) / "tar-split.json.gz").write_bytes(gzip.compress(b"nonsense\n"))


def write_no_mapping(store: OverlayStore) -> None:
    (store.record(TOP) / "tar-split.json.gz").write_bytes(gzip.compress(b"[1, 2]\n"))


def end_without_a_line(store: OverlayStore) -> None:
    (store.record(TOP) / "tar-split.json.gz").write_bytes(gzip.compress(b'{"type": 2}'))


def write_a_new_type(store: OverlayStore) -> None:
    store.write_split(TOP, {"type": 3, "payload": ""})


def write_bad_base64(store: OverlayStore) -> None:
    store.write_split(TOP, {"type": 2, "payload": "x"})


def name_nothing(store: OverlayStore) -> None:
    store.write_split(TOP, {"type": 1, "size": 5})


def write_a_size_of_text(store: OverlayStore) -> None:
    store.write_split(TOP, {"type": 1, "name": "app/one", "size": "large"})


UNREADABLE = (
    leave_by_link,
    leave_by_link_at_the_end,
    leave_by_name,
    leave_by_absolute_name,
    wait_at_a_fifo,
    read_a_folder,
    end_early,
    lose_a_file,
    lose_the_layer,
    name_another_folder,
    cut_off,
    flip_a_bit,
    compress_otherwise,
    write_no_json,
    write_no_mapping,
    end_without_a_line,
    write_a_new_type,
    write_bad_base64,
    name_nothing,
    write_a_size_of_text,
)


@pytest.mark.parametrize("damage", UNREADABLE, ids=lambda damage: damage.__name__)
def test_what_cannot_be_read_is_exported_and_nothing_else(
    damage: Callable[[OverlayStore], None], store: OverlayStore, cache: BlobCache
) -> None:
    damage(store)
    with pytest.raises(Unreadable):
        layer(store, TOP)
    engine = LocalEngine(store)
    counted: list[int] = []
    collected = read(engine, cache, on_compressed=counted.append)
    assert unpacked(collected) == list(IMAGE.layers)
    assert (collected.source, engine.exports) == ("export", 1)
    assert len(BASE) + len(TOP) <= sum(counted) < 2 * len(BASE)


def test_a_layer_that_reads_well_but_is_another_is_exported(
    store: OverlayStore, cache: BlobCache
) -> None:
    (store.tree(TOP) / "app" / "one").write_bytes(b"!" * 3000)
    assert layer(store, TOP) != TOP
    collected = read(LocalEngine(store), cache)
    assert (collected.source, unpacked(collected)) == ("export", list(IMAGE.layers))


def test_an_engine_without_the_config_here_is_asked_for_all(
    store: OverlayStore, cache: BlobCache
) -> None:
    store.config.write_bytes(IMAGE.config + b" ")
    with pytest.raises(Unreadable, match="not the image ID"):
        reader(store).config()
    collected = read(LocalEngine(store), cache)
    assert (collected.source, collected.config) == ("export", IMAGE.config)


@pytest.mark.parametrize(
    "leave",
    [leave_by_link, leave_by_link_at_the_end, leave_by_name, leave_by_absolute_name],
    ids=lambda leave: leave.__name__,
)
def test_nothing_of_a_file_outside_gets_out(
    leave: Callable[[OverlayStore], None], store: OverlayStore
) -> None:
    leave(store)
    got: list[bytes] = []
    with pytest.raises(Unreadable):
        got.extend(reader(store).layer(digest_of(TOP)))
    assert SECRET not in b"".join(got)


def test_a_long_line_is_read_and_a_huge_one_is_not(store: OverlayStore) -> None:
    store.write_split(TOP, literal(bytes(10 << 20)))
    assert layer(store, TOP) == bytes(10 << 20)
    store.write_split(TOP, literal(bytes(30 << 20)))
    with pytest.raises(Unreadable, match="a line without an end"):
        layer(store, TOP)


def test_a_set_stop_ends_it_and_leaves_nothing(store: OverlayStore, cache: BlobCache) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        read(LocalEngine(store), cache, stop=stop)
    assert list((cache.folder / "partial").iterdir()) == []


def test_the_first_failure_ends_all(store: OverlayStore, cache: BlobCache) -> None:
    def fail(blob: object) -> None:
        raise Drift("enough")

    with pytest.raises(Drift, match="enough"):
        read(LocalEngine(store), cache, on_blob=fail)
    shutil.rmtree(cache.folder / "partial")
    with pytest.raises(PrerequisiteMissing, match="cannot write"):
        read(LocalEngine(store), cache)


@pytest.mark.parametrize(
    ("driver", "status", "classic"),
    [
        ("overlay2", [["Backing Filesystem", "extfs"], ["Supports d_type", "true"]], True),
        ("overlayfs", [["driver-type", "io.containerd.snapshotter.v1"]], False),
        ("overlay2", [["driver-type", "io.containerd.snapshotter.v1"]], False),
        ("vfs", [], False),
        ("overlay2", None, True),
    ],
)
def test_an_engine_says_whether_its_folders_can_be_read(
    driver: str, status: list[list[str]] | None, classic: bool
) -> None:
    """The first two are what Docker 20.10 and Docker 28.5 said."""
    assert has_overlay_store({"Driver": driver, "DriverStatus": status}) is classic

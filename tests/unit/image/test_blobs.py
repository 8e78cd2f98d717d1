"""The cache of compressed layers: what is in it can be trusted, and it stays within bounds."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rayfleet.errors import PrerequisiteMissing, ToolFailed
from rayfleet.fleet.model import Compression
from rayfleet.image.layers.blobs import Blob, BlobCache
from tests.support.archives import digest_of

GZIP, ZSTD = Compression.GZIP, Compression.ZSTD
CONTENT = os.urandom(100_000)


def diff_id(name: str) -> str:
    return digest_of(name.encode())


def add(cache: BlobCache, name: str, content: bytes = CONTENT) -> Blob:
    """Keep ``content`` as the compressed form of the layer called ``name``."""
    with cache.new_blob(GZIP) as new:
        new.write(content[:1000])
        new.write(content[1000:])
        return new.keep(diff_id(name), raw_size=2 * len(content))


def files(folder: Path) -> list[str]:
    """Every file of a cache but the records."""
    return sorted(
        path.name for path in folder.rglob("*") if path.is_file() and path.parent.name != "gzip"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def cache(folder: Path) -> Iterator[BlobCache]:
    with BlobCache(folder) as opened:
        yield opened


def test_what_was_kept_is_found_by_this_run_and_by_later_ones(folder: Path) -> None:
    with BlobCache(folder) as cache:
        kept = add(cache, "one")
        assert cache.find(diff_id("one"), GZIP) == kept
    assert (kept.digest, kept.size) == (digest_of(CONTENT), len(CONTENT))
    assert (kept.diff_id, kept.raw_size) == (diff_id("one"), 2 * len(CONTENT))
    assert kept.media_type == "application/vnd.oci.image.layer.v1.tar+gzip"
    with BlobCache(folder) as cache:
        found = cache.find(diff_id("one"), GZIP)
        assert found == kept
        with found.open() as content:
            assert content.read() == CONTENT
        assert cache.find(diff_id("one"), ZSTD) is None
        assert cache.find(diff_id("two"), GZIP) is None


def test_what_is_not_kept_leaves_nothing(cache: BlobCache, folder: Path) -> None:
    with cache.new_blob(GZIP) as new:
        new.write(CONTENT)
    with suppress(KeyError), cache.new_blob(GZIP) as new:
        new.write(CONTENT)
        raise KeyError
    assert files(folder) == []


def upload(blob: Blob, got: list[bytes], size: int) -> None:
    """Read as an uploader does, who stops after the size that he announced: before the end."""
    with blob.open() as content:
        while len(b"".join(got)) < blob.size:
            got.append(content.read(size))


@pytest.mark.parametrize("read", [-1, 4096, len(CONTENT)])
def test_a_damaged_blob_is_never_given_out_whole_and_goes(folder: Path, read: int) -> None:
    with BlobCache(folder) as cache:
        kept = add(cache, "one")
    damaged = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    kept.path.write_bytes(damaged)
    with BlobCache(folder) as cache:
        found = cache.find(diff_id("one"), GZIP)
        assert found is not None
        got: list[bytes] = []
        with pytest.raises(ToolFailed, match=rf"layer {kept.path} is damaged") as error:
            upload(found, got, read)
        assert len(b"".join(got)) < found.size
        assert "run the same command again" in error.value.next_step
        assert cache.find(diff_id("one"), GZIP) is None
        assert add(cache, "one").path.read_bytes() == CONTENT
        assert cache.find(diff_id("one"), GZIP) is not None


def test_a_blob_of_another_size_is_not_found(folder: Path) -> None:
    with BlobCache(folder) as cache:
        kept = add(cache, "one")
    kept.path.write_bytes(CONTENT[:-1])
    with BlobCache(folder) as cache:
        assert cache.find(diff_id("one"), GZIP) is None
        assert files(folder) == []
        add(cache, "one")
        kept.path.write_bytes(b"cut off while in use")
        with pytest.raises(ToolFailed, match="damaged: its size is wrong"):
            kept.open()


@pytest.mark.parametrize(
    "record", [b"", b"nonsense", b"[]", b'{"digest": "sha256:../../x", "size": 1, "raw_size": 1}']
)
def test_a_record_of_nonsense_is_no_record(folder: Path, record: bytes) -> None:
    with BlobCache(folder) as cache:
        add(cache, "one")
        path = folder / "layers" / "gzip" / diff_id("one").removeprefix("sha256:")
        assert json.loads(path.read_text())["size"] == len(CONTENT)
        path.write_bytes(record)
        assert cache.find(diff_id("one"), GZIP) is None
        add(cache, "one")
        assert cache.find(diff_id("one"), GZIP) is not None


def test_one_reader_of_a_run_computes_the_digest_for_all(folder: Path) -> None:
    with BlobCache(folder) as cache:
        kept = add(cache, "one")
        kept.path.write_bytes(bytes(len(CONTENT)))
        with kept.open() as content:  # this run has computed it when it wrote the blob
            assert content.read() == bytes(len(CONTENT))
    with BlobCache(folder) as cache:
        found = cache.find(diff_id("one"), GZIP)
        assert found is not None
        with found.open() as first, found.open() as second:
            assert second.read() == bytes(len(CONTENT))
            first.read(10)
        with found.open() as third, pytest.raises(ToolFailed):  # the first gave up
            third.read()


def test_a_reader_may_start_again(folder: Path) -> None:
    with BlobCache(folder) as cache:
        add(cache, "one")
    with BlobCache(folder) as cache:
        found = cache.find(diff_id("one"), GZIP)
        assert found is not None
        with found.open() as content:
            content.read(500)
            assert content.seek(0) == content.tell() == 0
            assert content.read() == CONTENT
            assert content.seek(10) == 10
            assert content.read(5) == CONTENT[10:15]
        buffer = bytearray(found.size)
        with found.open() as content:
            assert content.readinto(buffer) == found.size
        assert hashlib.sha256(buffer).hexdigest() == found.digest.removeprefix("sha256:")


def test_the_least_recently_used_go_when_there_are_too_many(folder: Path) -> None:
    contents = {name: os.urandom(1000) for name in ("one", "two", "three")}
    with BlobCache(folder) as cache:
        for age, (name, content) in enumerate(contents.items()):
            os.utime(add(cache, name, content).path, (age, age))
    with BlobCache(folder) as cache:
        assert cache.find(diff_id("one"), GZIP) is not None, "which makes it the latest"
    with BlobCache(folder, limit=2500) as cache:
        assert cache.find(diff_id("two"), GZIP) is None
        assert cache.find(diff_id("one"), GZIP) is not None
        assert cache.find(diff_id("three"), GZIP) is not None
    assert len(list((folder / "layers" / "gzip").iterdir())) == 2


def test_a_run_may_go_over_the_limit_but_leaves_the_cache_within_it(folder: Path) -> None:
    with BlobCache(folder, limit=2500) as cache:
        kept = [add(cache, name, os.urandom(1000)) for name in ("one", "two", "three")]
        assert all(blob.path.exists() for blob in kept)
    assert sum(blob.path.exists() for blob in kept) == 2


def test_what_one_run_uses_no_other_run_clears_away(folder: Path) -> None:
    with BlobCache(folder) as cache:
        added = add(cache, "one", b"1" * 1000)
        with BlobCache(folder, limit=0) as other:
            assert other.find(diff_id("one"), GZIP) == added
        assert added.path.exists()
    with BlobCache(folder) as cache:
        assert cache.find(diff_id("one"), GZIP) is not None
        with BlobCache(folder, limit=0):
            pass
        assert added.path.exists()
    with BlobCache(folder, limit=0):
        assert not added.path.exists()


def test_two_runs_that_make_the_same_blob_both_keep_it(folder: Path) -> None:
    with BlobCache(folder) as one:
        with BlobCache(folder) as two, two.new_blob(GZIP) as new:
            new.write(CONTENT)
            first = add(one, "one")
            second = new.keep(diff_id("one"), raw_size=2 * len(CONTENT))
            assert first == second
        assert files(folder) == [first.path.name]
        with BlobCache(folder, limit=0):
            pass
        with first.open() as content:
            assert content.read() == CONTENT
    with BlobCache(folder) as one, one.new_blob(GZIP) as new:
        with BlobCache(folder) as two:
            second = add(two, "two", b"2" * 1000)
        new.write(b"2" * 1000)
        new.keep(diff_id("two"), raw_size=1)
        with BlobCache(folder, limit=0):
            pass
        assert second.path.exists(), "the run that came second holds the other's file"


HOLD = """
import signal, sys
from pathlib import Path
from rayfleet.fleet.model import Compression
from rayfleet.image.layers.blobs import BlobCache
cache = BlobCache(Path(sys.argv[1])).__enter__()
assert cache.find(sys.argv[2], Compression.GZIP)
block = cache.new_blob(Compression.GZIP)
new = block.__enter__()
new.write(b"half of something")
print("ready", flush=True)
signal.pause()
"""


def test_locks_and_drafts_end_with_a_process_that_is_killed(folder: Path) -> None:
    with BlobCache(folder) as cache:
        kept = add(cache, "one")
    argv = [sys.executable, "-c", HOLD, str(folder), diff_id("one")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            with BlobCache(folder, limit=0):
                pass
            assert len(files(folder)) == 2, "the blob in use and the draft being written"
            assert kept.path.exists()
        finally:
            process.kill()
    with BlobCache(folder, limit=0):
        assert files(folder) == []


FILL = """
import resource, sys
from pathlib import Path
from rayfleet.fleet.model import Compression
from rayfleet.image.layers.blobs import BlobCache
with BlobCache(Path(sys.argv[1])) as cache:
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    with cache.new_blob(Compression.GZIP) as new:
        new.write(bytes(100_000))
"""


def test_a_file_that_may_not_grow_is_a_clear_error_and_leaves_nothing(folder: Path) -> None:
    argv = [sys.executable, "-c", FILL, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert f"cannot write {folder}/partial: File too large" in done.stderr
    assert "free space" in done.stderr
    assert files(folder) == []


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file")
    with pytest.raises(PrerequisiteMissing, match="cannot write"), BlobCache(tmp_path / "blobs"):
        pass


def test_configs_are_kept_by_image_and_checked_when_read(cache: BlobCache, folder: Path) -> None:
    image, config = diff_id("image"), b'{"rootfs":\n{}}'
    assert cache.config(image) is None
    cache.keep_config(image, config)
    assert cache.config(image) == config
    path = folder / "configs" / image.removeprefix("sha256:")
    path.write_bytes(path.read_bytes() + b" ")
    assert cache.config(image) is None
    assert not path.exists()
    assert files(folder) == []


def test_only_digests_become_names_of_files(cache: BlobCache) -> None:
    for wrong in ("../../etc/passwd", "sha256:../x", "sha512:" + "0" * 64, ""):
        with pytest.raises(ValueError, match="no sha256 digest"):
            cache.find(wrong, GZIP)

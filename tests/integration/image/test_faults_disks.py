"""Disks that are full or damaged: the one that the cache is on, and a registry's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayfleet.errors import PrerequisiteMissing
from tests.support.faults import Refuse, Rule, on
from tests.support.faulty_regions import BAD, FaultyRegions
from tests.support.loaded_images import KIB
from tests.support.publisher_process import finish, publisher
from tests.support.registry import LocalRegistry

pytestmark = pytest.mark.integration

GZIP_MAGIC = b"\x1f\x8b"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a tiny disk")


@contextmanager
def disk(folder: Path, *, kib: int) -> Iterator[Callable[[int], None]]:
    """A disk of so many KiB at ``folder`` for the block; yields what makes it larger."""
    folder.mkdir(parents=True, exist_ok=True)

    def mount(options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "rayfleet-test", folder], check=True)

    mount(f"size={kib}k")
    try:
        yield lambda larger: mount(f"remount,size={larger}k")
    finally:
        subprocess.run(["umount", folder], check=True)


@needs_root
@pytest.mark.parametrize("kib", [16, 200, 600, 1100])
def test_a_full_cache_disk_is_a_clear_error_and_space_mends_it(
    regions: FaultyRegions, tmp_path: Path, kib: int
) -> None:
    regions.state = tmp_path / "tiny" / "state"
    with disk(tmp_path / "tiny", kib=kib) as enlarge:
        with pytest.raises(PrerequisiteMissing) as full:
            regions.publish()
        text = full.value.text()
        assert str(regions.state) in text
        assert "No space left on device" in text
        assert full.value.next_step
        assert not any(regions.sound().values())
        enlarge(64 * KIB)
        regions.rerun()


def test_a_file_that_may_not_grow_is_a_clear_error_and_space_mends_it(
    regions: FaultyRegions,
) -> None:
    with publisher(regions, largest_file=500 * KIB) as process:
        ended = finish(process)
    assert ended.code == 1, ended
    assert "Traceback" not in ended.err
    assert f"error: cannot write {regions.state}" in ended.err
    assert "File too large" in ended.err
    assert not any(regions.sound().values())
    regions.rerun()


@needs_root
def test_a_full_disk_of_a_registry_is_an_error_of_its_region(
    regions: FaultyRegions, tmp_path: Path
) -> None:
    folder = tmp_path / "small"
    registry = LocalRegistry(folder=folder)
    with disk(folder, kib=700) as enlarge:
        try:
            registry.start()
            regions.registries[BAD] = registry
            regions.proxies[BAD].upstream = registry.host
            regions.fail_in_one(regions.publish(), regions.proxies[BAD].host)
            enlarge(64 * KIB)
            regions.rerun()
        finally:
            registry.stop()


def test_a_blob_that_a_full_disk_left_broken_in_a_registry_is_sent_again(
    regions: FaultyRegions,
) -> None:
    regions.spoil(BAD, Rule(fault=Refuse(403), when=on("manifest", "PUT"), times=None))
    assert not regions.publish().complete
    # What docker-registry 2.8 leaves of a link that it has no room for; of the blob it then
    # only says that something is wrong.
    link = max(regions.walk(BAD).layers.glob("*/link"))
    link.write_bytes(b"")
    assert not regions.walk(BAD).has(f"sha256:{link.parent.name}")
    regions.rerun()
    assert regions.proxies[BAD].accepted() == {f"sha256:{link.parent.name}": 1}


def test_a_tag_that_a_full_disk_left_broken_in_a_registry_is_set_again(
    regions: FaultyRegions,
) -> None:
    published = regions.publish()
    # As above: a tag whose link has no room. The registry fails to read it for good.
    for tag in published.tags[1:]:
        link = regions.walk(BAD).tag_links / tag / "current" / "link"
        assert link.stat().st_size
        link.write_bytes(b"")
    regions.rerun()
    assert regions.proxies[BAD].accepted() == {}


def blob_files(regions: FaultyRegions) -> list[Path]:
    """The compressed layers in the cache, the largest first."""
    files = [each for each in (regions.state / "blobs").rglob("*") if each.is_file()]
    found = [each for each in files if each.read_bytes()[:2] == GZIP_MAGIC]
    assert len(found) == 4
    return sorted(found, key=lambda each: each.stat().st_size, reverse=True)


def change(file: Path) -> None:
    with file.open("r+b") as handle:
        handle.seek(-100, os.SEEK_END)
        handle.write(b"damaged")


def shorten(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", [change, shorten, empty, remove], ids=lambda each: each.__name__)
def test_a_damaged_cache_never_gets_to_a_registry(
    regions: FaultyRegions, damage: Callable[[Path], None]
) -> None:
    first = regions.publish()
    regions.repository = "test-project/marin/another"
    damage(blob_files(regions)[0])
    second = regions.publish()
    if damage is change:  # found while it is read, too late for this run
        errors = [each.error for each in second.regions if each.error]
        assert errors
        assert all(str(regions.state) in error.text() for error in errors)
    else:
        assert second.complete, regions.said
    regions.held()
    assert regions.rerun().digest == first.digest

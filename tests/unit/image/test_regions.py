"""The steps of a publish, in every region of a fleet of registries in memory."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from rayfleet.bars import Tally
from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.image.publish.manifest import MANIFEST_TYPE, BuiltManifest, ConfigBlob, sha256
from rayfleet.image.publish.region import Halted, Region
from rayfleet.image.publish.regions import Regions
from rayfleet.waiting import wait_until
from tests.support.memory_registry import MemoryBlob, MemoryRegistry

NAMES = ("us-central2", "europe-west4", "us-east5")
TAGS = ("3f2a1bc", "20261120", "latest")
WAIT_SECONDS = 10.0
OTHER = f"sha256:{'0' * 64}"

Registries = dict[str, MemoryRegistry]


def image(name: str, *sizes: int) -> tuple[BuiltManifest, tuple[MemoryBlob, ...]]:
    """An image of as many layers; equal sizes are equal layers, in other images too."""
    blobs = tuple(MemoryBlob(digest=sha256(b"%d" % size), size=size) for size in sizes)
    data = json.dumps({"name": name}).encode()
    config = ConfigBlob(digest=sha256(data), data=data)
    raw = json.dumps(
        {
            "config": {"digest": config.digest},
            "layers": [{"digest": blob.digest} for blob in blobs],
        }
    ).encode()
    size = sum({blob.digest: blob.size for blob in blobs}.values()) + config.size
    built = BuiltManifest(
        raw=raw, digest=sha256(raw), media_type=MANIFEST_TYPE, config=config, size=size
    )
    return built, blobs


@pytest.fixture
def registries() -> Registries:
    return {name: MemoryRegistry() for name in NAMES}


@contextmanager
def opened(registries: Registries, *, uploads: int = 2) -> Iterator[Regions]:
    regions = Regions(TAGS)
    for name, registry in registries.items():
        regions.members.append(
            Region(
                name,
                f"{name}.test/p/r/i",
                registry,
                Tally(region=name),
                uploads=uploads,
                on_failure=regions.note_failure,
            )
        )
    try:
        yield regions
    finally:
        regions.halt()


def publish(
    registries: Registries,
    built: BuiltManifest,
    blobs: tuple[MemoryBlob, ...],
    *,
    early: int = 0,
) -> Regions:
    """Publish; the first ``early`` blobs are ready before the manifest is."""
    with opened(registries) as regions:
        regions.read_tags()
        for blob in blobs[:early]:
            regions.offer(blob)
        regions.supply(built, blobs, {"latest"})
        regions.move(built, {"latest"})
        regions.verify(built)
    return regions


def errors(regions: Regions) -> dict[str, str]:
    return {each.name: each.error.what for each in regions.members if each.error is not None}


@pytest.mark.parametrize("early", [0, 2, 4])
def test_every_registry_gets_each_blob_once_then_the_manifest_then_the_tags(
    registries: Registries, early: int
) -> None:
    built, blobs = image("one", 10, 20, 10, 30)
    regions = publish(registries, built, blobs, early=early)

    assert errors(regions) == {}
    digests = sorted({blob.digest for blob in (*blobs, built.config)})
    for registry in registries.values():
        assert sorted(registry.asked("look")) == digests
        assert sorted(registry.asked("send")) == digests
        puts = registry.asked("put")
        assert puts[0] == built.digest
        assert sorted(puts[1:3]) == sorted(TAGS[:2])
        assert puts[3:] == ["latest"]
        last_send = max(n for n, (what, _) in enumerate(registry.log) if what == "send")
        assert last_send < registry.log.index(("put", built.digest))
        assert registry.tags == dict.fromkeys(TAGS, built.digest)
        assert sorted(registry.asked("read")) == sorted(2 * TAGS)
    result = regions.members[0].result()
    assert (result.sent, result.present) == (60 + built.config.size, 0)


def test_nothing_but_the_tags_is_read_where_all_is_there(registries: Registries) -> None:
    built, blobs = image("one", 10, 20)
    publish(registries, built, blobs)
    for registry in registries.values():
        registry.log.clear()

    regions = publish(registries, built, blobs)

    for registry in registries.values():
        assert sorted(registry.log) == sorted(("read", tag) for tag in TAGS)
    result = regions.members[0].result()
    assert (result.sent, result.present, result.tags_set) == (0, built.size, ())


def test_only_what_is_missing_is_sent(registries: Registries) -> None:
    publish(registries, *image("one", 10, 20))
    registries["us-east5"].blobs.discard(sha256(b"10"))
    for registry in registries.values():
        registry.log.clear()
    built, blobs = image("two", 10, 20, 30)

    regions = publish(registries, built, blobs, early=1)

    top, config = sha256(b"30"), built.config.digest
    assert sorted(registries["us-central2"].asked("send")) == sorted([top, config])
    assert sorted(registries["us-east5"].asked("send")) == sorted([top, config, sha256(b"10")])
    result = regions.members[0].result()
    assert (result.sent, result.present) == (30 + built.config.size, 30)
    assert (result.blobs_sent, result.blobs_present) == (2, 2)


def test_a_registry_that_has_the_manifest_is_not_asked_for_blobs(registries: Registries) -> None:
    built, blobs = image("one", 10, 20)
    publish(registries, built, blobs)
    del registries["us-east5"].tags["latest"]
    for registry in registries.values():
        registry.log.clear()

    publish(registries, built, blobs)

    assert registries["us-east5"].asked("look") == []
    assert registries["us-east5"].asked("put") == [built.digest, "latest"]
    assert registries["us-east5"].tags["latest"] == built.digest
    assert registries["us-central2"].asked("put") == []


def test_the_largest_blob_that_waits_goes_first(registries: Registries) -> None:
    registry, go = registries["us-east5"], threading.Event()
    sending = threading.Event()

    def before(what: str, of: str) -> None:
        if what == "send" and of == sha256(b"1"):
            sending.set()
            assert go.wait(WAIT_SECONDS)

    registry.before = before
    _, blobs = image("one", 1, 20, 50, 30)
    with opened({"us-east5": registry}, uploads=1) as regions:
        regions.offer(blobs[0])
        assert sending.wait(WAIT_SECONDS)
        for blob in blobs[1:]:
            regions.offer(blob)
        until(lambda: len(registry.asked("look")) == len(blobs))
        region = regions.members[0]
        until(lambda: region.tally.missing == sum(blob.size for blob in blobs))
        go.set()
        region.settle()
    assert registry.asked("send") == [sha256(b"%d" % size) for size in (1, 50, 30, 20)]


def test_a_region_that_fails_keeps_latest_everywhere_and_stops_nobody(
    registries: Registries,
) -> None:
    old, old_blobs = image("old", 5)
    publish(registries, old, old_blobs)
    built, blobs = image("one", 10, 20, 30)

    def down(what: str, of: str) -> None:
        if what == "send":
            raise Unreachable("registry does not answer", why="connection refused")

    registries["europe-west4"].before = down
    regions = publish(registries, built, blobs)

    assert errors(regions) == {"europe-west4": "registry does not answer"}
    for name in ("us-central2", "us-east5"):
        assert registries[name].tags == {
            "3f2a1bc": built.digest,
            "20261120": built.digest,
            "latest": old.digest,
        }
    assert registries["europe-west4"].tags == dict.fromkeys(TAGS, old.digest)

    registries["europe-west4"].before = lambda what, of: None
    for registry in registries.values():
        registry.log.clear()
    assert errors(publish(registries, built, blobs)) == {}
    assert registries["us-east5"].asked("send") == []
    assert registries["us-east5"].asked("put") == [built.digest, "latest"]
    assert registries["europe-west4"].tags == dict.fromkeys(TAGS, built.digest)


def test_the_rest_of_a_region_that_failed_is_dropped(registries: Registries) -> None:
    registry = registries["us-east5"]

    def before(what: str, of: str) -> None:
        if what == "send":
            raise ToolFailed("no room")

    registry.before = before
    built, blobs = image("one", *range(1, 40))
    with opened({"us-east5": registry}, uploads=1) as regions:
        regions.supply(built, blobs, {"latest"})
        assert errors(regions) == {"us-east5": "no room"}
        assert regions.abandoned.is_set()
    assert registry.asked("put") == []
    assert registry.asked("send") == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_blob_that_vanishes_is_sent_again_once(registries: Registries, times: int) -> None:
    built, blobs = image("one", 10, 20)
    registry, left = registries["us-east5"], [times]

    def collect_garbage(what: str, of: str) -> None:
        if what == "put" and of == built.digest and left[0]:
            left[0] -= 1
            registry.blobs.discard(sha256(b"20"))

    registry.before = collect_garbage
    regions = publish(registries, built, blobs)

    assert registry.asked("send").count(sha256(b"20")) == 2
    assert registry.asked("send").count(sha256(b"10")) == 1
    if times == 1:
        assert errors(regions) == {}
        assert registry.tags == dict.fromkeys(TAGS, built.digest)
    else:
        assert list(errors(regions)) == ["us-east5"]
        assert registry.tags == {}
        assert "latest" not in registries["us-central2"].tags


def test_a_tag_that_somebody_moves_is_set_again(registries: Registries) -> None:
    built, blobs = image("one", 10)
    registry, left = registries["us-east5"], [1]

    def meddle(what: str, of: str) -> None:
        if what == "read" and of == "latest" and registry.tags.get("latest") and left[0]:
            left[0] -= 1
            registry.tags["latest"] = OTHER

    registry.before = meddle
    assert errors(publish(registries, built, blobs)) == {}
    assert registry.tags["latest"] == built.digest


def test_a_tag_that_does_not_stay_is_an_error_that_names_it(registries: Registries) -> None:
    built, blobs = image("one", 10)
    registry = registries["us-east5"]

    def meddle(what: str, of: str) -> None:
        if what == "read":
            registry.tags["latest"] = OTHER

    registry.before = meddle
    regions = publish(registries, built, blobs)
    error = regions.members[2].error
    assert error is not None
    assert error.what == "us-east5.test/p/r/i:latest is not what was published"
    assert error.why == f"it is {OTHER}, not {built.digest}"
    assert errors(regions).keys() == {"us-east5"}


@pytest.mark.parametrize("seed", range(20))
def test_two_publishers_at_once_leave_all_regions_equal(seed: int) -> None:
    registries = {name: MemoryRegistry() for name in NAMES}
    for number, registry in enumerate(registries.values()):
        registry.before = hesitation(Random(100 * seed + number))  # noqa: S311
    images = [image("one", 10, 20), image("two", 10, 30)]
    ended: list[Regions] = []
    threads = [
        threading.Thread(target=lambda each=each: ended.append(publish(registries, *each)))
        for each in images
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert [errors(each) for each in ended] == [{}, {}]
    for tag in TAGS:
        assert len({registry.tags[tag] for registry in registries.values()}) == 1


def hesitation(random: Random) -> Callable[[str, str], None]:
    """Let requests overtake each other in another way for each seed; nothing waits for it."""

    def before(what: str, of: str) -> None:
        time.sleep(random.uniform(0, 0.002))

    return before


def test_a_run_that_is_stopped_ends_at_once(registries: Registries) -> None:
    registry, begun = registries["us-east5"], threading.Event()

    def hang(what: str, of: str) -> None:
        if what == "send":
            begun.set()
            stopped.wait(WAIT_SECONDS)

    stopped = threading.Event()
    registry.before = hang
    _, blobs = image("one", 10, 20)
    with opened({"us-east5": registry}, uploads=1) as regions:
        region = regions.members[0]
        region.offer(blobs[0])
        assert begun.wait(WAIT_SECONDS)
        region.halt()
        with pytest.raises(Halted):
            region.settle()
        stopped.set()
    assert region.error is None
    assert registry.asked("put") == []


def test_a_mistake_of_ours_is_not_swallowed(registries: Registries) -> None:
    def broken(what: str, of: str) -> None:
        raise ZeroDivisionError

    registries["us-east5"].before = broken
    with pytest.raises(ZeroDivisionError):
        publish(registries, *image("one", 10))


def until(condition: Callable[[], object]) -> None:
    wait_until(condition, what="the registry", timeout=WAIT_SECONDS, interval=0.001)

"""What a publish asks of each registry, request by request, and how it ends when disturbed."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rayfleet.fleet.model import Compression
from rayfleet.waiting import wait_until
from tests.support.faults import Fault, Request, Stall, on
from tests.support.faulty_regions import QUICK, REGIONS, TAGS, FaultyRegions
from tests.support.loaded_images import KIB, loaded_image, random_layer
from tests.support.publisher_process import finish, publisher

pytestmark = pytest.mark.integration

LAYERS = (300 * KIB, 40 * KIB, KIB)
# An operator who presses Ctrl-C waits for no network: nobody here waits that long.
SILENCE = replace(QUICK, read_timeout=600)


@pytest.fixture(scope="module")
def base() -> list[bytes]:
    """Three layers, of which the last is the first again."""
    layers = [random_layer(size) for size in LAYERS[:2]]
    return [*layers, layers[0]]


@pytest.fixture(scope="module")
def first_image(base: list[bytes]) -> Iterator[str]:
    """An image of them."""
    with loaded_image(base) as name:
        yield name


@pytest.fixture(scope="module")
def second_image(base: list[bytes]) -> Iterator[str]:
    """The same with one small layer more."""
    with loaded_image([*base, random_layer(LAYERS[2])]) as name:
        yield name


def asked(regions: FaultyRegions, region: str) -> Counter[str]:
    """How often a registry was asked what; the challenges it answered count apart."""
    exchanges = regions.proxies[region].exchanges
    return Counter(
        "challenge" if each.status == 401 else f"{each.request.method} {each.request.kind}"
        for each in exchanges
    )


def test_a_cold_publish_asks_and_sends_each_blob_once(
    regions: FaultyRegions, first_image: str
) -> None:
    published = regions.publish(image=first_image)
    assert published.complete
    regions.sound()
    for region in REGIONS:
        seen = asked(regions, region)
        assert 1 <= seen.pop("challenge") <= len(TAGS) + 3
        assert seen == {
            "HEAD blob": 3,
            "POST start": 3,
            "PUT upload": 3,
            "HEAD manifest": 2 * len(TAGS),
            "PUT manifest": 1 + len(TAGS),
        }
    assert {each.sent for each in published.regions} == {published.size}
    assert published.present == 0


def test_a_publish_of_what_is_there_only_reads_the_tags(
    regions: FaultyRegions, first_image: str
) -> None:
    regions.publish(image=first_image)
    regions.mend()
    published = regions.publish(image=first_image)
    for region in REGIONS:
        seen = asked(regions, region)
        assert 1 <= seen.pop("challenge") <= len(TAGS) + 3
        assert seen == {"HEAD manifest": len(TAGS)}
    assert (published.sent, published.source) == (0, "cache")
    assert published.present == len(REGIONS) * published.size


def test_a_changed_layer_is_all_that_is_sent(
    regions: FaultyRegions, first_image: str, second_image: str
) -> None:
    regions.publish(image=first_image)
    regions.mend()
    published = regions.publish(image=second_image)
    regions.sound()
    for region in REGIONS:
        seen = asked(regions, region)
        assert (seen["HEAD blob"], seen["PUT upload"]) == (4, 2)
    assert published.sent < len(REGIONS) * 5 * KIB
    result = published.regions[0]
    assert (result.blobs_sent, result.blobs_present) == (2, 2)
    assert result.sent + result.present == published.size


def test_a_cache_that_was_lost_makes_the_same_digest_and_sends_nothing(
    regions: FaultyRegions, first_image: str
) -> None:
    first = regions.publish(image=first_image)
    shutil.rmtree(regions.state)
    regions.mend()
    again = regions.publish(image=first_image)
    assert (again.digest, again.sent) == (first.digest, 0)
    assert again.compressed > 0
    for region in REGIONS:
        assert not {"PUT upload", "PUT manifest"} & asked(regions, region).keys()


def test_zstd_makes_another_manifest_of_the_same_image(
    regions: FaultyRegions, first_image: str
) -> None:
    gzip = regions.publish(image=first_image)
    zstd = regions.publish(image=first_image, compression=Compression.ZSTD)
    assert zstd.complete
    assert zstd.digest != gzip.digest
    for tags in regions.held().values():
        assert b"tar+zstd" in tags["latest"].manifest


def test_a_blob_that_the_registry_lost_meanwhile_is_sent_again(
    regions: FaultyRegions, first_image: str
) -> None:
    region = REGIONS[0]
    walk, proxy = regions.walk(region), regions.proxies[region]

    def collect_garbage(request: Request) -> Fault | None:
        if request.kind == "manifest" and request.method == "PUT" and not lost:
            lost.append(max(walk.blobs()))
            shutil.rmtree(walk.layers / lost[0].removeprefix("sha256:"))
        return None

    lost: list[str] = []
    proxy.schedules.append(collect_garbage)
    published = regions.publish(image=first_image)
    assert published.complete
    assert proxy.accepted()[lost[0]] == 2
    assert proxy.accepted().total() == 4
    for tags in regions.held().values():
        assert {held.digest for held in tags.values()} == {published.digest}


@pytest.mark.parametrize(("kind", "method"), [("upload", "PUT"), ("manifest", "PUT")])
def test_an_interrupt_ends_a_publish_that_waits_for_a_registry(
    regions: FaultyRegions, first_image: str, kind: str, method: str
) -> None:
    stalled = on(kind, method)
    proxy = regions.spoil(REGIONS[0], lambda request: Stall() if stalled(request) else None)
    with publisher(regions, image=first_image, retries=SILENCE) as process:
        wait_until(lambda: proxy.seen(kind, method), what="the request", timeout=60, interval=0.01)
        process.send_signal(signal.SIGINT)
        ended = finish(process)
    assert ended.code == -signal.SIGINT, ended.err
    regions.rerun(image=first_image)

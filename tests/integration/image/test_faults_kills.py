"""Publishers that are killed at any moment, and publishers that work at the same time."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfleet.waiting import wait_until
from tests.support.depth import series
from tests.support.faulty_regions import REGIONS, TAGS, FaultyRegions
from tests.support.loaded_images import KIB, loaded_image, random_layers
from tests.support.publisher_process import KillAt, finish, kill, publisher

pytestmark = pytest.mark.integration

SEEDS = series(range(8), few=2)
REQUESTS_OF_A_REGION = 22


@pytest.fixture(scope="module")
def other_image() -> Iterator[str]:
    """An image that shares no layer with the usual one."""
    with loaded_image(random_layers(200 * KIB, 500 * KIB)) as name:
        yield name


@pytest.fixture(scope="module")
def big_image() -> Iterator[str]:
    """An image whose layers take a while to compress."""
    with loaded_image(random_layers(24 * KIB * KIB, 8 * KIB * KIB)) as name:
        yield name


def test_a_publisher_may_be_killed_at_everything_that_it_says(regions: FaultyRegions) -> None:
    with publisher(regions) as process:
        said = dict.fromkeys(gist(line) for line in finish(process).err.splitlines())
    assert {
        gist(f"  {REGIONS[0]}: tagged {tag}") for tag in ("latest", "c0ffee1, 1")
    } <= said.keys()
    for number, moment in enumerate(said):
        # Each time to a repository that has nothing, from a cache that has nothing.
        regions.repository = f"test-project/killed/moment-{number}"
        regions.state = regions.state.with_name(f"state-{number}")
        with publisher(regions) as process:
            assert process.stderr is not None
            assert any(gist(line) == moment for line in process.stderr), moment
            kill(process)
        regions.held()
        regions.rerun()


def gist(line: str) -> str:
    """What a line says, whatever the region and the figures."""
    return re.sub(r"[0-9][\w.]*( [kM]?B)?", "N", re.sub("|".join(REGIONS), "REGION", line.strip()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_publisher_may_be_killed_at_any_request(regions: FaultyRegions, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    at = KillAt(number=draw.randrange(1, REQUESTS_OF_A_REGION))
    proxy = regions.spoil(draw.choice(REGIONS), at)
    with publisher(regions) as process:
        at.process = process
        ended = finish(process)
    assert ended.code in {0, -9}, ended.err
    assert (ended.code == 0) == (at.seen < at.number), proxy.exchanges
    held = regions.held()
    assert len({tags["latest"].digest for tags in held.values() if "latest" in tags}) <= 1
    regions.rerun()


@pytest.mark.parametrize("files", series((2, 1, 3), few=1))
def test_a_publisher_may_be_killed_while_it_fills_the_cache(
    regions: FaultyRegions, big_image: str, files: int
) -> None:
    regions.image = big_image
    with publisher(regions) as process:
        wait_until(
            lambda: sum(each.is_file() for each in regions.state.rglob("*")) >= files,
            what="the publisher to write",
            timeout=60,
            interval=0.001,
        )
        kill(process)
    regions.sound()
    regions.rerun()


def test_two_publishers_of_the_same_image_both_end_right(regions: FaultyRegions) -> None:
    with publisher(regions) as one, publisher(regions) as two:
        ended = [finish(one), finish(two)]
    assert [each.code for each in ended] == [0, 0], ended
    assert ended[0].out == ended[1].out
    for tags in regions.held().values():
        assert {tag: held.digest for tag, held in tags.items()} == dict.fromkeys(TAGS, ended[0].out)


@pytest.mark.parametrize("round_", series(range(3), few=1))
def test_two_publishers_of_different_images_end_with_one_of_them_everywhere(
    regions: FaultyRegions, other_image: str, tmp_path: Path, round_: int
) -> None:
    with (
        publisher(regions) as one,
        publisher(regions, image=other_image, state=tmp_path / "other") as two,
    ):
        ended = [finish(one), finish(two)]
    digests = {each.out for each in ended if each.code == 0}
    assert digests, ended
    for each in ended:
        assert each.code in {0, 2}, each.err
    held = regions.held()
    latest = {tags["latest"].digest for tags in held.values()}
    assert len(latest) == 1, (latest, ended)
    assert latest <= digests
    regions.rerun()


def test_a_cache_that_two_publishers_fill_at_once_is_right(
    regions: FaultyRegions, other_image: str
) -> None:
    regions.repository = "test-project/two/one"
    with (
        publisher(regions) as one,
        publisher(regions, image=other_image, repository="test-project/two/other") as two,
    ):
        ended = [finish(one), finish(two)]
    assert [each.code for each in ended] == [0, 0], ended
    regions.held()
    again = regions.publish()
    assert (again.source, again.sent) == ("cache", 0)

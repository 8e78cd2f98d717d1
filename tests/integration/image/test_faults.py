"""Publishing through a network that fails: it ends right or with a clear error, and no tag of
any region ever points to something incomplete."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rayfleet.errors import PartialFailure
from tests.support.depth import DEEP, series
from tests.support.faults import (
    ChangeByte,
    CutBody,
    Fault,
    GoDown,
    LoseAnswer,
    Refuse,
    Request,
    Reset,
    Rule,
    Share,
    Slow,
    Stall,
    StallBody,
    WrongDigest,
    on,
)
from tests.support.faulty_regions import (
    AGAIN,
    BAD,
    GOOD,
    HASTY,
    REGIONS,
    TAGS,
    FaultyRegions,
)
from tests.support.loaded_images import KIB, loaded_image, random_layers

pytestmark = pytest.mark.integration

BUSY = Refuse(429, retry_after="0", code="TOOMANYREQUESTS", message="slow down")
DOWN = Refuse(503, code="UNAVAILABLE", message="come back later")
REQUESTS = (("start", "POST"), ("blob", "HEAD"), ("manifest", "HEAD"), ("manifest", "PUT"))
FAULTS = (Reset(), BUSY, DOWN, CutBody(), CutBody(64 * KIB), LoseAnswer())


def uploads_of_more_than(size: int) -> Callable[[Request], bool]:
    return lambda request: request.kind == "upload" and request.size > size


def puts(reference: str) -> Callable[[Request], bool]:
    return lambda request: request.method == "PUT" and request.reference == reference


@pytest.mark.parametrize(
    "fault",
    [Reset(), CutBody(0), CutBody(100 * KIB), ChangeByte(50 * KIB), LoseAnswer(), BUSY, DOWN],
    ids=str,
)
def test_an_upload_that_fails_once_or_twice_is_begun_again(
    regions: FaultyRegions, fault: Fault
) -> None:
    regions.spoil(BAD, Rule(fault=fault, when=uploads_of_more_than(200 * KIB), times=2))
    published = regions.succeed()
    assert published.seconds.keys() == {"prepare", "upload", "tags", "verify"}
    again = regions.publish()
    assert (again.digest, again.sent) == (published.digest, 0)


@pytest.mark.parametrize("fault", [Reset(), LoseAnswer(), BUSY, DOWN], ids=str)
def test_a_burst_of_failures_of_every_kind_of_request_is_survived(
    regions: FaultyRegions, fault: Fault
) -> None:
    for region, (kind, method) in product(REGIONS, REQUESTS):
        regions.spoil(region, Rule(fault=fault, when=on(kind, method), times=2))
    regions.succeed()
    for proxy in regions.proxies.values():
        assert proxy.faults() == 2 * len(REQUESTS)


@pytest.mark.parametrize("fault", [Stall(), StallBody(10 * KIB)], ids=str)
@pytest.mark.parametrize("kind", ["upload", "manifest", "blob"])
def test_a_request_that_stalls_is_given_up_and_sent_again(
    regions: FaultyRegions, kind: str, fault: Fault
) -> None:
    regions.spoil(BAD, Rule(fault=fault, when=on(kind)))
    published = regions.publish(retries=HASTY)
    assert published.complete, regions.said
    regions.sound()


def test_a_region_that_stalls_for_good_fails_and_the_others_finish(
    regions: FaultyRegions,
) -> None:
    regions.spoil(BAD, Rule(fault=Stall(), when=on("upload"), times=None))
    regions.fail_in_one(regions.publish(retries=HASTY), regions.proxies[BAD].host, "timed out")
    regions.rerun()


def test_a_slow_region_ends_right(regions: FaultyRegions) -> None:
    regions.spoil(BAD, Rule(fault=Slow(4_000_000), when=on("upload"), times=None))
    regions.succeed()


def test_a_registry_that_gets_other_bytes_every_time_refuses_them_in_its_words(
    regions: FaultyRegions,
) -> None:
    regions.spoil(BAD, Rule(fault=ChangeByte(7), when=on("upload"), times=None))
    regions.fail_in_one(regions.publish(), regions.proxies[BAD].host, "DIGEST_INVALID")
    regions.rerun()


def test_a_manifest_that_gets_another_digest_is_an_error(regions: FaultyRegions) -> None:
    rule = Rule(fault=WrongDigest(), when=on("manifest", "PUT"), times=None)
    regions.spoil(BAD, rule)
    regions.fail_in_one(regions.publish(), "sha256:0000")
    regions.rerun()


def test_a_tag_that_is_read_back_as_another_digest_is_an_error(regions: FaultyRegions) -> None:
    for region in REGIONS:
        regions.spoil(region, Rule(fault=WrongDigest(), when=on("manifest", "HEAD"), times=None))
    published = regions.publish()
    assert all(each.error for each in published.regions)
    regions.sound()
    regions.rerun()


def test_refusals_that_do_not_end_are_reported_in_the_registrys_words(
    regions: FaultyRegions,
) -> None:
    regions.spoil(BAD, Rule(fault=BUSY, when=on("start"), times=None))
    regions.fail_in_one(regions.publish(), regions.proxies[BAD].host, "429", "slow down")
    regions.rerun()


def test_what_may_not_be_tried_again_is_not(regions: FaultyRegions) -> None:
    denied = Refuse(403, code="DENIED", message="no permission to write")
    regions.spoil(BAD, Rule(fault=denied, when=on("start"), times=None))
    regions.fail_in_one(regions.publish(), "DENIED", "no permission to write")
    asked = [each for each in regions.proxies[BAD].seen("start") if each.fault]
    assert 0 < len(asked) <= 4  # one for each blob under way at most
    regions.rerun()


def test_retry_after_is_honoured(regions: FaultyRegions) -> None:
    later = Refuse(429, retry_after="1", code="TOOMANYREQUESTS")
    regions.spoil(BAD, Rule(fault=later, when=on("manifest", "PUT")))
    published = regions.succeed()
    assert sum(published.seconds.values()) >= 1


def test_one_region_that_is_down_for_good_holds_up_nobody_but_latest(
    regions: FaultyRegions,
) -> None:
    regions.proxies[BAD].go_down()
    published = regions.publish()
    regions.fail_in_one(published, regions.proxies[BAD].host, "refused")
    again = regions.rerun()
    for each in again.regions:
        assert (each.sent == 0) == (each.region in GOOD)


@pytest.mark.parametrize("survived", series((9, 0, 21, 2, 5, 13, 17), few=3))
def test_a_region_may_go_down_at_any_request(regions: FaultyRegions, survived: int) -> None:
    regions.spoil(BAD, Rule(fault=GoDown(), skip=survived))
    published = regions.publish()
    assert not published.complete
    assert {each.region for each in published.regions if each.error} == {BAD}
    held = regions.held()
    for region in GOOD:
        assert set(held[region]) >= set(TAGS) - {"latest"}
    regions.rerun()


def test_a_region_that_refuses_latest_alone_is_an_error_and_a_rerun_moves_it(
    regions: FaultyRegions,
) -> None:
    first = regions.publish(tags=("0000001", "latest"), image=regions.image)
    assert first.complete
    with loaded_image(random_layers(20 * KIB, 10 * KIB)) as other:
        immutable = Refuse(400, code="MANIFEST_INVALID", message="the tag is immutable")
        regions.spoil(BAD, Rule(fault=immutable, when=puts("latest"), times=None))
        second = regions.publish(image=other)
        (error,) = [each.error for each in second.regions if each.error]
        assert f"{regions.repository}:latest" in error.what
        assert "the tag is immutable" in error.why
        # No set of registries moves a tag as one. What they hold is complete, old or new.
        held = regions.held()
        assert held[BAD]["latest"].digest == first.digest
        assert {held[each]["latest"].digest for each in GOOD} == {second.digest}
        regions.mend()
        assert regions.publish(image=other).complete
        assert {tags["latest"].digest for tags in regions.sound().values()} == {second.digest}


def test_a_blob_that_a_registry_loses_meanwhile_is_sent_again(regions: FaultyRegions) -> None:
    lost: list[str] = []

    def lose(request: Request) -> None:
        if not lost and request.kind == "manifest" and request.method == "PUT":
            lost.extend(regions.walk(BAD).blobs())
            for digest in lost:
                regions.walk(BAD).delete(digest)

    regions.spoil(BAD, lose)
    published = regions.publish()
    assert published.complete, regions.said
    held = regions.held()
    assert {tags["latest"].digest for tags in held.values()} == {published.digest}
    assert set(lost) == set(held[BAD]["latest"].blobs)
    assert regions.proxies[BAD].accepted() == dict.fromkeys(lost, 2)


def test_all_regions_down_ends_with_an_error_for_each(regions: FaultyRegions) -> None:
    for proxy in regions.proxies.values():
        proxy.go_down()
    published = regions.publish()
    with pytest.raises(PartialFailure) as failure:
        published.require(next_step=AGAIN)
    for region in REGIONS:
        assert region in failure.value.text()
    regions.rerun()


@pytest.mark.parametrize("seed", series(range(5), few=1))
def test_every_fifth_request_may_fail(regions: FaultyRegions, seed: int) -> None:
    for region in REGIONS:
        regions.spoil(region, Share(portion=0.2, seed=seed, faults=FAULTS))
    regions.succeed()


@pytest.mark.parametrize("seed", series(range(4), few=1))
def test_when_most_requests_fail_reruns_get_there(regions: FaultyRegions, seed: int) -> None:
    for number, region in enumerate(REGIONS):
        regions.spoil(region, Share(portion=0.6, seed=seed * 10 + number, faults=FAULTS))
    for _ in range(3):
        published = regions.publish()
        regions.held()
        if published.complete:
            break
    regions.rerun()


rules = st.builds(
    Rule,
    fault=st.sampled_from((*FAULTS, GoDown(), WrongDigest(), ChangeByte(9), Refuse(403))),
    when=st.sampled_from([on(*each) for each in (*REQUESTS, ("upload", "PUT"))]),
    skip=st.integers(0, 6),
    times=st.one_of(st.none(), st.integers(1, 5)),
)


# One set of registries for all examples, each of which has a repository of its own.
@settings(
    max_examples=12 if DEEP else 4,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(schedules=st.fixed_dictionaries({region: st.lists(rules, max_size=3) for region in REGIONS}))
def test_whatever_fails_no_tag_is_wrong_and_a_rerun_mends_it(
    regions: FaultyRegions, schedules: dict[str, list[Rule]]
) -> None:
    regions.repository = f"test-project/random/{uuid.uuid4().hex}"
    for region, drawn in schedules.items():
        regions.spoil(region, *drawn)
    published = regions.publish()
    held = regions.held()
    for each in published.regions:
        if each.error is None:
            assert {tag for tag in TAGS if tag != "latest"} <= set(held[each.region])
            assert {kept.digest for kept in held[each.region].values()} == {published.digest}
    if not published.complete:
        with pytest.raises(PartialFailure):
            published.require(next_step=AGAIN)
    regions.rerun()

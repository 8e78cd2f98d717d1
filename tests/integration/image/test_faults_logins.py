"""Passwords and tokens that expire while an image is on its way."""

from __future__ import annotations

import pytest

from tests.support.depth import series
from tests.support.faults import ExpireLogins, LoseAnswer, Refuse, Reset, Rule, Share, Stall, on
from tests.support.faulty_regions import BAD, HASTY, REGIONS, FaultyRegions
from tests.support.proxy_logins import Passwords, Tokens

pytestmark = pytest.mark.integration

REQUESTS = [
    ("blob", "HEAD"), ("start", "POST"), ("upload", "PUT"), ("manifest", "HEAD"),
    ("manifest", "PUT"),
]  # fmt: skip


@pytest.fixture
def passwords(regions: FaultyRegions) -> dict[str, Passwords]:
    """Every region asks for a password that can expire; the operator always knows it."""
    made = {}
    for region, registry in regions.registries.items():
        made[region] = Passwords(username=registry.username, password=registry.password)
        regions.proxies[region].logins = made[region]
        regions.passwords[region] = lambda region=region: made[region].current  # type: ignore[misc]
    return made


@pytest.fixture
def tokens(regions: FaultyRegions) -> dict[str, Tokens]:
    """Every region asks for tokens, which can expire."""
    made = {}
    for region, registry in regions.registries.items():
        made[region] = Tokens(username=registry.username, password=registry.password)
        regions.proxies[region].logins = made[region]
    return made


@pytest.mark.parametrize(("kind", "method"), REQUESTS)
def test_a_password_that_expires_is_asked_for_again(
    regions: FaultyRegions, passwords: dict[str, Passwords], kind: str, method: str
) -> None:
    first = passwords[BAD].current
    regions.spoil(BAD, Rule(fault=ExpireLogins(), when=on(kind, method), skip=1))
    regions.succeed()
    assert passwords[BAD].current != first
    assert first not in regions.said


def test_a_password_that_expires_for_good_is_an_error_of_its_region(
    regions: FaultyRegions, passwords: dict[str, Passwords]
) -> None:
    first = passwords[BAD].current
    regions.passwords[BAD] = lambda: first
    proxy = regions.spoil(BAD, Rule(fault=ExpireLogins(), when=on("upload")))
    regions.fail_in_one(regions.publish(), proxy.host, "401", "tester")
    refused = [each for each in proxy.exchanges if each.status == 401]
    assert len(refused) <= 20
    regions.passwords[BAD] = lambda: passwords[BAD].current
    regions.rerun()


def test_one_token_serves_a_whole_publish(
    regions: FaultyRegions, tokens: dict[str, Tokens]
) -> None:
    published = regions.publish()
    assert published.complete, regions.said
    regions.sound()
    assert {each.given for each in tokens.values()} <= {1, 2}  # to pull, and to push


@pytest.mark.parametrize(("kind", "method"), REQUESTS)
def test_a_token_that_expires_is_renewed(
    regions: FaultyRegions, tokens: dict[str, Tokens], kind: str, method: str
) -> None:
    for region in REGIONS:
        regions.spoil(region, Rule(fault=ExpireLogins(), when=on(kind, method), skip=1))
    regions.succeed()
    assert all(each.given > 1 for each in tokens.values())


def test_tokens_that_last_for_a_few_requests_will_do(
    regions: FaultyRegions, tokens: dict[str, Tokens]
) -> None:
    for each in tokens.values():
        each.uses = 10
    published = regions.publish()
    assert published.complete, regions.said
    regions.sound()
    assert all(each.given > 1 for each in tokens.values())


@pytest.mark.parametrize("fault", [Reset(), LoseAnswer(), Refuse(503), Stall()], ids=str)
def test_a_token_server_may_stumble(
    regions: FaultyRegions, tokens: dict[str, Tokens], fault: Reset
) -> None:
    regions.spoil(BAD, Rule(fault=fault, when=on("token")))
    published = regions.publish(retries=HASTY)
    assert published.complete, regions.said
    regions.sound()


def test_a_token_server_that_is_gone_is_an_error_of_its_region(
    regions: FaultyRegions, tokens: dict[str, Tokens]
) -> None:
    down = Rule(fault=Refuse(503), when=on("token"), times=None)
    proxy = regions.spoil(BAD, down)
    regions.fail_in_one(regions.publish(), proxy.host, "503")
    regions.rerun()


def test_a_token_server_that_refuses_the_password_is_an_error_of_its_region(
    regions: FaultyRegions, tokens: dict[str, Tokens]
) -> None:
    regions.passwords[BAD] = lambda: "wrong-and-secret"
    published = regions.publish()
    regions.fail_in_one(published, regions.proxies[BAD].host, "401")
    assert "wrong-and-secret" not in regions.said
    del regions.passwords[BAD]
    regions.rerun()


@pytest.mark.parametrize("seed", series(range(3), few=1))
def test_tokens_may_expire_among_other_faults(
    regions: FaultyRegions, tokens: dict[str, Tokens], seed: int
) -> None:
    faults = (Reset(), Refuse(503), Refuse(429, retry_after="0"))
    for region in REGIONS:
        # Not one soon after the other: a token that nobody takes when it is new is no good.
        for request in (4, 24):
            regions.spoil(region, Rule(fault=ExpireLogins(), skip=request))
        regions.spoil(region, Share(portion=0.2, seed=seed, faults=faults))
    regions.succeed()

"""The pin changes only when every region has proved to hold the image, whatever fails."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError
from rayfleet.fleet.pins import read_pins
from tests.support.depth import series
from tests.support.faults import CutBody, GoDown, Refuse, Reset, Rule, Share, WrongDigest, on
from tests.support.faulty_proxy import FaultyProxy
from tests.support.faulty_regions import BAD, REGIONS
from tests.support.publishing import Site, commit, forget_images, import_base_image, make_site
from tests.support.registry import LocalRegistry
from tests.support.registry_walk import Walk

pytestmark = pytest.mark.integration


@dataclass(kw_only=True)
class FaultySite:
    """A site whose registries are behind proxies."""

    site: Site
    registries: dict[str, LocalRegistry]
    proxies: dict[str, FaultyProxy]

    def publish(self) -> str:
        """Publish and return the digest."""
        return self.site.publish(Console(out=io.StringIO(), err=io.StringIO())).digest

    def change(self, text: str) -> None:
        """Commit something that makes another image."""
        (self.site.project.root / "docker" / "hello").write_text(text)
        commit(self.site.project.root, text)

    def mend(self) -> None:
        """Take all rules away; what is down listens again."""
        for proxy in self.proxies.values():
            proxy.forget()
            if not proxy.up:
                proxy.listen()

    @property
    def pinned(self) -> str:
        """The digest in the pin."""
        return read_pins(self.site.fleet.outputs.pins)["cluster"].digest

    def latest(self) -> set[str]:
        """The digests of ``latest``; every tag of every region is proved to be complete."""
        held = [Walk(each, self.site.repository).tags() for each in self.registries.values()]
        return {tags["latest"].digest for tags in held}


@dataclass(frozen=True, kw_only=True)
class Fronted:
    """A registry as those see it who only know its proxy."""

    host: str
    username: str
    password: str


@pytest.fixture
def faulty(tmp_path: Path, start_registry: Callable[[str], LocalRegistry]) -> Iterator[FaultySite]:
    """A published site that knows its registries by their proxies only; something changed."""
    with ExitStack() as stack:
        registries = {region: start_registry(region) for region in REGIONS}
        proxies, fronted = {}, {}
        for region, registry in registries.items():
            proxies[region] = stack.enter_context(FaultyProxy(registry.host))
            fronted[region] = Fronted(
                host=proxies[region].host, username=registry.username, password=registry.password
            )
        site = make_site(tmp_path, fronted)  # type: ignore[arg-type]
        stack.callback(forget_images, site)
        import_base_image(site)
        made = FaultySite(site=site, registries=registries, proxies=proxies)
        made.publish()
        made.change("second")
        yield made


@pytest.mark.parametrize(
    "rule",
    [
        Rule(fault=GoDown(), when=on("upload")),
        Rule(fault=Refuse(403, code="DENIED"), when=on("manifest", "PUT"), times=None),
        Rule(fault=WrongDigest(), when=on("manifest", "PUT"), times=None),
    ],
    ids=lambda rule: str(rule.fault),
)
def test_a_region_that_fails_leaves_latest_and_the_pin(faulty: FaultySite, rule: Rule) -> None:
    first, pins = faulty.pinned, faulty.site.fleet.outputs.pins.read_bytes()
    faulty.proxies[BAD].schedules.append(replace(rule))

    with pytest.raises(PartialFailure) as failure:
        faulty.publish()

    assert failure.value.exit_code == 2
    assert BAD in failure.value.text()
    assert faulty.latest() == {first}
    assert faulty.site.fleet.outputs.pins.read_bytes() == pins

    faulty.mend()
    second = faulty.publish()
    assert faulty.latest() == {second} == {faulty.pinned} != {first}


def test_tags_that_cannot_be_read_back_leave_the_pin(faulty: FaultySite) -> None:
    first = faulty.pinned
    wrong = Rule(fault=WrongDigest(), when=on("manifest", "HEAD"), times=None)
    faulty.proxies[BAD].schedules.append(wrong)

    with pytest.raises(PartialFailure) as failure:
        faulty.publish()

    assert BAD in failure.value.text()
    assert faulty.pinned == first
    faulty.mend()
    second = faulty.publish()
    assert faulty.latest() == {second} == {faulty.pinned}


@pytest.mark.parametrize("seed", series(range(2), few=1))
def test_among_failing_requests_the_pin_is_never_wrong(faulty: FaultySite, seed: int) -> None:
    first = faulty.pinned
    faults = (Reset(), Refuse(503), Refuse(429, retry_after="0"), CutBody(100))
    for region, proxy in faulty.proxies.items():
        portion = 0.6 if region == BAD and seed else 0.2
        proxy.schedules.append(Share(portion=portion, seed=seed, faults=faults))
    try:
        second = faulty.publish()
    except RayfleetError:
        assert faulty.pinned == first
        faulty.mend()
        second = faulty.publish()
    assert faulty.latest() == {second} == {faulty.pinned} != {first}

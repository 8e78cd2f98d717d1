"""Three regions: a real registry each, behind a proxy that does what its rules say."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rayfleet.console import Console
from rayfleet.errors import PartialFailure
from rayfleet.image.oci.credentials import Credentials
from rayfleet.image.oci.http import Retries
from rayfleet.image.publish.publication import Publication
from rayfleet.image.publish.standalone import publish_image
from tests.support.faults import Schedule
from tests.support.faulty_proxy import FaultyProxy
from tests.support.registry import LocalRegistry
from tests.support.registry_walk import Held, Walk

REGIONS = ("us-central2", "europe-west4", "us-east5")
BAD = "europe-west4"
GOOD = tuple(region for region in REGIONS if region != BAD)
AGAIN = "publish it again"
TAGS = ("c0ffee1", "20240506", "latest")
QUICK = Retries(attempts=5, first_wait=0.01, longest_wait=0.05, connect_timeout=5, read_timeout=20)
HASTY = Retries(attempts=3, first_wait=0.01, longest_wait=0.05, connect_timeout=5, read_timeout=1)


@dataclass(kw_only=True)
class FaultyRegions:
    """Registries and their proxies by region, and an image to publish to them."""

    registries: dict[str, LocalRegistry]
    proxies: dict[str, FaultyProxy]
    image: str
    state: Path
    repository: str = "test-project/marin/faulty"
    passwords: dict[str, Callable[[], str]] = field(default_factory=dict)
    said: str = ""

    @property
    def destinations(self) -> dict[str, str]:
        """Where publishers send the image: through the proxies."""
        return {region: f"{each.host}/{self.repository}" for region, each in self.proxies.items()}

    def login(self, host: str) -> Credentials:
        """The login of the registry behind a proxy."""
        region = next(name for name, proxy in self.proxies.items() if proxy.host == host)
        registry = self.registries[region]
        password = self.passwords.get(region, lambda: registry.password)()
        return Credentials(username=registry.username, password=password)

    def spoil(self, region: str, *schedules: Schedule) -> FaultyProxy:
        """Give the proxy of ``region`` these rules."""
        proxy = self.proxies[region]
        proxy.schedules += schedules
        return proxy

    def mend(self) -> None:
        """Take all rules away and empty the records; what is down listens again."""
        for proxy in self.proxies.values():
            proxy.forget()
            if not proxy.up:
                proxy.listen()

    def publish(self, *, retries: Retries = QUICK, **how: Any) -> Publication:
        """Publish the image; check afterwards that nothing said gives a password away."""
        err = io.StringIO()
        try:
            published = publish_image(
                how.pop("image", self.image),
                self.destinations,
                how.pop("tags", TAGS),
                state=how.pop("state", self.state),
                login=self.login,
                retries=retries,
                console=Console(out=io.StringIO(), err=err),
                **how,
            )
        finally:
            self.said += err.getvalue()
        self.said += "".join(each.error.text() for each in published.regions if each.error)
        self.keeps_secrets()
        return published

    def keeps_secrets(self) -> None:
        """Fail if a password was said."""
        for region, registry in self.registries.items():
            assert registry.password not in self.said, region
            if region in self.passwords:
                assert self.passwords[region]() not in self.said, region

    def sound(self) -> dict[str, dict[str, Held]]:
        """What every region holds by tag.

        Fails if a tag of any region has an incomplete image, if ``latest`` is not the same
        everywhere, or if a registry took one blob twice since the records were emptied.
        """
        held = self.held()
        latest = {region: tags.get("latest") for region, tags in held.items()}
        digests = {each.digest if each else None for each in latest.values()}
        assert len(digests) == 1, f"latest differs: {latest}"
        for region, proxy in self.proxies.items():
            twice = [digest for digest, count in proxy.accepted().items() if count > 1]
            assert twice == [], f"{region} took blobs twice"
        return held

    def held(self) -> dict[str, dict[str, Held]]:
        """What every region holds by tag.

        Fails if one of them is incomplete, or ``latest`` of any region is not in every region.
        """
        for proxy in self.proxies.values():
            proxy.settle()
        walks = {region: self.walk(region) for region in self.registries}
        held = {region: walk.tags() for region, walk in walks.items()}
        for latest in {tags["latest"].digest for tags in held.values() if "latest" in tags}:
            for walk in walks.values():
                walk.image(latest)  # of what it has just seen it asks for the manifest only
        return held

    def walk(self, region: str) -> Walk:
        """A reader of the registry of ``region``, past its proxy."""
        return Walk(self.registries[region], self.repository)

    def succeed(self, **how: Any) -> Publication:
        """Publish to empty regions in spite of faults: all complete, every blob taken once."""
        published = self.publish(**how)
        assert published.complete, self.said
        for region, tags in self.sound().items():
            assert set(tags) == set(TAGS)
            assert {held.digest for held in tags.values()} == {published.digest}
            blobs = tags["latest"].blobs
            assert self.proxies[region].accepted() == dict.fromkeys(blobs, 1), region
        assert any(proxy.faults() for proxy in self.proxies.values())
        return published

    def fail_in_one(self, published: Publication, *words: str) -> None:
        """Only the region BAD failed, for a reason that has ``words``; latest is nowhere."""
        failed = {each.region: each.error for each in published.regions if each.error}
        assert set(failed) == {BAD}, failed
        with pytest.raises(PartialFailure) as failure:
            published.require(next_step=AGAIN)
        assert failure.value.exit_code == 2
        text = failure.value.text()
        (line,) = [each for each in text.splitlines() if each.strip().startswith(BAD)]
        for word in words:
            assert word in line, line
        assert AGAIN in text
        held = self.sound()
        for region in GOOD:
            assert set(held[region]) == set(TAGS) - {"latest"}
            assert {each.digest for each in held[region].values()} == {published.digest}
        assert "latest" not in held[BAD]

    def rerun(self, **how: Any) -> Publication:
        """Publish without faults: it completes, and sends each region just what it lacks."""
        self.mend()
        had = {region: self.walk(region).blobs() for region in self.registries}
        published = self.publish(**how)
        assert published.complete, self.said
        for region, tags in self.sound().items():
            assert {held.digest for held in tags.values()} == {published.digest}
            blobs = tags["latest"].blobs
            lacked = {digest: size for digest, size in blobs.items() if digest not in had[region]}
            proxy = self.proxies[region]
            assert proxy.accepted() == dict.fromkeys(lacked, 1), region
            assert proxy.uploaded() == sum(lacked.values()), region
        return published


@contextmanager
def faulty_regions(
    start_registry: Callable[[str], LocalRegistry], image: str, state: Path
) -> Iterator[FaultyRegions]:
    """Three regions whose proxies stop with the block."""
    with ExitStack() as stack:
        registries = {region: start_registry(region) for region in REGIONS}
        proxies = {
            region: stack.enter_context(FaultyProxy(registry.host))
            for region, registry in registries.items()
        }
        yield FaultyRegions(registries=registries, proxies=proxies, image=image, state=state)

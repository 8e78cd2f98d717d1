"""A fleet of real registries that hold two images, cluster and vllm, and no engine."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

from rayfleet.console import Console
from rayfleet.fleet.model import Fleet, Pin
from rayfleet.fleet.pins import PinHistory, read_histories, write_pin
from rayfleet.image.oci.credentials import login_for
from rayfleet.image.oci.patience import Retries
from rayfleet.image.oci.registries import Registries
from rayfleet.image.promote.promoter import Promoter, find_order
from rayfleet.image.promote.promotion import Order, Promotion
from rayfleet.image.promote.rollback import find_rollback
from rayfleet.project import Project
from tests.support.layered_images import push_image, tag_of
from tests.support.publishing import make_site
from tests.support.registry import LocalRegistry

QUICK = Retries(attempts=2, first_wait=0.01, longest_wait=0.02)


@dataclass(frozen=True, kw_only=True)
class Depot:
    """What the tests of promotions start from."""

    project: Project
    fleet: Fleet
    registries: dict[str, LocalRegistry]

    def repository(self, family: str) -> str:
        """Where the image is in each registry."""
        image = self.fleet.images[family]
        return f"{self.fleet.project}/{image.repository}/{image.name}"

    def push(self, family: str, tag: str, *, regions: str = "", content: str = "") -> str:
        """Push one image to every region (or the named ones), its content told by ``tag``."""
        layers = [b"base", (content or f"{family} {tag}").encode()]
        labels = {"org.opencontainers.image.revision": f"commit of {tag}"}
        chosen = regions.split() or list(self.registries)
        return {
            push_image(
                self.registries[each], self.repository(family), tag, layers=layers, labels=labels
            )
            for each in chosen
        }.pop()

    def pin(self, family: str, tag: str) -> str:
        """Push an image to every region, as ``latest`` too, and pin it."""
        digest = self.push(family, tag)
        self.promote(self.order(tag, "latest", family=family), yes=True).require()
        pin = Pin(
            tag=tag, digest=digest, published="2025-12-09T00:00:00+00:00", commit=f"commit of {tag}"
        )
        write_pin(self.fleet.outputs.pins, family, pin)
        return digest

    def tags(self, family: str, tag: str) -> list[str]:
        """The digest behind a tag in every region."""
        repository = self.repository(family)
        return [tag_of(registry, repository, tag) for registry in self.registries.values()]

    def pins(self, family: str) -> PinHistory:
        """What the pin file says."""
        return read_histories(self.fleet.outputs.pins)[family]

    def order(self, source: str, *to: str, family: str = "cluster", pin: bool = False) -> Order:
        """An order as typed."""
        return find_order(self.fleet, source, to, family=family, pin=pin)

    def rollback(self, to: str = "", *, family: str = "cluster") -> Order:
        """A rollback as typed."""
        return find_rollback(self.fleet, family=family, to=to)

    def promoter(self, registries: Registries, console: Console | None = None) -> Promoter:
        """What carries an order out; the registries make repositories by themselves."""
        return Promoter(
            project=self.project,
            fleet=self.fleet,
            console=console or Console(out=io.StringIO(), err=io.StringIO()),
            registries=registries,
            ensure_repositories=lambda *_: None,
            protect_pin=lambda *_: None,
        )

    def open(self) -> Registries:
        """The registries, as the tasks open them."""
        return Registries(lambda host: login_for(host, self.fleet), retries=QUICK)

    def promote(self, order: Order, *, yes: bool = False) -> Promotion:
        """Carry an order out."""
        with self.open() as registries:
            return self.promoter(registries).promote(order, yes=yes)


def make_depot(folder: Path, registries: dict[str, LocalRegistry]) -> Depot:
    """A fleet whose two images lie in two repositories of the given registries."""
    site = make_site(folder, registries)
    cluster = site.fleet.images["cluster"]
    vllm = replace(cluster, family="vllm", name=f"{cluster.name}-vllm", repository="serving")
    fleet = replace(site.fleet, images={"cluster": cluster, "vllm": vllm})
    return Depot(project=site.project, fleet=fleet, registries=registries)

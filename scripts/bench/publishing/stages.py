"""The order of the runs: every method meets the same moments of the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from publishing.images import Image, Images
from publishing.links import links
from publishing.measuring import Meter, Sample
from publishing.methods import Method
from publishing.processes import Background
from publishing.registries import REPOSITORY, Registry, registries

COLD, TOP, MIDDLE, NOTHING = "cold", "top", "middle", "nothing"


@dataclass(kw_only=True)
class Ground:
    """A method's own registries, the links to them if there are any, and its folder."""

    method: Method
    registries: list[Registry]
    links: list[Background]
    folder: Path
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def ports(self) -> dict[str, int]:
        """Region to port, that of the link where there is one."""
        servers = self.links or [each.server for each in self.registries]
        return {
            registry.region: server.port
            for registry, server in zip(self.registries, servers, strict=True)
        }

    @property
    def destinations(self) -> dict[str, str]:
        """Region to repository."""
        return {region: f"127.0.0.1:{port}/{REPOSITORY}" for region, port in self.ports.items()}

    @property
    def pids(self) -> list[int]:
        """The processes of the servers."""
        return [each.pid for each in (*(one.server for one in self.registries), *self.links)]


@dataclass(kw_only=True)
class Stage:
    """A set of methods over one kind of network. ``samples`` fill up: method, what changed."""

    name: str
    methods: Sequence[Method]
    wide: bool
    runs: int
    scale: float
    engine: int
    folder: Path
    say: Callable[[str], None]
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    image_size: int = 0
    _grounds: dict[str, Ground] = field(default_factory=dict)
    _count: int = 0

    def run(self) -> None:
        """Measure everything; nothing of it is left."""
        self.folder.mkdir()
        with ExitStack() as stack:
            images = stack.enter_context(
                Images(self.folder / "layers", scale=self.scale, say=self.say)
            )
            stack.callback(self._close)
            first = images.first()
            self.image_size = first.size
            self._cold(first)
            for turn in range(self.runs):
                image = images.top()
                for method in self._order(turn):
                    self._measure(method, TOP, image)
                for method in self._order(turn):
                    self._measure(method, NOTHING, image)
            if not self.wide:
                image = images.middle()
                for method in self.methods:
                    self._measure(method, MIDDLE, image)

    def _order(self, turn: int) -> list[Method]:
        """Each in turn is the first one, whose caches are the coldest."""
        begin = turn % len(self.methods)
        return [*self.methods[begin:], *self.methods[:begin]]

    def _cold(self, image: Image) -> None:
        for turn in range(self.runs):
            for method in self._order(turn):
                if turn == 0 or method.quick:
                    self._open(method)
                    self._measure(method, COLD, image)

    def _open(self, method: Method) -> None:
        """Empty registries for ``method``; those that it had are gone."""
        if method.key in self._grounds:
            self._grounds.pop(method.key).stack.close()
        self._count += 1
        folder = self.folder / f"{method.key}-{self._count}"
        with ExitStack() as stack:
            opened = stack.enter_context(registries(folder))
            ports = [each.server.port for each in opened] if self.wide else []
            between = stack.enter_context(links(ports))
            own = folder / "method"
            own.mkdir()
            ground = Ground(method=method, registries=opened, links=between, folder=own)
            if method.around is not None:
                stores = {each.region: each.store for each in opened}
                stack.enter_context(method.around(own, ground.ports, stores))
            ground.stack.push(stack.pop_all())
            self._grounds[method.key] = ground

    def _measure(self, method: Method, change: str, image: Image) -> None:
        ground = self._grounds[method.key]
        sample = self._meter().measure(
            method, image, ground.destinations, ground.registries, ground.folder
        )
        self.samples.setdefault(method.key, {}).setdefault(change, []).append(sample)
        self.say(
            f"{self.name}: {method.title}: {change}: {sample.seconds:.2f} s"
            f" ({sample.cpu:.1f} s CPU, {sample.packed / 1e6:.0f} MB packed,"
            f" {sample.requests} requests, {sample.uploads} uploads,"
            f" others {sample.foreign:.2f} CPUs)"
        )

    def _meter(self) -> Meter:
        return Meter(
            engine=self.engine,
            servers=lambda: [pid for each in self._grounds.values() for pid in each.pids],
        )

    def _close(self) -> None:
        with ExitStack() as stack:
            for ground in self._grounds.values():
                stack.push(ground.stack)
        self._grounds.clear()

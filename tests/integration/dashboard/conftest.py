"""Two clusters with a page of dashboards: real sshd, stand-ins for Ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayfleet.dashboard.serve import Dashboards
from rayfleet.waiting import wait_until
from tests.support.dashboards import Browser, Entered, FakeRay, in_a_loop, secret_with
from tests.support.sshd import LocalSshd

NAMES = ("us-east5", "us-central2")


@dataclass(frozen=True)
class World:
    """The two clusters, the page, and a browser that was let in."""

    rays: dict[str, FakeRay]
    sshds: dict[str, LocalSshd]
    entered: dict[str, Entered]
    dashboards: Dashboards
    browser: Browser
    said: list[str]

    def port(self, name: str) -> int:
        """The local port of a cluster's dashboard."""
        return self.dashboards.sites[name].port

    def await_word(self, name: str, word: str) -> None:
        """Wait until the page says ``word`` of a cluster."""
        watcher = self.dashboards.sites[name].watcher

        def looked() -> bool:
            watcher.hurry()
            return watcher.look.word == word

        wait_until(
            looked,
            what=f"{name} to be {word}",
            timeout=60,
            interval=0.05,
            reason=lambda: watcher.look.trouble,
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        rays, sshds, entered = {}, {}, {}
        for name in NAMES:
            rays[name] = stack.enter_context(in_a_loop(FakeRay(name, token=f"secret-of-{name}")))
            sshds[name] = LocalSshd(folder=tmp_path / name, alias=name)
            sshds[name].start()
            stack.callback(sshds[name].stop)
            secret = secret_with(tmp_path / name / "secret", f"secret-of-{name}")
            entered[name] = Entered(name, sshds[name], rays[name].port, secret)
            stack.callback(entered[name].close)
        said: list[str] = []
        places = [each.place() for each in entered.values()]
        dashboards = stack.enter_context(
            in_a_loop(Dashboards(fleet="test", places=places, say=said.append))
        )
        world = World(rays, sshds, entered, dashboards, Browser(dashboards.guard), said)
        world.browser.enter()
        for name in NAMES:
            world.await_word(name, "healthy")
        yield world

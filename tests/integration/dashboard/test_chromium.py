"""The page in a real browser, with real Ray heads that want tokens, over real SSH."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayfleet.dashboard.serve import Dashboards
from tests.support.chromium import Chromium, Tab, program
from tests.support.dashboards import RAYS_COOKIE, Entered, in_a_loop, secret_with
from tests.support.ray_head import LocalRayHead
from tests.support.sshd import LocalSshd

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        program() is None,
        reason="no Chromium on this machine; as root on Debian, scripts/bootstrap.sh --tests "
        "installs it: apt-get install chromium",
    ),
]

NAMES = ("us-east5", "us-central2")
EAST, CENTRAL = NAMES
NODE = "fetch('/nodes?view=summary').then(a => a.json()).then(d => d.data.summary[0].raylet.nodeId)"


@dataclass(frozen=True)
class World:
    """The page, the browser, and the id of the only node of each cluster."""

    dashboards: Dashboards
    chromium: Chromium
    nodes: dict[str, str]

    def enter(self) -> Tab:
        """A tab that shows the page with both clusters up."""
        tab = self.chromium.tab()
        tab.look(width=1280)
        tab.open(self.dashboards.guard.entry)
        tab.wait_for("document.querySelectorAll('tbody .good').length === 2")
        return tab


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("dashboards")
    with ExitStack() as stack:
        rays = {name: LocalRayHead(token=f"{name}-{'7' * 32}") for name in NAMES}
        starts = [threading.Thread(target=ray.start) for ray in rays.values()]
        for ray, start in zip(rays.values(), starts, strict=True):
            stack.callback(ray.stop)
            start.start()
        for start in starts:
            start.join()
        entered = []
        for name, ray in rays.items():
            sshd = LocalSshd(folder=folder / name, alias=name)
            sshd.start()
            stack.callback(sshd.stop)
            secret = secret_with(folder / name / "secret", ray.token)
            entered.append(Entered(name, sshd, ray.port, secret))
            stack.callback(entered[-1].close)
        places = [each.place(minimum={}) for each in entered]
        dashboards = stack.enter_context(in_a_loop(Dashboards(fleet="test", places=places)))
        chromium = Chromium(folder / "chromium")
        stack.callback(chromium.stop)
        chromium.start()
        yield World(dashboards, chromium, {name: node_of(ray) for name, ray in rays.items()})


def node_of(ray: LocalRayHead) -> str:
    """The id of the only node, asked of Ray itself."""
    headers = {"Authorization": f"Bearer {ray.token}"}
    answer = ray.http().request("GET", "/nodes?view=summary", headers=headers, timeout=60)
    return str(answer.json()["data"]["summary"][0]["raylet"]["nodeId"])


def shows_its_cluster(world: World, tab: Tab, name: str) -> None:
    """The tab shows the dashboard of the cluster: its name, and its node in Ray's own table."""
    tab.wait_for(f"document.title.startsWith('{name} | ') && document.title.includes('Overview')")
    assert tab.evaluate(NODE) == world.nodes[name]
    tab.evaluate("location.hash = '#/cluster'")
    tab.wait_for(f"document.body.innerText.includes('{world.nodes[name][:20]}')")


def test_each_link_shows_that_clusters_own_dashboard_and_back_and_forth(world: World) -> None:
    assert world.nodes[EAST] != world.nodes[CENTRAL]
    tab = world.enter()
    assert tab.evaluate("[...document.querySelectorAll('tbody a')].map(a => a.innerText)") == [
        *NAMES
    ]
    for name in (EAST, CENTRAL, EAST):
        tab.click(f"#open-{name}")
        shows_its_cluster(world, tab, name)
        tab.back(-2)
        tab.wait_for("document.title.startsWith('Ray dashboards')")
        tab.wait_for("document.querySelectorAll('tbody .good').length === 2")
    # Forward again, past the page, to the dashboard that was left.
    tab.back(2)
    tab.wait_for(f"document.body.innerText.includes('{world.nodes[EAST][:20]}')")
    assert refusals(tab) == []
    assert tab.errors == []


def test_two_dashboards_side_by_side_do_not_throw_each_other_out(world: World) -> None:
    tabs = {name: world.enter() for name in NAMES}
    for name, tab in tabs.items():
        tab.click(f"#open-{name}")
    for _ in range(2):
        for name, tab in tabs.items():
            tab.open(f"http://127.0.0.1:{world.dashboards.sites[name].port}/")
            shows_its_cluster(world, tab, name)
    assert [refusals(tab) for tab in tabs.values()] == [[], []]
    cookies = tabs[EAST].send("Network.getCookies")["cookies"]
    assert [cookie["name"] for cookie in cookies] == [world.dashboards.guard.cookie]
    assert cookies[0]["httpOnly"]
    assert cookies[0]["sameSite"] == "Strict"
    assert RAYS_COOKIE not in str(cookies)
    assert not any("7" * 32 in str(tab.evaluate("document.cookie")) for tab in tabs.values())


def test_one_clusters_page_cannot_read_another_ones(world: World) -> None:
    tab = world.enter()
    tab.click(f"#open-{EAST}")
    tab.wait_for("document.title.includes('Overview')")
    other = f"http://127.0.0.1:{world.dashboards.sites[CENTRAL].port}/api/version"
    tried = f"fetch('{other}', {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
    assert tab.evaluate(tried) == "refused"
    blind = f"fetch('{other}', {{credentials: 'include', mode: 'no-cors'}}).then(a => a.type)"
    assert tab.evaluate(blind) == "opaque"
    assert {address for _, address in refusals(tab)} == {other}


def test_a_browser_that_was_not_let_in_sees_nothing(world: World) -> None:
    context = world.chromium.send("Target.createBrowserContext")["browserContextId"]
    stranger = world.chromium.tab(context)
    for port in (world.dashboards.guard.port, world.dashboards.sites[EAST].port):
        stranger.open(f"http://127.0.0.1:{port}/")
        stranger.wait_for("document.body.innerText.includes('Not let in')")
    assert {status for status, _ in stranger.answers} == {403}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_fits_the_screen(world: World, width: int, dark: bool, tmp_path: Path) -> None:
    tab = world.enter()
    tab.look(width=width, dark=dark)
    tab.wait_for(f"innerWidth === {width}")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 3 * 128) is dark
    for name in NAMES:
        box = tab.evaluate(
            f"(b => [b.left, b.right, b.height])(document.getElementById('open-{name}')"
            ".getBoundingClientRect())"
        )
        assert box[0] >= 0
        assert box[1] <= width
        assert box[2] >= 20
    assert tab.errors == []


def refusals(tab: Tab) -> list[tuple[int, str]]:
    """The answers that say that somebody was not let in."""
    return [answer for answer in tab.answers if answer[0] in {401, 403}]

"""The page and its guard, over real SSH with stand-ins for Ray."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rayfleet.dashboard.serve import Dashboards
from rayfleet.dashboard.status import Place
from rayfleet.errors import Unreachable, UsageError
from rayfleet.waiting import wait_until
from tests.integration.dashboard.conftest import NAMES, World
from tests.support.dashboards import Browser, Reply, config_with, in_a_loop

pytestmark = pytest.mark.integration

EAST, CENTRAL = NAMES


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for that of a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="rf", dir="/tmp") as folder:
        yield Path(folder)


def clusters(world: World) -> str:
    """What the page says now."""
    return world.browser.get(world.dashboards.guard.port, "/clusters").text


def test_the_page_lists_the_clusters_with_state_version_workers_and_link(world: World) -> None:
    page = world.browser.get(world.dashboards.guard.port).text
    for name in NAMES:
        assert f'<a href="http://127.0.0.1:{world.port(name)}/" id="open-{name}">{name}</a>' in page
    assert page.count(">healthy</span>") == len(NAMES) + 1  # and in the sum
    assert page.count(">2.60.0<") == len(NAMES)
    assert page.count(">1 of 1<") == len(NAMES)


def test_links_lead_to_the_name_that_the_page_was_opened_by(world: World) -> None:
    port = world.dashboards.guard.port
    page = world.browser.get(port, headers={"Host": f"localhost:{port}"}).text
    assert f"http://localhost:{world.port(EAST)}/" in page


def test_the_secret_is_exchanged_for_a_cookie_that_no_script_can_read(world: World) -> None:
    browser = Browser(world.dashboards.guard)
    cookie = browser.enter().headers["Set-Cookie"]
    assert cookie.startswith(f"rayfleet-{world.dashboards.guard.port}=")
    for attribute in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=86400"):
        assert attribute in cookie
    assert browser.get(world.port(EAST), "/api/version").status == 200
    wrong = browser.get(world.dashboards.guard.port, "/enter?key=wrong")
    assert (wrong.status, wrong.headers["Set-Cookie"]) == (403, None)


def test_whoever_does_not_come_from_the_page_gets_nothing(world: World) -> None:
    stranger = Browser(world.dashboards.guard)

    def tried(browser: Browser, **headers: str) -> list[Reply]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        ports = (world.dashboards.guard.port, *map(world.port, NAMES))
        return [browser.get(port, "/api/version", headers=sent) for port in ports]

    before = len(world.rays[EAST].requests)
    other = f"http://127.0.0.1:{world.port(CENTRAL)}"
    replies = [
        *tried(stranger),
        *tried(stranger, Cookie=f"{world.dashboards.guard.cookie}=guess"),
        *tried(world.browser, Host="rebound.example"),
        *tried(world.browser, Origin="http://evil.example"),
        *tried(world.browser, Sec_Fetch_Site="same-site", Sec_Fetch_Mode="no-cors"),
        world.browser.get(world.port(EAST), "/api/version", headers={"Origin": other}),
        world.browser.get(
            world.port(EAST),
            "/socket",
            headers={"Origin": other, "Upgrade": "websocket", "Connection": "Upgrade"},
        ),
    ]
    assert {reply.status for reply in replies} == {403}
    assert not any("ray_version" in reply.text for reply in replies)
    heard = world.rays[EAST].requests[before:]
    assert ("GET", "/socket") not in heard


def test_a_lost_connection_is_opened_again(world: World) -> None:
    assert world.sshds[EAST].kill_sessions() > 0
    world.dashboards.sites[EAST].watcher.hurry()

    def answered() -> bool:
        return world.browser.get(world.port(EAST), "/api/version").status == 200

    wait_until(answered, what="the dashboard again", timeout=60, interval=0.05)
    assert world.entered[EAST].opened == 2
    assert world.entered[CENTRAL].opened == 1


def test_a_dashboard_that_is_gone_is_a_row_with_its_cause_until_it_is_back(world: World) -> None:
    world.sshds[EAST].stop()
    world.await_word(EAST, "unreachable")
    wait_until(
        lambda: "cannot reach the head 127.0.0.1" in clusters(world),
        what="the cause",
        timeout=60,
        interval=0.05,
        reason=lambda: clusters(world),
    )
    instead = world.browser.get(world.port(EAST))
    assert instead.status == 502
    assert "cannot reach the head 127.0.0.1" in instead.text
    assert f"<code>invoke status --cluster {EAST}</code>" in instead.text
    assert world.browser.get(world.port(CENTRAL), "/api/version").status == 200
    world.sshds[EAST].start()
    world.await_word(EAST, "healthy")
    assert world.browser.get(world.port(EAST), "/api/version").status == 200
    wait_until(
        lambda: [line for line in world.said if EAST in line][-1] == f"{EAST}: Ray 2.60.0 answers",
        what="the narration",
        timeout=60,
        interval=0.05,
        reason=lambda: str(world.said),
    )


def test_a_wrong_token_is_named_and_a_new_one_is_taken_up(world: World) -> None:
    world.rays[EAST].token = f"next-{EAST}"
    world.await_word(EAST, "unreachable")
    assert "the token is not the cluster&#x27;s" in clusters(world)
    instead = world.browser.get(world.port(EAST))
    assert instead.status == 502  # and not Ray's page, which would ask for a token in vain
    assert "the token is not the cluster&#x27;s" in instead.text
    secret = world.entered[EAST].secret
    assert secret is not None
    secret.add(world.rays[EAST].token)
    world.await_word(EAST, "healthy")
    assert world.browser.get(world.port(EAST)).status == 200
    shown = "\n".join([*world.said, clusters(world), instead.text])
    assert "secret-of" not in shown
    assert "next-" not in shown


def test_a_head_that_does_not_answer_holds_up_nobody() -> None:
    never, asked = threading.Event(), threading.Event()

    def stuck() -> None:
        asked.set()
        never.wait(60)
        raise Unreachable("late")

    def refused() -> None:
        raise Unreachable("quick has no head", next_step="invoke start --cluster quick")

    places = [unreachable("stuck", stuck), unreachable("quick", refused)]
    with in_a_loop(Dashboards(fleet="test", places=places)) as dashboards:
        browser = Browser(dashboards.guard)
        browser.enter()
        asked.wait(60)

        def page() -> str:
            return browser.get(dashboards.guard.port, "/clusters").text

        wait_until(lambda: "quick has no head" in page(), what="the quick one", timeout=60)
        assert ">connecting</span>" in page()
        begun = browser.get(dashboards.sites["quick"].port)
        assert begun.status == 502
    never.set()


def test_nothing_is_left_when_it_ends(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short_path))
    place = world.entered[EAST].place()
    before = set(threading.enumerate())
    with in_a_loop(Dashboards(fleet="test", places=[place])) as dashboards, ExitStack() as stack:
        browser = Browser(dashboards.guard)
        browser.enter()
        ports = [dashboards.guard.port, *(site.port for site in dashboards.sites.values())]
        folders = list(short_path.glob("rayfleet-*"))
        assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700]
        # One answer is still on its way.
        link, answer = browser.begin(ports[1], "/stream")
        stack.callback(link.close)
        assert answer.readline() == b"one\n"
    world.rays[EAST].go.set()
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert list(short_path.glob("rayfleet-*")) == []

    def left() -> list[str]:
        alive = set(threading.enumerate()) - before
        return [each.name for each in alive if not each.name.startswith("asyncio")]

    wait_until(lambda: not left(), what="threads to end", timeout=60, reason=lambda: str(left()))


def test_a_port_that_is_taken_is_an_error_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(UsageError, match=f"cannot listen on port {port}") as caught,
            in_a_loop(Dashboards(fleet="test", places=[], port=port)),
        ):
            pass
    assert caught.value.next_step.startswith("invoke dashboard")
    with pytest.raises(UsageError), in_a_loop(Dashboards(fleet="test", places=[], port=70000)):
        pass


def test_a_port_of_a_head_where_nobody_listens_has_its_cause(world: World) -> None:
    world.entered[EAST].port = free_port()
    place = world.entered[EAST].place()
    with in_a_loop(Dashboards(fleet="test", places=[place])) as dashboards:
        browser = Browser(dashboards.guard)
        browser.enter()
        site = dashboards.sites[EAST]
        wait_until(lambda: site.watcher.look.trouble, what="the first look", timeout=60)
        assert browser.get(site.port).status == 502
        assert "the dashboard does not answer" in site.watcher.look.trouble


def unreachable(name: str, connect: object) -> Place:
    """A place whose head is entered with ``connect``."""
    return Place(
        cluster=name,
        region=name,
        zone="",
        connect=connect,  # type: ignore[arg-type]
        token=None,
        config=lambda: config_with({}),
    )


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""What passes between a browser and a cluster's dashboard, over real SSH."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import http.client
import io
import json
import secrets

import aiohttp
import pytest

from tests.integration.dashboard.conftest import NAMES, World
from tests.support.dashboards import RAYS_COOKIE

pytestmark = pytest.mark.integration

EAST, CENTRAL = NAMES
LARGE = 20 << 20


def test_each_port_leads_to_its_own_cluster_with_that_clusters_token(world: World) -> None:
    for name in NAMES:
        heard = json.loads(world.browser.get(world.port(name), "/echo/a%2Fb?x=%20&y=//").text)
        assert heard["cluster"] == name
        assert heard["path"] == "/echo/a%2Fb?x=%20&y=//"
        assert ["authorization", f"Bearer secret-of-{name}"] in heard["headers"]


def test_no_cookie_and_no_token_of_the_browser_reaches_ray_and_none_of_ray_comes_back(
    world: World,
) -> None:
    reply = world.browser.get(
        world.port(EAST),
        "/echo",
        headers={
            "Cookie": f"{world.browser.cookie}; {RAYS_COOKIE}=of-another",
            "Authorization": "Bearer of-another",
            "X-Ray-Authorization": "Bearer of-another",
            "Connection": "keep-alive, X-Mine",
            "X-Mine": "1",
        },
    )
    names = {name for name, _ in json.loads(reply.text)["headers"]}
    assert not names & {"cookie", "x-ray-authorization", "x-mine", "connection"}
    assert "of-another" not in reply.text
    assert "Set-Cookie" not in reply.headers


def test_ray_still_sees_that_a_browser_asks(world: World) -> None:
    origin = f"http://127.0.0.1:{world.port(EAST)}"
    reply = world.browser.get(
        world.port(EAST),
        "/echo",
        method="POST",
        headers={"Origin": origin, "User-Agent": "Mozilla/5.0", "Sec-Fetch-Site": "same-origin"},
    )
    headers = dict(json.loads(reply.text)["headers"])
    assert headers["user-agent"] == "Mozilla/5.0"
    assert headers["origin"] == origin
    assert headers["sec-fetch-site"] == "same-origin"


def test_a_large_upload_arrives_whole(world: World) -> None:
    body = secrets.token_bytes(LARGE)
    for sent in (body, io.BytesIO(body)):  # with a length, and in chunks
        heard = json.loads(
            world.browser.get(world.port(EAST), "/echo", method="PUT", body=sent).text
        )
        assert heard["size"] == LARGE
        assert heard["sha256"] == hashlib.sha256(body).hexdigest()


def test_an_answer_is_handed_on_as_it_comes(world: World) -> None:
    link, answer = world.browser.begin(world.port(EAST), "/stream")
    assert answer.readline() == b"one\n"  # Ray has not written the rest yet
    world.rays[EAST].go.set()
    assert answer.readline() == b"two\n"
    assert answer.read() == b""
    link.close()


def test_half_an_answer_is_not_taken_for_the_whole(world: World) -> None:
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        world.browser.get(world.port(EAST), "/cut")


def test_answers_keep_their_form(world: World) -> None:
    port = world.port(EAST)
    zipped = world.browser.get(port, "/zipped")
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(zipped.body) == b"plain"
    away = world.browser.get(port, "/away")
    assert (away.status, away.headers["Location"]) == (307, "/there?a=1")
    same = world.browser.get(port, "/same", headers={"If-None-Match": '"1"'})
    assert (same.status, same.headers["ETag"], same.body) == (304, '"1"', b"")
    head = world.browser.get(port, "/zipped", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) == len(zipped.body)
    assert world.browser.get(port, "/nothing").status == 404


def test_the_tab_of_a_dashboard_is_named_after_its_cluster(world: World) -> None:
    for name in NAMES:
        index = world.browser.get(world.port(name))
        assert '<script defer="defer" src="./rayfleet-name.js"></script></head>' in index.text
        assert int(index.headers["Content-Length"]) == len(index.body)
        script = world.browser.get(world.port(name), "/rayfleet-name.js")
        assert f'"{name}"' in script.text


def test_websockets_pass_both_ways(world: World) -> None:
    async def talk() -> tuple[str, bytes, str | None, int | None]:
        headers = {"Cookie": world.browser.cookie}
        address = f"ws://127.0.0.1:{world.port(EAST)}/socket"
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, headers=headers, protocols=("loud",)) as link,
        ):
            await link.send_str("hello")
            text = await link.receive_str(timeout=30)
            await link.send_bytes(b"123")
            data = await link.receive_bytes(timeout=30)
            await link.send_str("bye")
            await link.receive(timeout=30)
            return text, data, link.protocol, link.close_code

    assert asyncio.run(talk()) == (f"{EAST}: HELLO", b"321", "loud", 4001)


def test_many_requests_at_once_are_all_answered(world: World) -> None:
    async def ask() -> list[str]:
        headers = {"Cookie": world.browser.cookie}
        async with aiohttp.ClientSession(headers=headers) as session:

            async def one(number: int) -> str:
                port = world.port(NAMES[number % 2])
                async with session.get(f"http://127.0.0.1:{port}/echo?{number}") as answer:
                    heard = await answer.json()
                    return f"{heard['cluster']}{heard['path']}"

            return await asyncio.gather(*map(one, range(200)))

    assert asyncio.run(ask()) == [f"{NAMES[number % 2]}/echo?{number}" for number in range(200)]

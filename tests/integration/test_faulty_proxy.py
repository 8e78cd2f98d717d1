"""The faulty proxy of the other tests: faithful without rules, and each fault is what it says."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import urllib3

from tests.support.faults import (
    ChangeByte,
    CutBody,
    ExpireLogins,
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
from tests.support.faulty_proxy import FaultyProxy
from tests.support.proxy_logins import Passwords, Tokens
from tests.support.registry import LocalRegistry

pytestmark = pytest.mark.integration

BLOB = os.urandom(700_000)
DIGEST = f"sha256:{hashlib.sha256(BLOB).hexdigest()}"
BASE = "/v2/some/image"
NO_RETRIES = urllib3.Retry(total=False, redirect=False)
BROKEN = (urllib3.exceptions.ProtocolError, urllib3.exceptions.NewConnectionError)


class Client:
    """Plain HTTP with a password, one attempt per request, on connections that are kept."""

    def __init__(self, host: str, authorization: dict[str, str], seconds: float = 20) -> None:
        self.base = f"http://{host}"
        self.headers = authorization
        timeout = urllib3.Timeout(connect=5, read=seconds)
        self.pool = urllib3.PoolManager(timeout=timeout, retries=NO_RETRIES, maxsize=4)

    def __call__(self, method: str, target: str, **how: object) -> urllib3.BaseHTTPResponse:
        url = target if "://" in target else f"{self.base}{target}"
        headers = {**self.headers, **how.pop("headers", {})}  # type: ignore[dict-item]
        return self.pool.request(method, url, headers=headers, **how)  # type: ignore[arg-type]

    def send(self, body: bytes = BLOB, digest: str = DIGEST) -> urllib3.BaseHTTPResponse:
        """Upload a blob as the specification's POST and PUT."""
        location = self("POST", f"{BASE}/blobs/uploads/").headers["Location"]
        return self("PUT", f"{location}&digest={digest}", body=body)


@pytest.fixture
def registry(start_registry: Callable[[str], LocalRegistry]) -> LocalRegistry:
    return start_registry("behind")


@pytest.fixture
def proxy(registry: LocalRegistry) -> Iterator[FaultyProxy]:
    with FaultyProxy(registry.host) as running:
        yield running


@pytest.fixture
def client(registry: LocalRegistry, proxy: FaultyProxy) -> Iterator[Client]:
    made = Client(proxy.host, login(registry))
    yield made
    made.pool.clear()


def login(registry: LocalRegistry, password: str = "") -> dict[str, str]:
    return urllib3.make_headers(basic_auth=f"{registry.username}:{password or registry.password}")


def test_it_is_faithful_and_all_requests_come_through_it(
    proxy: FaultyProxy, client: Client
) -> None:
    started = client("POST", f"{BASE}/blobs/uploads/")
    assert started.headers["Location"].startswith(f"http://{proxy.host}/v2/some/image/")
    assert client.send().status == 201
    assert client("GET", f"{BASE}/blobs/{DIGEST}").data == BLOB
    head = client("HEAD", f"{BASE}/blobs/{DIGEST}")
    assert (head.status, head.headers["Content-Length"]) == (200, str(len(BLOB)))
    missing = client("GET", f"{BASE}/manifests/latest")
    assert missing.status == 404
    assert b"MANIFEST_UNKNOWN" in missing.data or b"NAME_UNKNOWN" in missing.data

    assert [each.request.kind for each in proxy.exchanges] == [
        "start", "start", "upload", "blob", "blob", "manifest",
    ]  # fmt: skip
    assert [each.status for each in proxy.exchanges] == [202, 202, 201, 200, 200, 404]
    assert proxy.accepted() == {DIGEST: 1}
    assert proxy.uploaded() == len(BLOB)
    (got,) = proxy.seen("blob", "GET")
    assert got.sent == len(BLOB)
    assert (got.request.repository, got.request.reference) == ("some/image", DIGEST)


def test_bodies_of_unknown_length_come_through(proxy: FaultyProxy, client: Client) -> None:
    pieces = (BLOB[at : at + 50_000] for at in range(0, len(BLOB), 50_000))
    location = client("POST", f"{BASE}/blobs/uploads/").headers["Location"]
    sent = client("PATCH", location, body=pieces, chunked=True)
    assert sent.status == 202
    assert client("PUT", f"{sent.headers['Location']}&digest={DIGEST}").status == 201
    assert client("GET", f"{BASE}/blobs/{DIGEST}").data == BLOB
    assert proxy.seen("upload", "PATCH")[0].received == len(BLOB)


def test_many_clients_at_once_do_not_mix(proxy: FaultyProxy, client: Client) -> None:
    bodies = [os.urandom(100_000) for _ in range(12)]
    named = {f"sha256:{hashlib.sha256(each).hexdigest()}": each for each in bodies}
    with ThreadPoolExecutor(6) as pool:
        sent = list(pool.map(client.send, named.values(), named))
        read = list(pool.map(lambda digest: client("GET", f"{BASE}/blobs/{digest}"), named))
    assert {each.status for each in sent} == {201}
    assert [each.data for each in read] == bodies
    assert proxy.accepted() == dict.fromkeys(named, 1)


@pytest.mark.parametrize(
    "fault", [Reset(), CutBody(100_000), CutBody(0), LoseAnswer(), GoDown()], ids=str
)
def test_a_cut_upload_is_an_error_for_the_client(
    proxy: FaultyProxy, client: Client, fault: Fault
) -> None:
    proxy.schedules.append(Rule(fault=fault, when=on("upload")))
    with pytest.raises(BROKEN):
        client.send()
    proxy.settle()
    (cut,) = proxy.seen("upload")
    assert cut.status is None
    assert proxy.accepted() == ({DIGEST: 1} if fault == LoseAnswer() else {})


def test_nobody_listens_while_it_is_down_and_the_port_stays(
    proxy: FaultyProxy, client: Client
) -> None:
    port = proxy.port
    assert client("GET", "/v2/").status == 200
    proxy.go_down()
    for _ in range(3):
        with pytest.raises(BROKEN):
            client("GET", "/v2/")
    proxy.listen()
    assert proxy.port == port
    assert client("GET", "/v2/").status == 200
    assert len(proxy.exchanges) == 2


def test_refusals_come_in_bursts(proxy: FaultyProxy, client: Client) -> None:
    busy = Refuse(429, retry_after="7", code="TOOMANYREQUESTS")
    proxy.schedules.append(Rule(fault=busy, when=on("ping"), skip=1, times=2))
    answers = [client("GET", "/v2/") for _ in range(4)]
    assert [each.status for each in answers] == [200, 429, 429, 200]
    assert answers[1].headers["Retry-After"] == "7"
    assert b"TOOMANYREQUESTS" in answers[1].data
    assert proxy.faults() == 2


@pytest.mark.parametrize("fault", [Stall(), StallBody(100_000)], ids=str)
def test_a_stall_lasts_until_the_client_gives_up(
    proxy: FaultyProxy, registry: LocalRegistry, fault: Fault
) -> None:
    proxy.schedules.append(Rule(fault=fault, when=on("upload")))
    hasty = Client(proxy.host, login(registry), seconds=0.2)
    with pytest.raises((urllib3.exceptions.HTTPError, TimeoutError)):
        hasty.send()
    hasty.pool.clear()
    proxy.settle()
    assert proxy.accepted() == {}


def test_a_stall_ends_with_the_proxy(registry: LocalRegistry) -> None:
    held = Rule(fault=Stall(), when=on("ping"))
    with FaultyProxy(registry.host, held) as proxy:
        patient = Client(proxy.host, login(registry))
        broken = ThreadPoolExecutor(1).submit(patient, "GET", "/v2/")
        arrived = threading.Event()
        while not proxy.exchanges:
            arrived.wait(0.01)
    with pytest.raises(BROKEN):
        broken.result()
    patient.pool.clear()


def test_a_changed_byte_is_refused_by_the_registry(proxy: FaultyProxy, client: Client) -> None:
    proxy.schedules.append(Rule(fault=ChangeByte(300_000), when=on("upload")))
    refused = client.send()
    assert refused.status == 400
    assert b"DIGEST_INVALID" in refused.data
    assert client.send().status == 201


def test_answers_are_spoiled_where_a_request_has_no_body(
    proxy: FaultyProxy, client: Client
) -> None:
    client.send()
    proxy.schedules += [
        Rule(fault=ChangeByte(5), when=on("blob", "GET")),
        Rule(fault=CutBody(5), when=on("blob", "GET")),
        Rule(fault=WrongDigest(), when=on("blob", "HEAD")),
    ]
    changed = client("GET", f"{BASE}/blobs/{DIGEST}").data
    assert [at for at in range(len(BLOB)) if changed[at] != BLOB[at]] == [5]
    proxy.schedules.pop(0)
    with pytest.raises(BROKEN):
        client("GET", f"{BASE}/blobs/{DIGEST}")
    head = client("HEAD", f"{BASE}/blobs/{DIGEST}")
    assert head.headers["Docker-Content-Digest"] == WrongDigest().digest


def test_a_slow_body_arrives_whole(proxy: FaultyProxy, client: Client) -> None:
    proxy.schedules.append(Rule(fault=Slow(5_000_000), when=on("upload")))
    assert client.send().status == 201


def test_a_share_of_requests_is_the_same_for_the_same_seed() -> None:
    asked = [
        Request.parse(number, "GET", f"/v2/a/manifests/{number % 7}", 0) for number in range(700)
    ]
    faults = (Reset(), Refuse(503), Refuse(429))

    def drawn(seed: int, requests: list[Request]) -> list[Fault | None]:
        share = Share(portion=0.2, seed=seed, faults=faults)
        return [share(request) for request in requests]

    assert drawn(1, asked) == drawn(1, asked) != drawn(2, asked)
    # The same for each name, whatever order the names come in.
    turned = sorted(asked, key=lambda request: request.reference)
    by_name = sorted(zip(asked, drawn(1, asked), strict=True), key=lambda pair: pair[0].reference)
    assert [fault for _, fault in by_name] == drawn(1, turned)
    hit = [fault for fault in drawn(1, asked) if fault is not None]
    assert 100 < len(hit) < 180
    assert set(hit) == set(faults)


def test_a_password_opens_the_proxy_until_it_expires(registry: LocalRegistry) -> None:
    logins = Passwords(username=registry.username, password=registry.password)
    with FaultyProxy(registry.host, logins=logins) as proxy:
        client = Client(proxy.host, login(registry, logins.current))
        assert client("GET", "/v2/").status == 200
        proxy.schedules.append(Rule(fault=ExpireLogins()))
        refused = client("GET", "/v2/")
        assert refused.status == 401
        assert refused.headers["WWW-Authenticate"].startswith("Basic ")
        client.headers = login(registry, logins.current)
        assert client("GET", "/v2/").status == 200
        client.pool.clear()


def test_tokens_open_what_their_scope_says_for_as_long_as_they_last(
    registry: LocalRegistry,
) -> None:
    logins = Tokens(username=registry.username, password=registry.password, uses=2)
    with FaultyProxy(registry.host, logins=logins) as proxy:
        client = Client(proxy.host, {})
        refused = client("POST", f"{BASE}/blobs/uploads/")
        assert refused.status == 401
        asked = refused.headers["WWW-Authenticate"]
        assert f'realm="http://{proxy.host}/token"' in asked
        assert 'scope="repository:some/image:pull,push"' in asked
        assert client("GET", "/token?scope=x", headers=login(registry, "wrong")).status == 401

        def token(actions: str) -> dict[str, str]:
            target = f"/token?service=test&scope=repository:some/image:{actions}"
            given = client("GET", target, headers=login(registry)).json()["token"]
            return {"authorization": f"Bearer {given}"}

        client.headers = token("pull")
        assert client("HEAD", f"{BASE}/blobs/{DIGEST}").status == 404
        assert client("POST", f"{BASE}/blobs/uploads/").status == 401
        client.headers = token("pull,push")
        assert client.send().status == 201
        assert client("HEAD", f"{BASE}/blobs/{DIGEST}").status == 401
        client.headers = token("pull")
        logins.expire()
        assert client("HEAD", f"{BASE}/blobs/{DIGEST}").status == 401
        client.pool.clear()
    assert logins.given == 3

"""The registry client against a real registry, and against one that misbehaves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator

import pytest

from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.image.oci.client import MOST_PAGES, RegistryClient
from rayfleet.image.oci.credentials import Credentials
from rayfleet.image.oci.http import Retries
from tests.support.registry import LocalRegistry
from tests.support.scripted_http import Answer, Asked, ScriptedServer, scripted_server

pytestmark = pytest.mark.integration

LOGIN = Credentials(username="me", password="hunter2-secret")
QUICK = Retries(attempts=3, first_wait=0.01, longest_wait=0.02)
MISSING = Answer(status=404, body=b'{"errors":[{"code":"NAME_UNKNOWN","message":"no such"}]}')


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def client(server: ScriptedServer) -> RegistryClient:
    return RegistryClient(server.host, LOGIN, retries=QUICK)


def test_a_real_registry_lets_the_right_password_in_and_no_other(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    registry = start_registry("one")
    right = Credentials(username=registry.username, password=registry.password)
    RegistryClient(registry.host, right).ping()
    for wrong in (LOGIN, None):
        with pytest.raises(ToolFailed, match="HTTP 401 UNAUTHORIZED") as refused:
            RegistryClient(registry.host, wrong).ping()
        assert LOGIN.password not in str(refused.value)


def test_what_is_not_there_is_none_and_empty(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    registry = start_registry("one")
    right = Credentials(username=registry.username, password=registry.password)
    real = RegistryClient(registry.host, right)
    assert real.manifest_digest("a/b/c", "latest") is None
    assert real.tags("a/b/c") == ()
    real.delete_manifest("a/b/c", f"sha256:{'0' * 64}")
    with pytest.raises(ToolFailed, match="has no a/b/c:latest"):
        real.manifest("a/b/c", "latest")


def test_a_bearer_challenge_is_answered_with_a_token_that_is_kept(server: ScriptedServer) -> None:
    challenge = f'Bearer realm="http://{server.host}/token",service="reg",scope="ignored"'
    server.script += [
        Answer(status=401, headers={"WWW-Authenticate": challenge}),
        Answer(body=b'{"token":"t0"}'),
        Answer(body=b'{"tags":["a"]}'),
        Answer(body=b'{"tags":["b"]}'),
    ]
    registry = client(server)
    assert registry.tags("p/r") == ("a",)
    assert registry.tags("p/r") == ("b",)

    sent = [(asked.path.partition("?")[0], asked.authorization[:9]) for asked in server.asked]
    assert sent == [
        ("/v2/p/r/tags/list", ""),
        ("/token", "Basic bWU"),
        ("/v2/p/r/tags/list", "Bearer t0"),
        ("/v2/p/r/tags/list", "Bearer t0"),
    ]
    assert "scope=repository%3Ap%2Fr%3Apull" in server.asked[1].path


def test_an_expired_token_is_renewed(server: ScriptedServer) -> None:
    challenge = {"WWW-Authenticate": f'Bearer realm="http://{server.host}/token"'}
    for token in (b"t0", b"t1"):
        server.script += [
            Answer(status=401, headers=challenge),
            Answer(body=b'{"access_token":"%s"}' % token),
            Answer(),
        ]
    registry = client(server)
    registry.ping()
    registry.ping()
    assert [asked.authorization for asked in server.asked][-1] == "Bearer t1"


def test_busy_and_broken_answers_are_tried_again(server: ScriptedServer) -> None:
    server.script += [
        Answer(status=429, headers={"Retry-After": "0"}),
        Answer(status=503),
        Answer(body=b'{"tags":["a"]}'),
    ]
    assert client(server).tags("p/r") == ("a",)


def test_a_registry_that_stays_broken_is_unreachable(server: ScriptedServer) -> None:
    server.script.append(Answer(status=503))
    with pytest.raises(Unreachable, match="fails to answer: HTTP 503"):
        client(server).ping()
    assert len(server.asked) == QUICK.attempts


def test_a_registry_that_stays_busy_is_reported_in_its_own_words(server: ScriptedServer) -> None:
    body = b'{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}'
    server.script.append(Answer(status=429, body=body, headers={"Retry-After": "0"}))
    with pytest.raises(ToolFailed, match="HTTP 429 TOOMANYREQUESTS: slow down"):
        client(server).ping()


def test_nobody_listening_is_unreachable() -> None:
    with scripted_server() as closed:
        pass
    with pytest.raises(Unreachable, match=r"Connection refused"):
        client(closed).ping()


def test_tags_are_read_page_by_page(server: ScriptedServer) -> None:
    server.script += [
        Answer(body=b'{"tags":["b"]}', headers={"Link": '</v2/p/r/tags/list?last=b>; rel="next"'}),
        Answer(body=b'{"tags":["a"]}'),
    ]
    assert client(server).tags("p/r") == ("a", "b")
    assert server.asked[1].path == "/v2/p/r/tags/list?last=b"


def test_a_manifest_is_checked_against_its_digest(server: ScriptedServer) -> None:
    digest = f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    server.script.append(Answer(headers={"Docker-Content-Digest": digest}))
    assert client(server).manifest("p/r", "latest").digest == digest

    server.script[:] = [Answer(body=b"{ }", headers={"Docker-Content-Digest": digest})]
    with pytest.raises(ToolFailed, match="damaged manifest"):
        client(server).manifest("p/r", "latest")
    with pytest.raises(ToolFailed, match="damaged blob"):
        client(server).config("p/r", digest)


def test_a_digest_is_computed_when_the_registry_names_none(server: ScriptedServer) -> None:
    server.script.append(Answer())
    digest = client(server).manifest_digest("p/r", "latest")
    assert digest == f"sha256:{hashlib.sha256(b'{}').hexdigest()}"


def test_deleting_asks_for_the_right_and_reports_a_refusal(server: ScriptedServer) -> None:
    body = b'{"errors":[{"code":"UNSUPPORTED","message":"deletion is off"}]}'
    server.script.append(Answer(status=405, body=body))
    with pytest.raises(ToolFailed, match="HTTP 405 UNSUPPORTED: deletion is off"):
        client(server).delete_manifest("p/r", f"sha256:{'0' * 64}")
    server.script[:] = [MISSING]
    client(server).delete_manifest("p/r", f"sha256:{'0' * 64}")


def test_an_answer_that_is_cut_short_is_asked_for_again(server: ScriptedServer) -> None:
    server.script += [Answer(body=b'{"tags":["a"]}', how="cut short"), Answer(body=b'{"tags":[]}')]
    assert client(server).tags("p/r") == ()


def test_a_blob_may_lie_on_another_host_which_gets_no_login(server: ScriptedServer) -> None:
    digest = f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    ask = Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
    with scripted_server() as store:
        there = {"Location": f"http://{store.host}/blob?sig=secret"}
        server.script += [ask, Answer(status=307, headers=there)]
        store.script += [Answer(), ask]
        client(server).config("p/r", digest)
        with pytest.raises(ToolFailed, match="HTTP 401") as refused:
            client(server).config("p/r", digest)
    assert "secret" not in refused.value.text()
    assert [each.authorization for each in store.asked] == ["", ""]
    assert [each.authorization[:5] for each in server.asked] == ["", "Basic", ""]


def test_a_registry_without_a_login_is_read_as_nobody(server: ScriptedServer) -> None:
    realm = f'Bearer realm="http://{server.host}/token"'
    server.script += [
        Answer(status=401, headers={"WWW-Authenticate": realm}),
        Answer(body=b'{"token":"t0"}'),
        Answer(body=b'{"tags":["a"]}'),
    ]
    with RegistryClient(server.host, None, retries=QUICK) as nobody:
        assert nobody.tags("p/r") == ("a",)
    assert [each.authorization for each in server.asked] == ["", "", "Bearer t0"]


def pages(link: Callable[[Asked], str], *, most: int = 100) -> Callable[[Asked], Answer]:
    """Page after page of tags for who logs in, each with ``link``, ``most`` of them."""
    count = 0

    def respond(asked: Asked) -> Answer:
        nonlocal count
        if not asked.authorization:
            return Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
        count += 1
        body = json.dumps({"tags": [f"t{count}"]}).encode()
        after = {"Link": f'<{link(asked)}>; rel="next"'} if count < most else {}
        return Answer(body=body, headers=after)

    return respond


@pytest.mark.parametrize("form", ["http://{host}/v2/p/r/tags/list?n=2", "//{host}/v2/x"])
def test_no_login_goes_to_another_host_for_more_tags(server: ScriptedServer, form: str) -> None:
    with scripted_server() as other:
        other.respond = pages(lambda asked: "", most=1)
        server.respond = pages(lambda asked: form.format(host=other.host))
        with pytest.raises(ToolFailed, match="sends us elsewhere") as refused:
            client(server).tags("p/r")
    assert other.host in refused.value.text()
    assert other.asked == []


@pytest.mark.parametrize(
    "link",
    [
        lambda asked: asked.path,
        lambda asked: f"http://{asked.headers['Host']}{asked.path}",
        lambda asked: "?n=1" if asked.path.endswith("n=2") else "?n=2",
    ],
    ids=["itself", "itself in full", "the one before"],
)
def test_pages_of_tags_that_go_round_are_an_error(
    server: ScriptedServer, link: Callable[[Asked], str]
) -> None:
    server.respond = pages(link)
    with pytest.raises(ToolFailed, match="does not end"):
        client(server).tags("p/r")
    assert len(server.asked) <= 4


def test_pages_of_tags_without_an_end_are_an_error(server: ScriptedServer) -> None:
    server.respond = pages(lambda asked: f"?after={len(server.asked)}", most=2 * MOST_PAGES)
    with pytest.raises(ToolFailed, match="does not end"):
        client(server).tags("p/r")

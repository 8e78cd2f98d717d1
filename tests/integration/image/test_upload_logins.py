"""Logins while blobs are on their way: tokens, their ends, and Google's one for all regions."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rayfleet.errors import PrerequisiteMissing, RayfleetError, ToolFailed, Unreachable
from rayfleet.image.oci.authorization import Authorizer, Challenge, pulling, pushing
from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.oci.credentials import Credentials, GoogleLogin, GoogleToken
from rayfleet.image.oci.http import Http
from rayfleet.image.oci.patience import Retries
from tests.support.faulty_proxy import FaultyProxy
from tests.support.google_tokens import TokenServer, google_tokens
from tests.support.proxy_logins import Passwords, Tokens, basic
from tests.support.registry import LocalRegistry
from tests.support.scripted_http import Answer, Asked, ScriptedServer, scripted_server
from tests.support.uploads import CREATED, Count, begun, random_blob

pytestmark = pytest.mark.integration

LOGIN = Credentials(username="me", password="hunter2-secret")
QUICK = Retries(attempts=3, first_wait=0.01, longest_wait=0.02)
BLOB = random_blob(200_000)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def together(work: Callable[[int], None], count: int) -> None:
    """Call ``work`` in so many threads at once; raise what one of them raises."""
    start, errors = threading.Barrier(count, timeout=60), list[BaseException]()

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]


def test_one_token_for_each_scope_serves_many_uploads_at_once(
    start_registry: Callable[[str], LocalRegistry],
) -> None:
    registry = start_registry("one")
    login = Credentials(username=registry.username, password=registry.password)
    blobs = [random_blob(10_000, seed=seed) for seed in range(12)]
    with FaultyProxy(registry.host) as proxy, RegistryClient(proxy.host, login) as client:
        proxy.logins = tokens = Tokens(username=registry.username, password=registry.password)

        def work(number: int) -> None:
            repository = f"p/r{number % 2}"
            assert not client.has_blob(repository, blobs[number].digest)
            client.send_blob(repository, blobs[number])
            assert client.has_blob(repository, blobs[number].digest)

        together(work, len(blobs))
        assert tokens.given == 4  # two repositories, to pull and to push
        proxy.forget()
        for number in range(4):
            client.send_blob(f"p/r{number % 2}", BLOB)
        assert [each for each in proxy.exchanges if each.status == 401] == []
        assert tokens.given == 4


@pytest.mark.parametrize("make", [Tokens, Passwords])
def test_a_login_that_ends_in_the_middle_of_it_all_is_renewed(
    start_registry: Callable[[str], LocalRegistry], make: type[Tokens] | type[Passwords]
) -> None:
    registry = start_registry("one")
    logins = make(username=registry.username, password=registry.password)
    blobs = [random_blob(10_000, seed=seed) for seed in range(24)]

    def login(refused: bool) -> Credentials:
        password = logins.current if isinstance(logins, Passwords) else registry.password
        return Credentials(username=registry.username, password=password)

    with (
        FaultyProxy(registry.host) as proxy,
        RegistryClient(proxy.host, login, retries=QUICK) as client,
    ):
        proxy.logins = logins
        done = threading.Semaphore(0)

        def work(number: int) -> None:
            for blob in blobs[number::8]:
                client.send_blob("p/r", blob)
                done.release()
                if done.acquire(blocking=False) and number == 0:
                    logins.expire()

        together(work, 8)
        assert all(client.has_blob("p/r", blob.digest) for blob in blobs)
        taken = proxy.accepted()
        assert taken == dict.fromkeys((blob.digest for blob in blobs), 1)


def test_a_refused_upload_is_counted_once(server: ScriptedServer) -> None:
    ask = Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
    server.script += [ask, begun(), ask, CREATED]
    passwords = iter(("old-secret", "new-secret"))
    count = Count()

    def login(refused: bool) -> Credentials:
        return Credentials(username="me", password=next(passwords))

    with RegistryClient(server.host, login, retries=QUICK) as registry:
        registry.send_blob("p/r", BLOB, on_sent=count)
    assert (count.total, count.taken_back) == (BLOB.size, BLOB.size)
    assert [each.method for each in server.asked] == ["POST", "POST", "PUT", "PUT"]


def test_a_password_that_stays_wrong_is_an_error_that_does_not_have_it(
    server: ScriptedServer,
) -> None:
    body = b'{"errors":[{"code":"UNAUTHORIZED","message":"hunter2-secret is wrong"}]}'
    headers = {"WWW-Authenticate": 'Basic realm="r"'}
    server.script.append(Answer(status=401, body=body, headers=headers))
    calls: list[bool] = []

    def login(refused: bool) -> Credentials:
        calls.append(refused)
        return LOGIN

    with RegistryClient(server.host, login) as registry:
        with pytest.raises(ToolFailed, match="refuses the user name or password of 'me'") as told:
            registry.send_blob("p/r", BLOB)
        assert "hunter2" not in told.value.text()
        assert "hunter2" not in repr(vars(registry))
        assert "UNAUTHORIZED" in told.value.text()
    assert calls == [False, True]
    assert [each.method for each in server.asked] == ["POST", "POST"]


def test_a_token_without_the_right_is_not_a_wrong_password(server: ScriptedServer) -> None:
    realm = f'Bearer realm="http://{server.host}/token",error="insufficient_scope"'
    body = b'{"errors":[{"code":"DENIED","message":"not t0ken-secret"}]}'
    refusal = Answer(status=401, headers={"WWW-Authenticate": realm}, body=body)
    token = Answer(body=b'{"token":"t0ken-secret"}')
    server.respond = lambda asked: token if asked.path.startswith("/token") else refusal
    with (
        RegistryClient(server.host, LOGIN) as registry,
        pytest.raises(ToolFailed, match="does not let 'me' take uploads to p/r") as told,
    ):
        registry.send_blob("p/r", BLOB)
    assert "t0ken" not in told.value.text()
    assert len(server.asked) <= 5


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (Answer(body=b"t0ken-secret"), ToolFailed, "gives no token"),
        (Answer(body=b'["t0ken-secret"]'), ToolFailed, "gives no token"),
        (Answer(body=b'{"access_token":""}'), ToolFailed, "gives no token"),
        (Answer(status=401), ToolFailed, "refuses the user name or password of 'me'"),
        (Answer(status=503), Unreachable, "fails to give a token: HTTP 503"),
        (Answer(how="cut"), Unreachable, "does not answer"),
    ],
)
def test_a_token_server_that_gives_none_is_an_error(
    server: ScriptedServer, answer: Answer, kind: type[RayfleetError], words: str
) -> None:
    challenge = {"WWW-Authenticate": f'Bearer realm="http://{server.host}/token?x=y"'}
    ask = Answer(status=401, headers=challenge)
    server.respond = lambda asked: answer if asked.path.startswith("/token") else ask
    with (
        RegistryClient(server.host, LOGIN, retries=QUICK) as registry,
        pytest.raises(kind, match=words) as told,
    ):
        registry.has_blob("p/r", BLOB.digest)
    assert "secret" not in told.value.text()
    assert "/token?x=y&scope=repository%3Ap%2Fr%3Apull" in server.sent()[1]


def test_tokens_are_kept_for_their_scope_until_they_end(server: ScriptedServer) -> None:
    clock = [100.0]
    given = iter(range(1, 100))

    def respond(asked: Asked) -> Answer:
        value: dict[str, object] = {"token": f"t{next(given)}"}
        if "push" in asked.path:
            value["expires_in"] = 600
        return Answer(body=json.dumps(value).encode())

    server.respond = respond
    http = Http(server.host, retries=QUICK)
    authorizer = Authorizer(http, lambda _: LOGIN, clock=lambda: clock[0])
    challenge = Challenge.parse(f'Bearer realm="http://{server.host}/t",service="s"')
    pull, push = (pulling("p/r"),), (pushing("p/r"),)
    assert authorizer.header(pull) is None  # nobody has asked for one
    assert authorizer.answer(challenge, pull, refused=None, renew=False) == "Bearer t1"
    assert authorizer.header(pull) == "Bearer t1"
    assert authorizer.header(push) == "Bearer t2"
    clock[0] += 53  # 60 s is what a token lasts that does not say
    assert authorizer.header(pull) == "Bearer t1"
    clock[0] += 2
    assert authorizer.header(pull) == "Bearer t3"
    assert authorizer.header(push) == "Bearer t2"
    clock[0] += 500
    assert authorizer.header(push) == "Bearer t4"
    assert authorizer.answer(challenge, push, refused="Bearer t4", renew=False) == "Bearer t5"
    assert authorizer.answer(challenge, push, refused="Bearer t4", renew=False) == "Bearer t5"
    assert authorizer.answer(challenge, push, refused="Bearer t5", renew=True) is None
    http.close()


def test_only_one_thread_at_a_time_asks_for_a_token(server: ScriptedServer) -> None:
    asked = Counter[str]()

    def respond(request: Asked) -> Answer:
        asked[request.path] += 1
        return Answer(body=b'{"token":"t"}')

    server.respond = respond
    http = Http(server.host, retries=QUICK)
    authorizer = Authorizer(http, lambda _: LOGIN)
    challenge = Challenge.parse(f'Bearer realm="http://{server.host}/t"')

    def work(number: int) -> None:
        scopes = (pulling(f"p/r{number % 3}"),)
        assert authorizer.answer(challenge, scopes, refused=None, renew=False) == "Bearer t"

    together(work, 24)
    assert list(asked.values()) == [1, 1, 1]
    http.close()


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    """A service account whose tokens come from loopback."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with google_tokens(tmp_path) as running:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(running.account))
        yield running


def test_all_regions_share_one_google_token_and_refresh_it_once(google: TokenServer) -> None:
    good = ["token-1"]

    def respond(asked: Asked) -> Answer:
        if asked.authorization not in {basic("oauth2accesstoken", token) for token in good}:
            return Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="ar"'})
        return begun() if asked.method == "POST" else CREATED

    with ExitStack() as stack:
        servers = [stack.enter_context(scripted_server()) for _ in range(4)]
        shared = GoogleToken()
        clients = []
        for server in servers:
            server.respond = respond
            client = RegistryClient(server.host, GoogleLogin(shared), retries=QUICK)
            clients.append(stack.enter_context(client))

        together(lambda number: clients[number % 4].send_blob("p/r", BLOB), 12)
        assert google.given == 1
        good[:] = ["token-2"]  # the first one is revoked in the middle of the run
        together(lambda number: clients[number % 4].send_blob("p/r", BLOB), 12)
        assert google.given == 2
        good.clear()
        with pytest.raises(ToolFailed, match=r"'me@example\.test'") as told:
            clients[0].send_blob("p/r", BLOB)
        assert "token-" not in told.value.text()


def test_a_google_token_is_renewed_before_it_ends(google: TokenServer) -> None:
    google.lifetime = 1  # google-auth takes one that ends soon for one that has ended
    token = GoogleToken()
    assert token.value() == "token-1"
    google.lifetime = 3600
    assert token.value() == "token-2"
    assert token.value() == "token-2"
    assert token.value(refused="token-1") == "token-2"
    assert token.value(refused="token-2") == "token-3"


def test_google_may_refuse(google: TokenServer) -> None:
    google.status = 400
    with pytest.raises(PrerequisiteMissing, match="gcloud auth application-default login"):
        GoogleToken().value()


def test_google_may_be_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with google_tokens(tmp_path) as gone:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(gone.account))
        token = GoogleToken()
    with pytest.raises(Unreachable, match="Google's token server does not answer"):
        token.value()

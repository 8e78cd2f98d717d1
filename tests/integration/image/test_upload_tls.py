"""Registries behind TLS and a proxy, as they are in production."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfleet.errors import PrerequisiteMissing, RayfleetError, Unreachable
from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.oci.credentials import Credentials
from rayfleet.image.oci.patience import Retries
from tests.support.scripted_http import Answer, ScriptedServer, scripted_server
from tests.support.tls import make_authority
from tests.support.tunnels import Tunnels, tunnels
from tests.support.uploads import CREATED, Count, begun, random_blob, uploading

pytestmark = pytest.mark.integration

# Nobody has this name; the proxy knows where it leads.
NAME = "registry.example.test"
LOGIN = Credentials(username="me", password="hunter2-secret")
QUICK = Retries(attempts=3, first_wait=0.01, longest_wait=0.02, read_timeout=30)
ASK = Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
BIG = random_blob(24 << 20)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a bundle of its own and no proxy."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    bundle = make_authority(tmp_path / "tls", NAME).bundle
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    return bundle


@pytest.fixture
def server(environment: Path) -> Iterator[ScriptedServer]:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(environment, environment.with_name("key.pem"))
    with scripted_server(tls=context) as running:
        yield running


@pytest.fixture
def proxy(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tunnels]:
    with tunnels(server.host) as running:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{running.host}")
        yield running


def connect(retries: Retries = QUICK) -> RegistryClient:
    return RegistryClient(NAME, LOGIN, retries=retries)


def fail(retries: Retries = QUICK) -> RayfleetError:
    with connect(retries) as registry, pytest.raises(RayfleetError) as failure:
        registry.send_blob("p/r", BIG)
    assert "secret" not in failure.value.text()
    return failure.value


def test_a_blob_goes_through_the_proxy_and_tls(server: ScriptedServer, proxy: Tunnels) -> None:
    server.script += [ASK, begun(f"http://{NAME}/up/1?s=1"), CREATED]
    count = Count()
    with connect() as registry:
        registry.send_blob("p/r", BIG, on_sent=count)
    assert count.total == server.asked[-1].received == BIG.size
    assert set(proxy.asked) == {f"{NAME}:443"}
    assert [each.authorization[:5] for each in server.asked] == ["", "Basic", "Basic"]


def test_a_proxy_may_want_a_login(
    server: ScriptedServer, proxy: Tunnels, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script.append(Answer())
    proxy.login = f"Basic {base64.b64encode(b'pat:s@cret-secret').decode()}"
    error = fail()
    assert isinstance(error, Unreachable)
    assert "the proxy" in error.why
    assert "407" in error.why
    monkeypatch.setenv("HTTPS_PROXY", f"pat:s%40cret-secret@{proxy.host}")
    with connect() as registry:
        registry.ping()
    assert proxy.logins[-1] == proxy.login


def test_a_proxy_that_is_gone_is_named(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tunnels(server.host) as gone:
        pass
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:my-secret@{gone.host}")
    assert "the proxy: Connection refused" in fail().why


@pytest.mark.parametrize("proxy", ["socks5://me:my-secret@127.0.0.1:1", "http://[my-secret"])
def test_an_unknown_kind_of_proxy_is_an_error(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    assert isinstance(fail(), Unreachable)


def test_a_host_may_be_excepted_from_the_proxy(
    server: ScriptedServer, proxy: Tunnels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", ".example.test")
    assert isinstance(fail(Retries(attempts=1)), Unreachable)
    assert proxy.asked == []


def test_a_certificate_that_is_not_trusted_is_refused_at_once(
    server: ScriptedServer, proxy: Tunnels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_authority(tmp_path / "other", NAME)
    monkeypatch.setenv("SSL_CERT_FILE", str(other.bundle))
    error = fail()
    assert "certificate verify failed" in error.why
    assert len(proxy.asked) == 1
    assert server.asked == []


def test_a_certificate_of_another_name_is_refused(
    server: ScriptedServer, proxy: Tunnels, environment: Path
) -> None:
    with (
        RegistryClient("other.example.test", LOGIN, retries=QUICK) as registry,
        pytest.raises(Unreachable, match="certificate"),
    ):
        registry.ping()
    assert server.asked == []


@pytest.mark.parametrize(
    "fault",
    [
        Answer(how="cut"),
        Answer(how="cut", read=100_000),
        Answer(status=503, read=100_000, how="close"),
    ],
)
def test_what_may_pass_is_begun_again(
    server: ScriptedServer, proxy: Tunnels, fault: Answer
) -> None:
    server.respond = uploading(fault, CREATED)
    count = Count()
    with connect() as registry:
        registry.send_blob("p/r", BIG, on_sent=count)
    assert count.total == BIG.size
    assert [each.method for each in server.asked] == ["POST", "PUT", "HEAD", "POST", "PUT"]


def test_a_stalled_upload_is_given_up(server: ScriptedServer, proxy: Tunnels) -> None:
    server.respond = uploading(Answer(how="stall", read=100_000), CREATED)
    with connect(Retries(attempts=2, first_wait=0.01, read_timeout=2.0)) as registry:
        registry.send_blob("p/r", BIG)
    assert [each.method for each in server.asked].count("PUT") == 2


def test_an_early_refusal_is_heard(server: ScriptedServer, proxy: Tunnels) -> None:
    body = b'{"errors":[{"code":"DENIED","message":"no right to write"}]}'
    server.respond = uploading(Answer(status=403, body=body, read=100_000, how="close"))
    assert "DENIED: no right to write" in fail().why


def test_connections_are_kept(server: ScriptedServer, proxy: Tunnels) -> None:
    server.respond = uploading(CREATED)
    with connect() as registry:
        for _ in range(4):
            registry.send_blob("p/r", random_blob(10))
    assert len(proxy.asked) == 1


def test_a_token_server_of_another_host_gets_the_password_only_behind_tls(
    server: ScriptedServer, proxy: Tunnels
) -> None:
    def ask(realm: str) -> Answer:
        return Answer(status=401, headers={"WWW-Authenticate": f'Bearer realm="{realm}"'})

    server.script += [ask("http://tokens.example.test/t?x=secret")]
    error = fail()
    assert "wants its password sent to http://tokens.example.test/t" in error.text()
    assert len(server.asked) == 1


def test_a_bundle_that_is_none_is_named_before_anything_is_sent(environment: Path) -> None:
    environment.write_text("not a certificate\n")
    error = fail()
    assert isinstance(error, PrerequisiteMissing)
    assert str(environment) in error.what
    assert "SSL_CERT_FILE" in error.next_step


def test_a_plain_registry_needs_no_bundle(environment: Path) -> None:
    environment.write_text("not a certificate\n")
    with scripted_server() as plain:
        plain.script += [Answer(status=404)]
        with RegistryClient(plain.host, LOGIN, retries=QUICK) as registry:
            assert not registry.has_blob("p/r", BIG.digest)

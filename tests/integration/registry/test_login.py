"""``registry.login``: Google's registries behind TLS, Docker's helpers, passwords in files."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, PrerequisiteMissing, RayfleetError, ToolFailed
from rayfleet.fleet.model import Fleet
from rayfleet.image.oci import credentials
from rayfleet.image.oci.patience import Retries
from rayfleet.registry.keep_login import keep_logins
from rayfleet.registry.login import MISSING, OK, REFUSED, LoginReport, check_logins
from tests.support.google_tokens import TokenServer, google_tokens
from tests.support.proxy_logins import basic
from tests.support.publishing import make_site
from tests.support.registry import LocalRegistry
from tests.support.scripted_http import Answer, Asked, scripted_server
from tests.support.tls import make_authority
from tests.support.tunnels import tunnels

pytestmark = pytest.mark.integration

REGIONS = ("us-east5", "europe-west4")
QUICK = Retries(attempts=2, first_wait=0.01, longest_wait=0.02)
SECRET = "hunter2-secret"
ACCOUNT = "me@example.test"


@dataclass(kw_only=True)
class ArtifactRegistry:
    """Answers as Artifact Registry does: tokens by its own server, one for each scope.

    ``lacks`` has the permissions that the account lacks, by region; ``empty`` the regions
    without the repository. ``begun`` and ``cancelled`` are uploads.
    """

    google: TokenServer
    lacks: dict[str, str] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)
    exchanged: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def respond(self, asked: Asked) -> Answer:
        """The answer to one request; its Host header says which region was meant."""
        host = asked.headers["Host"].partition(":")[0]
        region = host.removesuffix("-docker.pkg.dev")
        if asked.path.startswith("/v2/token"):
            if asked.authorization != basic("oauth2accesstoken", self.google.token):
                return Answer(status=401)
            self.exchanged.append(asked.path)
            return Answer(body=b'{"token":"of-the-registry"}')
        if asked.authorization != "Bearer of-the-registry":
            challenge = f'Bearer realm="https://{host}/v2/token",service="{host}"'
            return Answer(status=401, headers={"WWW-Authenticate": challenge})
        if asked.path == "/v2/":
            return Answer()
        if asked.method == "DELETE":
            self.cancelled.append(region)
            return Answer(status=204, body=b"")
        name = "uploadArtifacts" if asked.method == "POST" else "downloadArtifacts"
        if name in self.lacks.get(region, ""):
            return _denied(region, name)
        if asked.method == "POST" and region not in self.empty:
            self.begun.append(region)
            return Answer(status=202, body=b"", headers={"Location": f"{asked.path}1?s=1"})
        return _error(404, "NAME_UNKNOWN" if region in self.empty else "MANIFEST_UNKNOWN", "none")


def _denied(region: str, name: str) -> Answer:
    where = f"projects/p/locations/{region}/repositories/marin"
    text = f'Permission "artifactregistry.repositories.{name}" denied on resource "{where}"'
    return _error(403, "DENIED", text)


def _error(status: int, code: str, text: str) -> Answer:
    body = json.dumps({"errors": [{"code": code, "message": text}]}).encode()
    return Answer(status=status, body=body)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a login of any kind; gives the folder of Docker's configuration."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("DOCKERHUB_USERNAME", "DOCKERHUB_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "docker"
    folder.mkdir()
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    # No credential helper of this machine.
    for name in ("docker-registry", "git"):
        program = shutil.which(name)
        assert program is not None, f"{name} is not installed"
        (tmp_path / "bin" / name).symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    credentials._shared_google_token.cache_clear()
    return folder


@pytest.fixture
def fleet(tmp_path: Path, home: Path) -> Fleet:
    made = make_site(tmp_path / "site", {}).fleet
    hosts = {region: f"{region}-docker.pkg.dev" for region in REGIONS}
    registries = replace(made.registries, regions=REGIONS, hosts=hosts)
    return replace(made, project="p", registries=registries, sandbox=None)


@pytest.fixture
def google(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ArtifactRegistry]:
    """Artifact Registry's hosts on loopback, behind their real names and TLS."""
    bundle = make_authority(tmp_path / "tls", "*.pkg.dev").bundle
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bundle, bundle.with_name("key.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with google_tokens(tmp_path) as tokens, scripted_server(tls=context) as server:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tokens.account))
        made = ArtifactRegistry(google=tokens)
        server.respond = made.respond
        with tunnels(server.host) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.host}")
            yield made
    credentials._shared_google_token.cache_clear()


def failure(report: LoginReport) -> RayfleetError:
    with pytest.raises(RayfleetError) as told:
        report.raise_failures()
    return told.value


def shown(report: LoginReport, *, as_json: bool = False) -> str:
    console = Console(out=io.StringIO(), err=io.StringIO())
    report.show(console, as_json=as_json)
    text = console.out.getvalue() + console.err.getvalue()  # type: ignore[attr-defined]
    assert SECRET not in text
    assert "token-" not in text
    return str(text)


def test_a_token_is_exchanged_and_an_upload_begun_and_cancelled_in_every_region(
    fleet: Fleet, google: ArtifactRegistry
) -> None:
    report = check_logins(fleet, retries=QUICK)
    assert [(each.login, each.pull, each.push) for each in report.checked] == [(OK, OK, OK)] * 2
    report.raise_failures()
    assert sorted(google.begun) == sorted(google.cancelled) == sorted(REGIONS)
    scopes = [path for path in google.exchanged if "pull%2Cpush" in path]
    assert len(scopes) >= len(REGIONS)
    assert google.google.given == 1  # one login of Google for all regions
    assert str(report.checked[0].source) == f"Google's default credentials ({ACCOUNT})"
    entries = json.loads(shown(report, as_json=True))
    assert [each["repository"] for each in entries] == [
        f"projects/p/locations/{region}/repositories/marin" for region in REGIONS
    ]


def test_a_refused_push_names_permission_repository_and_command(
    fleet: Fleet, google: ArtifactRegistry
) -> None:
    google.lacks["us-east5"] = "uploadArtifacts"
    report = check_logins(fleet, retries=QUICK)
    states = {each.place.region: (each.pull, each.push) for each in report.checked}
    assert states == {"us-east5": (OK, REFUSED), "europe-west4": (OK, OK)}
    told = failure(report)
    assert isinstance(told, PartialFailure)
    for words in (
        "1 of 2 repositories cannot be pushed to",
        "us-east5/marin",
        f"does not let '{ACCOUNT}' take uploads",
        "artifactregistry.repositories.uploadArtifacts on "
        "projects/p/locations/us-east5/repositories/marin",
        "gcloud artifacts repositories add-iam-policy-binding marin --location=us-east5 "
        f"--project=p --member=user:{ACCOUNT} --role=roles/artifactregistry.writer",
    ):
        assert words in told.text()
    assert "invoke registry.login --check" in told.next_step


def test_every_region_tells_its_own_command(fleet: Fleet, google: ArtifactRegistry) -> None:
    google.lacks = dict.fromkeys(REGIONS, "uploadArtifacts downloadArtifacts")
    told = failure(check_logins(fleet, retries=QUICK))
    assert isinstance(told, ToolFailed)
    for region in REGIONS:
        assert f"--location={region} --project=p" in told.text()
    assert told.text().count("roles/artifactregistry.reader") == 2
    assert told.text().count("roles/artifactregistry.writer") == 2


def test_a_repository_that_is_not_there_yet_is_no_failure(
    fleet: Fleet, google: ArtifactRegistry
) -> None:
    google.empty.add("us-east5")
    report = check_logins(fleet, regions=["us-east5"], retries=QUICK)
    assert [each.push for each in report.checked] == [MISSING]
    report.raise_failures()


def test_an_account_that_google_refuses_is_found_before_anything_is_pushed(
    fleet: Fleet, google: ArtifactRegistry
) -> None:
    google.google.status = 400
    told = failure(check_logins(fleet, retries=QUICK))
    assert isinstance(told, PrerequisiteMissing)
    assert told.next_step == "gcloud auth application-default login"
    assert google.begun == []


def test_without_default_credentials_dockers_helper_logs_in_to_google(
    fleet: Fleet, google: ArtifactRegistry, tmp_path: Path, home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    google.google.given = 7
    helper(tmp_path, "gcloud", username="oauth2accesstoken", secret="token-7")
    config = {"credHelpers": {f"{region}-docker.pkg.dev": "gcloud" for region in REGIONS}}
    (home / "config.json").write_text(json.dumps(config))
    report = check_logins(fleet, retries=QUICK)
    report.raise_failures()
    assert {str(each.source) for each in report.checked} == {
        "Docker's credential helper (docker-credential-gcloud)"
    }


def test_googles_login_is_kept_as_the_name_of_a_helper(
    fleet: Fleet, google: ArtifactRegistry, tmp_path: Path, home: Path
) -> None:
    report = check_logins(fleet, retries=QUICK)
    (kept,) = {each.stored.partition(":")[0] for each in keep(report, fleet).checked}
    assert kept.startswith("nothing kept")
    assert not (home / "config.json").exists()
    helper(tmp_path, "gcloud", username="oauth2accesstoken", secret=SECRET)
    (home / "config.json").write_text('{"auths": {"r.example": {}}, "psFormat": "x"}')
    keep(report, fleet)
    assert json.loads((home / "config.json").read_text()) == {
        "auths": {"r.example": {}},
        "psFormat": "x",
        "credHelpers": {f"{region}-docker.pkg.dev": "gcloud" for region in REGIONS},
    }
    assert "already" in keep(report, fleet).checked[0].stored


@pytest.fixture
def local(
    fleet: Fleet, start_registry: Callable[[str], LocalRegistry], monkeypatch: pytest.MonkeyPatch
) -> tuple[Fleet, LocalRegistry]:
    """A fleet of one real registry with basic auth that plays Docker Hub."""
    registry = start_registry("one")
    registries = replace(fleet.registries, regions=("one",), hosts={"one": registry.host})
    # The hosts of Docker Hub are known by name, and have none on loopback.
    for module in ("credentials", "docker_config"):
        hosts = frozenset({registry.host})
        monkeypatch.setattr(f"rayfleet.image.oci.{module}.HUB_HOSTS", hosts)
    return replace(fleet, registries=registries), registry


def test_docker_hubs_login_of_an_env_file(local: tuple[Fleet, LocalRegistry]) -> None:
    fleet, registry = local
    env = fleet.source.parent / ".env"
    (fleet.source.parent / "tasks.py").touch()
    env.write_text(
        f"# sample\nexport DOCKERHUB_USERNAME={registry.username}\n"
        f"DOCKERHUB_PASSWORD='{registry.password}'\n"
    )
    env.chmod(0o644)
    report = check_logins(fleet, retries=QUICK)
    report.raise_failures()
    assert str(report.checked[0].source) == str(env)
    assert f"chmod 600 {env}" in shown(report)
    assert registry.password not in shown(report)
    env.write_text("DOCKERHUB_USERNAME={{user}}\nDOCKERHUB_PASSWORD={{password}}\n")
    told = failure(check_logins(fleet, retries=QUICK))  # a sample is no login
    assert f"docker login {registry.host}" in told.text() or "sandbox.up" in told.text()


def test_a_password_is_kept_in_a_helper_and_in_plain_text_only_when_that_is_wished(
    local: tuple[Fleet, LocalRegistry],
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, registry = local
    monkeypatch.setenv("DOCKERHUB_USERNAME", registry.username)
    monkeypatch.setenv("DOCKERHUB_PASSWORD", registry.password)
    report = check_logins(fleet, retries=QUICK)
    assert "--plain-text" in keep(report, fleet).checked[0].stored
    assert not (home / "config.json").exists()

    stored = keep(report, fleet, plain_text=True).checked[0].stored
    assert "PLAIN TEXT" in stored
    path = home / "config.json"
    assert path.stat().st_mode & 0o777 == 0o600
    (entry,) = json.loads(path.read_text())["auths"].values()
    login = f"{registry.username}:{registry.password}"
    assert base64.b64decode(entry["auth"]).decode() == login

    helper(tmp_path, "test", username=registry.username, secret=registry.password)
    path.write_text('{"credsStore": "test"}')
    assert keep(report, fleet, plain_text=True).checked[0].stored == (
        "docker-credential-test keeps it"
    )
    said = json.loads((tmp_path / "bin" / "test.stored").read_text())
    assert said["Secret"] == registry.password
    assert json.loads(path.read_text()) == {"credsStore": "test"}
    assert "store" in (tmp_path / "bin" / "test.argv").read_text()
    assert registry.password not in (tmp_path / "bin" / "test.argv").read_text()


def test_a_password_in_dockers_own_file_is_used_and_pointed_at(
    local: tuple[Fleet, LocalRegistry], home: Path
) -> None:
    fleet, registry = local
    auth = base64.b64encode(f"{registry.username}:{registry.password}".encode()).decode()
    key = "https://index.docker.io/v1/"
    (home / "config.json").write_text(json.dumps({"auths": {key: {"auth": auth}}}))
    report = check_logins(fleet, retries=QUICK)
    report.raise_failures()
    assert "plain text" in shown(report)
    assert registry.password not in shown(report)


def test_a_wrong_password_is_refused_and_never_kept(
    local: tuple[Fleet, LocalRegistry], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, registry = local
    monkeypatch.setenv("DOCKERHUB_USERNAME", registry.username)
    monkeypatch.setenv("DOCKERHUB_PASSWORD", SECRET)
    report = check_logins(fleet, retries=QUICK)
    assert [each.login for each in report.checked] == [REFUSED]
    told = failure(report)
    assert f"refuses the user name or password of '{registry.username}'" in told.text()
    assert SECRET not in told.text()
    assert keep(report, fleet, plain_text=True).checked[0].stored == ""
    assert not (home / "config.json").exists()


def test_a_damaged_configuration_of_docker_is_left_alone(
    fleet: Fleet, google: ArtifactRegistry, tmp_path: Path, home: Path
) -> None:
    report = check_logins(fleet, retries=QUICK)
    helper(tmp_path, "gcloud", username="oauth2accesstoken", secret=SECRET)
    (home / "config.json").write_text('["no object"]')
    with pytest.raises(PrerequisiteMissing, match="Docker's configuration"):
        keep(report, fleet)
    assert (home / "config.json").read_text() == '["no object"]'


def keep(report: LoginReport, fleet: Fleet, *, plain_text: bool = False) -> LoginReport:
    console = Console(out=io.StringIO(), err=io.StringIO())
    kept = keep_logins(report, fleet, console=console, plain_text=plain_text)
    password = os.environ.get("DOCKERHUB_PASSWORD") or SECRET
    assert password not in console.err.getvalue()  # type: ignore[attr-defined]
    return kept


def helper(folder: Path, name: str, *, username: str, secret: str) -> None:
    """A credential helper that knows one login and writes down what it is to keep."""
    answer = json.dumps({"Username": username, "Secret": secret})
    path = folder / "bin" / f"docker-credential-{name}"
    path.write_text(
        f'#!/bin/sh\nhere="${{0%/*}}"\necho "$@" >>"$here/{name}.argv"\n'
        f'if [ "$1" = store ]; then /bin/cat >"$here/{name}.stored"; else echo \'{answer}\'; fi\n'
    )
    path.chmod(0o755)

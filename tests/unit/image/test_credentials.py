"""Where the password of a registry comes from."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path

import pytest

from rayfleet.errors import PrerequisiteMissing
from rayfleet.fleet.model import Fleet
from rayfleet.image.oci.credentials import Credentials, credentials_for, login_for
from tests.support.publishing import make_site

SANDBOX = {"127.0.0.1:5000": {"username": "u", "password": "hunter2-secret"}}


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return make_site(tmp_path, {}).fleet


def passwords(fleet: Fleet, text: str) -> None:
    assert fleet.sandbox is not None
    fleet.sandbox.credentials.write_text(text)


def docker_config(folder: Path, config: object, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


def test_the_sandboxs_file_comes_first(fleet: Fleet) -> None:
    passwords(fleet, json.dumps(SANDBOX))
    found = credentials_for("127.0.0.1:5000", fleet)
    assert found == Credentials(username="u", password="hunter2-secret")
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize("text", ["{", '{"h": {"username": "hunter2-secret"}}', '{"h": 1}', "[]"])
def test_a_damaged_file_is_a_clear_error_that_quotes_nothing(fleet: Fleet, text: str) -> None:
    passwords(fleet, text)
    with pytest.raises(PrerequisiteMissing, match=r"invoke sandbox\.up") as damaged:
        credentials_for("h", fleet)
    assert "hunter2" not in str(damaged.value)


def test_dockers_configuration_is_used_for_other_hosts(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = base64.b64encode(b"me:hunter2-secret").decode()
    docker_config(tmp_path, {"auths": {"registry.example.com": {"auth": auth}}}, monkeypatch)
    known = credentials_for("registry.example.com", dataclasses.replace(fleet, sandbox=None))
    assert known == Credentials(username="me", password="hunter2-secret")
    assert credentials_for("other.example.com", fleet) is None


def test_a_credential_helper_is_asked(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text('#!/bin/sh\necho \'{"Username": "me", "Secret": "hunter2-secret"}\'\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    docker_config(tmp_path, {"credHelpers": {"registry.example.com": "test"}}, monkeypatch)
    found = credentials_for("registry.example.com", fleet)
    assert found == Credentials(username="me", password="hunter2-secret")

    helper.write_text("#!/bin/sh\necho boom hunter2-secret >&2\nexit 1\n")
    with pytest.raises(PrerequisiteMissing, match=r"docker login registry\.example\.com") as failed:
        credentials_for("registry.example.com", fleet)
    assert "hunter2" not in str(failed.value)


def test_a_login_is_looked_up_when_it_is_needed_and_again_when_it_is_refused(fleet: Fleet) -> None:
    login = login_for("127.0.0.1:5000", fleet)
    passwords(fleet, json.dumps(SANDBOX))
    assert login(False) == Credentials(username="u", password="hunter2-secret")
    passwords(fleet, json.dumps({"127.0.0.1:5000": {"username": "u", "password": "another"}}))
    assert login(True) == Credentials(username="u", password="another")


def test_artifact_registry_asks_for_google_credentials(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    with pytest.raises(PrerequisiteMissing, match="gcloud auth application-default login"):
        credentials_for("us-east5-docker.pkg.dev", fleet)

"""Secret Manager, by Google's own client."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from rayfleet.emulator import secrets as emulated_secrets
from rayfleet.google_api import said, service, status_of
from rayfleet.secret.store import GoogleSecret
from tests.support.google import PROJECT, Google

pytestmark = pytest.mark.integration

PARENT = f"projects/{PROJECT}"
NAME = f"{PARENT}/secrets/RAY_AUTH_TOKEN"


@pytest.fixture
def secrets(google: Google) -> Any:
    return service("secretmanager", "v1").projects().secrets()


def make(secrets: Any) -> dict[str, Any]:
    body = {"replication": {"automatic": {}}, "labels": {"cluster": "x"}}
    made: dict[str, Any] = secrets.create(
        parent=PARENT, secretId="RAY_AUTH_TOKEN", body=body
    ).execute()
    return made


def say(secrets: Any, text: str) -> dict[str, Any]:
    data = base64.b64encode(text.encode()).decode()
    body = {"payload": {"data": data}}
    added: dict[str, Any] = secrets.addVersion(parent=NAME, body=body).execute()
    return added


def read(secrets: Any, version: str = "latest") -> str:
    answer = secrets.versions().access(name=f"{NAME}/versions/{version}").execute()
    return base64.b64decode(answer["payload"]["data"]).decode()


def refused(request: Any) -> tuple[int, str]:
    with pytest.raises(Exception) as error:
        request.execute()
    return status_of(error.value), said(error.value)


def test_a_secret_is_rotated_and_its_old_version_ends(secrets: Any) -> None:
    made = make(secrets)
    assert made["name"] == "projects/100000000001/secrets/RAY_AUTH_TOKEN"  # by number, as Google
    assert refused(secrets.versions().access(name=f"{NAME}/versions/latest"))[0] == 404
    say(secrets, "one")
    second = say(secrets, "two")
    assert "two" not in str(second)
    assert (read(secrets), read(secrets, "1")) == ("two", "one")

    first = secrets.versions().get(name=f"{NAME}/versions/1").execute()
    stale = {"etag": '"0"'}
    assert refused(secrets.versions().disable(name=f"{NAME}/versions/1", body=stale))[0] == 400
    off = secrets.versions().disable(name=f"{NAME}/versions/1", body={"etag": first["etag"]})
    assert off.execute()["state"] == "DISABLED"
    code, why = refused(secrets.versions().access(name=f"{NAME}/versions/1"))
    assert (code, "is in DISABLED state" in why) == (400, True)
    secrets.versions().enable(name=f"{NAME}/versions/1", body={}).execute()
    assert read(secrets, "1") == "one"
    secrets.versions().destroy(name=f"{NAME}/versions/1", body={}).execute()
    assert refused(secrets.versions().enable(name=f"{NAME}/versions/1", body={}))[0] == 400
    listed = secrets.versions().list(parent=NAME).execute()["versions"]
    assert [row["state"] for row in listed] == ["ENABLED", "DESTROYED"]
    enabled = secrets.versions().list(parent=NAME, filter="state:ENABLED").execute()
    assert enabled["totalSize"] == 1


def test_what_is_there_or_is_not_is_said(secrets: Any) -> None:
    assert refused(secrets.get(name=NAME))[0] == 404
    make(secrets)
    assert secrets.get(name=NAME).execute()["labels"] == {"cluster": "x"}
    again = secrets.create(
        parent=PARENT, secretId="RAY_AUTH_TOKEN", body={"replication": {"automatic": {}}}
    )
    assert refused(again)[0] == 409
    assert refused(secrets.create(parent=PARENT, secretId="x", body={}))[0] == 400
    secrets.delete(name=NAME).execute()
    assert secrets.list(parent=PARENT).execute() == {"totalSize": 0}


def test_a_payload_is_checked(secrets: Any) -> None:
    make(secrets)
    data = base64.b64encode(b"123456789").decode()
    good = {"payload": {"data": data, "dataCrc32c": str(0xE3069283)}}
    secrets.addVersion(parent=NAME, body=good).execute()
    bad = {"payload": {"data": data, "dataCrc32c": "1"}}
    assert refused(secrets.addVersion(parent=NAME, body=bad))[0] == 400
    assert read(secrets) == "123456789"


def test_who_may_read_it_is_a_policy(secrets: Any) -> None:
    make(secrets)
    policy = secrets.getIamPolicy(resource=NAME).execute()
    policy["bindings"] = [
        {"role": "roles/secretmanager.secretAccessor", "members": ["user:a@example.test"]}
    ]
    secrets.setIamPolicy(resource=NAME, body={"policy": policy}).execute()
    assert refused(secrets.setIamPolicy(resource=NAME, body={"policy": policy}))[0] == 409
    assert secrets.getIamPolicy(resource=NAME).execute()["bindings"] == policy["bindings"]


def test_no_secret_is_kept_where_others_read(google: Google, secrets: Any) -> None:
    make(secrets)
    say(secrets, "very-secret")
    path = google.cloud.state.path
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert "very-secret" not in repr(google.seen())


def test_all_pages_of_the_versions_are_read(secrets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_secrets, "PAGE", 2)
    make(secrets)
    for text in ("one", "two", "three"):
        say(secrets, text)
    assert GoogleSecret(PROJECT, "RAY_AUTH_TOKEN").enabled() == ("3", "2", "1")

"""A real Ray head with a token: who comes in, and how a stale token is replaced."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfleet.auth.check import check_head
from rayfleet.cluster.health import ray_version
from rayfleet.job.client import JobClient
from rayfleet.job.dashboard import Dashboard, Unauthorized
from rayfleet.secret.credential import Credential
from rayfleet.secret.store import FileSecret
from tests.support.ray_head import LocalRayHead

pytestmark = pytest.mark.integration

RIGHT = "the-token-of-this-head-" + "x" * 16
PACKAGE = b"PK\x05\x06" + b"\0" * 18


@pytest.fixture(scope="module")
def head() -> Iterator[LocalRayHead]:
    with LocalRayHead(token=RIGHT) as local:
        yield local


@pytest.fixture
def credential(tmp_path: Path) -> Credential:
    """Of a client that was last here before the token was rotated."""
    found = Credential(
        secret=FileSecret(tmp_path / "secrets" / "TOKEN"),
        cache=tmp_path / "tokens" / "fleet" / "us-east5",
    )
    found.secret.add("stale")
    found.accepted("stale")
    return found


def test_the_version_that_a_head_takes_is_found_and_no_stranger_comes_in(
    head: LocalRayHead, credential: Credential
) -> None:
    credential.secret.add(RIGHT)
    assert check_head(head.http(), credential.secret) == (("2",), ())


def test_a_head_without_authentication_lets_everybody_in(credential: Credential) -> None:
    with LocalRayHead() as local:
        takes, strangers = check_head(local.http(), credential.secret)
    assert (takes, strangers) == (("1",), ("whoever has none", "a wrong token"))


def test_every_kind_of_question_finds_the_new_token(
    head: LocalRayHead, credential: Credential
) -> None:
    def stale() -> Credential:
        credential.accepted("stale")
        return Credential(secret=credential.secret, cache=credential.cache)

    credential.secret.add(RIGHT)
    credential.secret.add("of-a-rotation-that-is-not-here-yet")
    assert ray_version(head.http(), stale())
    assert credential.cache.read_text() == RIGHT

    def dashboard() -> Dashboard:
        return Dashboard(head.http(), cluster="us-east5", token=stale())

    path = "/api/packages/gcs/_ray_pkg_rotated.zip"
    assert dashboard().put(path, io.BytesIO(PACKAGE), size=len(PACKAGE)).ok
    assert dashboard().get(path).ok
    made = dashboard().post("/api/jobs/", {"entrypoint": "true", "submission_id": "one"})
    assert made.ok, made.reason


def test_jobs_are_told_to_whoever_has_the_token_only(head: LocalRayHead) -> None:
    assert isinstance(head.jobs().list(), tuple)
    for token in (None, "wrong"):
        with pytest.raises(Unauthorized) as refused:
            JobClient(head.http(), cluster="local", token=token).list()
        assert "wrong" not in str(refused.value)


def test_a_token_that_is_no_more_is_refused(head: LocalRayHead, credential: Credential) -> None:
    with pytest.raises(Unauthorized) as refused:
        Dashboard(head.http(), cluster="us-east5", token=credential).get("/api/version")
    assert refused.value.next_step == "invoke auth.check --cluster us-east5"
    assert "stale" not in str(refused.value)

"""A token that the cluster refuses is looked for anew: cached, latest, the one before. No more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rayfleet.errors import Unreachable
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Fleet
from rayfleet.project import Project
from rayfleet.secret.credential import Credential, asked, known
from rayfleet.secret.store import FileSecret
from rayfleet.secret.tokens import credential_of

ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Head:
    """A head that takes one token and keeps what it was asked with."""

    takes: str
    seen: list[str] = field(default_factory=list)

    def ask(self, headers: Mapping[str, str]) -> int:
        given = headers.get("Authorization", "").removeprefix("Bearer ")
        self.seen.append(given)
        return 200 if given == self.takes else 403 if given else 401


@dataclass
class Counting:
    """A secret that counts how often it was read."""

    inner: FileSecret
    reads: int = 0

    @property
    def name(self) -> str:
        return self.inner.name

    def enabled(self) -> tuple[str, ...]:
        return self.inner.enabled()

    def read(self, version: str) -> str:
        self.reads += 1
        return self.inner.read(version)

    def add(self, value: str) -> str:
        return self.inner.add(value)

    def disable(self, version: str) -> None:
        self.inner.disable(version)


@pytest.fixture
def secret(tmp_path: Path) -> Counting:
    return Counting(FileSecret(tmp_path / "secrets" / "TOKEN"))


@pytest.fixture
def credential(tmp_path: Path, secret: Counting) -> Credential:
    return Credential(secret=secret, cache=tmp_path / "tokens" / "fleet" / "us-east5")


def answer(head: Head, credential: Credential) -> int:
    return asked(credential, head.ask, lambda status: status)


def again(credential: Credential) -> Credential:
    return Credential(secret=credential.secret, cache=credential.cache)


def test_the_secret_is_read_once_and_kept_where_only_its_owner_reads(
    credential: Credential, secret: Counting
) -> None:
    secret.add("one")
    head = Head("one")
    assert [answer(head, credential), answer(head, again(credential))] == [200, 200]
    assert (head.seen, secret.reads) == (["one", "one"], 1)
    assert credential.cache.read_text() == "one"
    assert credential.cache.stat().st_mode & 0o777 == 0o600
    for folder in (credential.cache.parent, credential.cache.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_stale_token_gives_way_to_the_new_one_without_a_word(
    credential: Credential, secret: Counting
) -> None:
    secret.add("one")
    answer(Head("one"), credential)
    secret.add("two")
    head = Head("two")
    assert answer(head, again(credential)) == 200
    assert head.seen == ["one", "two"]
    assert credential.cache.read_text() == "two"
    assert answer(head, credential) == 200  # another one of the same process finds it in the file


def test_a_cluster_that_was_not_restarted_yet_still_lets_a_new_client_in(
    credential: Credential, secret: Counting
) -> None:
    secret.add("one")
    secret.add("two")
    head = Head("one")
    assert answer(head, credential) == 200
    assert head.seen == ["two", "one"]
    assert credential.known() == "one"


def test_who_knows_no_right_token_gives_up_after_three(
    credential: Credential, secret: Counting
) -> None:
    for value in ("one", "two", "three", "four"):
        secret.add(value)
    credential.accepted("zero")
    head = Head("none of these")
    assert answer(head, credential) == 403
    assert head.seen == ["zero", "four", "three"]
    assert credential.cache.read_text() == "zero"


def test_the_operators_own_is_the_only_one_tried_and_is_not_kept(
    credential: Credential, secret: Counting
) -> None:
    secret.add("one")
    credential.said = "by hand"
    head = Head("one")
    assert answer(head, credential) == 403
    assert answer(Head("by hand"), credential) == 200
    assert (head.seen, secret.reads, credential.cache.exists()) == (["by hand"], 0, False)


def test_without_any_token_the_head_says_so(credential: Credential) -> None:
    head = Head("one")
    assert answer(head, credential) == 401
    assert head.seen == [""]
    assert not credential.cache.exists()


def test_a_token_shows_in_no_text(credential: Credential, secret: Counting) -> None:
    secret.add("s3cret-token")
    answer(Head("s3cret-token"), credential)
    credential.said = "s3cret-word"
    assert "s3cret" not in repr(credential)


def test_a_store_that_is_down_matters_only_when_nothing_is_known(tmp_path: Path) -> None:
    class Down(FileSecret):
        def enabled(self) -> tuple[str, ...]:
            raise Unreachable("no store")

    credential = Credential(secret=Down(tmp_path / "TOKEN"), cache=tmp_path / "a" / "b" / "c")
    with pytest.raises(Unreachable, match="no store"):
        answer(Head("one"), credential)
    credential.accepted("one")
    assert answer(Head("one"), again(credential)) == 200
    assert answer(Head("two"), credential) == 403


def sandbox(tmp_path: Path) -> tuple[Project, Fleet]:
    file = ROOT / "infra" / "sandbox.yaml"
    project = Project(root=ROOT, fleet_file=file, state=tmp_path / "state")
    return project, load_fleet(file, root=ROOT, state=project.state, look=False)


def test_what_lies_where_ray_looks_is_never_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("of-another-cluster")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / ".ray" / "auth_token"))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    project, fleet = sandbox(tmp_path)
    first, second = (
        credential_of(project, fleet, fleet.clusters[name]) for name in ("us-east5", "us-central2")
    )
    assert first is not None
    assert second is not None
    assert first.current() == ""
    first.accepted("one")
    assert (known(first), known(second)) == ("one", "")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "by-hand")
    assert known(credential_of(project, fleet, fleet.clusters["us-east5"])) == "by-hand"

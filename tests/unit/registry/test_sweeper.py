"""A sweep of the sandbox's registries while policies change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from google.cloud import artifactregistry_v1 as ar

from rayfleet.registry.messages import policy_message
from rayfleet.registry.policy import Action, Condition, Policy, Version
from rayfleet.registry.protection import protection
from rayfleet.sandbox.registry_storage import FirstSeen
from rayfleet.sandbox.repository_book import RepositoryBook
from rayfleet.sandbox.sweeper import Shelves, Sweeper

NAME = "projects/p/locations/us-east5/repositories/marin"
DELETE = Policy(id="old", action=Action.DELETE, rule=Condition(older_than=timedelta(days=1)))
FIRST, SECOND = (
    Version(
        package="app", digest=f"sha256:{number * 64}", uploaded=datetime(2026, 1, 1, tzinfo=UTC)
    )
    for number in "12"
)


class MemoryShelves(Shelves):
    """Two old versions; when the first one goes somebody protects the other."""

    def __init__(self, book: RepositoryBook, path: Path) -> None:
        super().__init__({}, FirstSeen(path))
        self.book = book
        self.left = [FIRST, SECOND]

    def holds(self, name: str) -> bool:
        return True

    def versions(self, name: str) -> tuple[Version, ...]:
        return tuple(self.left)

    def delete(self, name: str, version: Version) -> None:
        self.left.remove(version)
        (rule,) = protection([SECOND.digest], [], room=1)

        def protect(repository: ar.Repository) -> None:
            repository.cleanup_policies[rule.id] = policy_message(rule)

        self.book.change(name, protect)


def test_what_is_protected_in_the_middle_of_a_sweep_stays(tmp_path: Path) -> None:
    book = RepositoryBook(tmp_path / "book.json")
    book.add(ar.Repository(name=NAME, cleanup_policies={"old": policy_message(DELETE)}))
    shelves = MemoryShelves(book, tmp_path / "seen.json")
    sweeper = Sweeper(book, shelves, interval=60.0)
    sweeper.sweep()
    assert shelves.left == [SECOND]
    sweeper.sweep()
    assert shelves.left == [SECOND]

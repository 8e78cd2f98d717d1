"""Carries the cleanup policies out: what they delete is deleted from the real registries."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from rayfleet.errors import RayfleetError
from rayfleet.registry.messages import policy_from
from rayfleet.registry.policy import Version
from rayfleet.registry.retention import Verdict, judge
from rayfleet.sandbox.registry_storage import FirstSeen, RegistryStorage
from rayfleet.sandbox.repository_book import RepositoryBook

if TYPE_CHECKING:
    from google.cloud import artifactregistry_v1 as ar

log = logging.getLogger(__name__)


class Deleter(Protocol):
    """The registry's own way to lose a manifest."""

    def delete_manifest(self, repository: str, digest: str) -> None:
        """Delete it; one that is gone already is fine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRegistry:
    """The registry of one region: its ``host:port``, its storage, and how it deletes."""

    host: str
    storage: RegistryStorage
    deleter: Deleter


class Shelves:
    """The versions in every region's registry, with their first upload; deletes them too."""

    def __init__(self, registries: Mapping[str, RegionRegistry], first_seen: FirstSeen) -> None:
        self.registries = registries
        self._first_seen = first_seen
        self._lock = threading.Lock()

    def holds(self, name: str) -> bool:
        """True when the region of the repository of the full ``name`` has a registry."""
        return split_name(name)[1] in self.registries

    def versions(self, name: str) -> tuple[Version, ...]:
        """Every version in the repository of the full ``name``."""
        project, region, repository = split_name(name)
        with self._lock:
            found = self.registries[region].storage.versions(project, repository)
            return self._first_seen.settle(f"{region}/{project}/{repository}", found)

    def delete(self, name: str, version: Version) -> None:
        """Delete ``version`` from the repository of the full ``name``."""
        project, region, repository = split_name(name)
        image = f"{project}/{repository}/{version.package}"
        self.registries[region].deleter.delete_manifest(image, version.digest)


class Sweeper:
    """Sweeps all repositories every ``interval`` seconds, and at once when woken."""

    def __init__(self, book: RepositoryBook, shelves: Shelves, *, interval: float) -> None:
        self._book = book
        self._shelves = shelves
        self._interval = interval
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        """Sweep now and from now on."""
        self._thread.start()

    def wake(self) -> None:
        """Sweep as soon as possible."""
        self._wake.set()

    def stop(self, timeout: float) -> None:
        """End after the deletion in hand, or after ``timeout`` seconds."""
        self._ending.set()
        self._wake.set()
        self._thread.join(timeout)

    def sweep(self) -> None:
        """Judge every repository's versions and delete what has to go."""
        for repository in self._book.under("projects"):
            try:
                self._sweep(repository)
            except (RayfleetError, OSError) as error:
                log.warning("%s: the sweep failed: %s", repository.name, error)

    def _sweep(self, repository: ar.Repository) -> None:
        messages = repository.cleanup_policies
        if not messages or not self._shelves.holds(repository.name):
            return
        policies = [policy_from(key, message) for key, message in messages.items()]
        versions = self._shelves.versions(repository.name)
        doomed = [each for each in judge(policies, versions, now=datetime.now(UTC)) if each.delete]
        # An index goes before its children: a registry may refuse the other way round.
        for verdict in sorted(doomed, key=lambda each: not each.version.children):
            if self._ending.is_set() or not self._still_says(repository):
                return
            self._carry_out(repository, verdict)

    def _still_says(self, repository: ar.Repository) -> bool:
        """Whether the policies are those that were judged: what somebody protects meanwhile must
        not go. Whoever changed them has woken us."""
        now = [each for each in self._book.under("projects") if each.name == repository.name]
        return [(each.cleanup_policies, each.cleanup_policy_dry_run) for each in now] == [
            (repository.cleanup_policies, repository.cleanup_policy_dry_run)
        ]

    def _carry_out(self, repository: ar.Repository, verdict: Verdict) -> None:
        version = verdict.version
        said = (repository.name, version.package, version.digest, ",".join(version.tags))
        if repository.cleanup_policy_dry_run:
            log.info("dry run: %s %s@%s [%s] %s", *said, verdict.reason)
            return
        self._shelves.delete(repository.name, version)
        log.info("%s %s@%s [%s] %s", *said, verdict.reason)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.clear()
            self.sweep()
            self._wake.wait(self._interval)


def split_name(name: str) -> tuple[str, str, str]:
    """Project, region and repository of ``projects/P/locations/REGION/repositories/R``."""
    _, project, _, region, _, repository = name.split("/")
    return project, region, repository

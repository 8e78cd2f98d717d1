"""The repositories that the sandbox's Artifact Registry API knows, kept in one file."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import RayfleetError
from rayfleet.files import write_atomically
from rayfleet.registry.policy import MAX_POLICIES, Action, Condition, MostRecent, Policy, TagState

if TYPE_CHECKING:
    from google.cloud import artifactregistry_v1 as ar

MAX_ID = 128
_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


class Refused(Exception):
    """A request that the API answers with an error; ``code`` is the gRPC status's name."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class RepositoryBook:
    """Repositories by full name; every change is on disk before it is answered."""

    def __init__(self, path: Path) -> None:
        """Read the book at ``path``, if there is one.

        Raises:
            RayfleetError: the file is damaged.
        """
        self._path = path
        self._lock = threading.RLock()
        self._repositories = _read(path)

    def get(self, name: str) -> ar.Repository:
        """A copy of the repository ``name``, or NOT_FOUND."""
        with self._lock:
            return _copy(self._stored(name))

    def under(self, parent: str) -> tuple[ar.Repository, ...]:
        """Copies of the repositories below ``parent``, by name."""
        with self._lock:
            names = sorted(n for n in self._repositories if n.startswith(f"{parent}/"))
            return tuple(_copy(self._repositories[name]) for name in names)

    def add(self, repository: ar.Repository) -> None:
        """Enter a new repository, or ALREADY_EXISTS."""
        with self._lock:
            if repository.name in self._repositories:
                raise Refused("ALREADY_EXISTS", f"repository {repository.name} already exists")
            self._replace({**self._repositories, repository.name: _copy(repository)})

    def change(self, name: str, edit: Callable[[ar.Repository], None]) -> ar.Repository:
        """Apply ``edit`` to the repository ``name`` and return the result, or NOT_FOUND."""
        with self._lock:
            repository = _copy(self._stored(name))
            edit(repository)
            self._replace({**self._repositories, name: repository})
            return _copy(repository)

    def remove(self, name: str) -> None:
        """Take the repository ``name`` out, or NOT_FOUND."""
        with self._lock:
            self._stored(name)
            self._replace({n: r for n, r in self._repositories.items() if n != name})

    def _stored(self, name: str) -> ar.Repository:
        found = self._repositories.get(name)
        if found is None:
            raise Refused("NOT_FOUND", f"Requested entity was not found: {name}")
        return found

    def _replace(self, repositories: Mapping[str, ar.Repository]) -> None:
        data = {name: json.loads(type(each).to_json(each)) for name, each in repositories.items()}
        write_atomically(self._path, json.dumps(data, indent=1, sort_keys=True))
        self._repositories = dict(repositories)


def check_repository_id(name: str) -> None:
    """INVALID_ARGUMENT unless ``name`` may name a repository."""
    if not _ID.fullmatch(name):
        raise Refused("INVALID_ARGUMENT", f"invalid repository_id {name!r}")


def check_policies(policies: Mapping[str, ar.CleanupPolicy]) -> None:
    """INVALID_ARGUMENT for a set of cleanup policies that the API does not take."""
    from rayfleet.registry.messages import policy_from

    if len(policies) > MAX_POLICIES:
        raise Refused("INVALID_ARGUMENT", f"more than {MAX_POLICIES} cleanup policies")
    for key, message in policies.items():
        mistake = _mistake(message.id, policy_from(key, message))
        if mistake:
            raise Refused("INVALID_ARGUMENT", f"cleanup policy {key!r}: {mistake}")


def _mistake(own_id: str, policy: Policy) -> str:
    if not policy.id or len(policy.id) >= MAX_ID:
        return f"the id must have 1 to {MAX_ID - 1} characters"
    if own_id not in {"", policy.id}:
        return f"its id {own_id!r} differs from its key"
    if policy.action is Action.UNKNOWN:
        return "action must be DELETE or KEEP"
    match policy.rule:
        case None:
            return "one of condition and most_recent_versions is required"
        case MostRecent(keep_count=count):
            if policy.action is not Action.KEEP:
                return "most_recent_versions needs the action KEEP"
            return "keep_count must be positive" if count <= 0 else ""
        case Condition(tag_state=TagState.UNTAGGED, tag_prefixes=prefixes) if prefixes:
            return "tag_prefixes contradict the tag state UNTAGGED"
    return ""


def _copy(repository: ar.Repository) -> ar.Repository:
    return type(repository)(repository)


def _read(path: Path) -> dict[str, ar.Repository]:
    from google.cloud import artifactregistry_v1 as ar

    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text())
        return {name: ar.Repository.from_json(json.dumps(each)) for name, each in data.items()}
    except (ValueError, AttributeError) as error:
        raise RayfleetError(
            f"{path} is damaged",
            why=str(error),
            next_step=f"rm {path}, then start the sandbox again: invoke sandbox.up",
        ) from error

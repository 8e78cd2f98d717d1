"""Who needs which image: what cleanup policies must not take. Values only, nothing is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from rayfleet.registry.client import Place
from rayfleet.registry.policy import Version

Key: TypeAlias = tuple[str, str]
"""Package and digest of a version in one repository."""


class Kind(StrEnum):
    """Why an image is needed."""

    PIN = "pin"
    CONFIG = "config"
    NODE = "node"
    ROLLOUT = "rollout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """``by`` needs the image ``digest`` (``sha256:…``) or, without one, whatever ``tag`` names.

    An empty ``region``, ``repository`` or ``package`` is unknown, and means each of them.
    """

    by: str
    kind: Kind
    digest: str = ""
    tag: str = ""
    region: str = ""
    repository: str = ""
    package: str = ""

    def __str__(self) -> str:
        name = self.package or "the image"
        return f"{name}@{self.digest}" if self.digest else f"{name}:{self.tag}"

    def is_of(self, version: Version) -> bool:
        """Whether ``version``, of a place that this use is about, is the image."""
        if self.package not in {"", version.package}:
            return False
        return version.digest == self.digest if self.digest else self.tag in version.tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Something that may need any image of ``region`` (empty: of all) and could not be asked."""

    by: str
    why: str
    region: str = ""
    next_step: str = ""

    def __str__(self) -> str:
        return f"{self.by}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """All that is known of what is needed, and what is not known."""

    known: tuple[Use, ...] = ()
    unknown: tuple[Unknown, ...] = ()

    def at(self, place: Place) -> Uses:
        """What of it is about ``place``."""
        return Uses(
            known=tuple(
                use
                for use in self.known
                if use.region in {"", place.region} and use.repository in {"", place.repository}
            ),
            unknown=tuple(each for each in self.unknown if each.region in {"", place.region}),
        )

    def needed(self, versions: Sequence[Version]) -> tuple[frozenset[str], frozenset[str]]:
        """The digests and the tags that have to be kept in a place that holds ``versions``.

        What a tag names now is among the digests, and so is all that an index in use refers to:
        a rule for the index alone says nothing of its parts. What only rollouts need counts where
        it is there: theirs are many, and nothing brings an old one back.
        """
        digests = {u.digest for u in self.known if u.digest and u.kind is not Kind.ROLLOUT}
        digests |= {digest for _, digest in self.users(versions)}
        return frozenset(digests), frozenset(use.tag for use in self.known if not use.digest)

    def users(self, versions: Sequence[Version]) -> Mapping[Key, tuple[str, ...]]:
        """Who needs which of ``versions``; those that nobody needs are left out."""
        found: dict[Key, dict[str, None]] = {}
        for version in versions:
            names = [use.by for use in self.known if use.is_of(version)]
            if names:
                found.setdefault(_key(version), {}).update(dict.fromkeys(names))
        by_key = {_key(version): version for version in versions}
        waiting = list(found)
        while waiting:
            package, digest = waiting.pop()
            for child in by_key[package, digest].children:
                below = (package, child)
                names = list(found[package, digest])
                if below in by_key and not set(names) <= set(found.get(below, ())):
                    found.setdefault(below, {}).update(dict.fromkeys(names))
                    waiting.append(below)
        return {key: tuple(names) for key, names in found.items()}

    def missing(self, versions: Sequence[Version]) -> tuple[Use, ...]:
        """What is needed and not there. A rollout's images do not count: nothing runs them."""
        return tuple(
            use
            for use in self.known
            if use.kind is not Kind.ROLLOUT and not any(use.is_of(each) for each in versions)
        )


def _key(version: Version) -> Key:
    return version.package, version.digest

"""What an operator types for an image: which family, and which tag or digest of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rayfleet.errors import UsageError
from rayfleet.fleet.model import Fleet
from rayfleet.fleet.pins import TAG, read_histories

SYNTAX = "TAG, sha256:DIGEST, FAMILY:TAG, FAMILY@sha256:DIGEST, current or previous"
MOVING_TAGS = frozenset({"latest"})
"""Tags that name another image after every publish; all others stay where they are."""
DIGEST_LENGTH = len("sha256:") + 64
SHORT_DIGEST_LENGTH = len("sha256:") + 12
_DIGEST = re.compile(r"sha256:[0-9a-f]{7,64}")
_SLOTS = frozenset({"current", "previous"})

KnownDigests = Callable[[str], Iterable[str]]
"""The digests of a family that a shortened one may mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image of a family. With a tag and a digest, the digest says which."""

    family: str
    tag: str = ""
    digest: str = ""

    @property
    def target(self) -> str:
        """What a registry is asked for."""
        return self.digest or self.tag

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.family}{tag}" + (f"@{self.digest}" if self.digest else "")


def find_reference(
    text: str,
    fleet: Fleet,
    *,
    family: str = "cluster",
    known: KnownDigests = lambda family: (),
) -> Reference:
    """Read what an operator typed; without a family it is one of ``family``.

    ``current`` and ``previous``, after ``FAMILY:`` or alone, are what the pin file says, and a
    family alone is its current pin. A shortened digest is completed from ``known``. A whole
    ``host/project/repository/name:tag@digest`` of the fleet is understood, too.

    Raises:
        UsageError: it is not of that form, names no image of the fleet, or asks for a pin
            that there is not.
    """
    found = _parse(text, fleet, family)
    if not found.digest and (not found.tag or found.tag in _SLOTS):
        return _pinned(found.family, found.tag or "current", fleet)
    if found.digest and len(found.digest) < DIGEST_LENGTH:
        digest = complete_digest(found.digest, known(found.family), family=found.family)
        return Reference(family=found.family, digest=digest)
    return found


def find_destination(text: str, fleet: Fleet, source: Reference) -> Reference:
    """Read where an image shall go: a tag of the source's own family, ``FAMILY:TAG``, or a
    family alone, which takes over the source's tag.

    Raises:
        UsageError: it is not of that form, or there is no tag to take over.
    """
    found = _parse(text, fleet, source.family)
    if found.digest or found.tag in _SLOTS:
        raise UsageError(
            f"an image cannot be given the name {text!r}",
            why="a destination is TAG, FAMILY:TAG or FAMILY",
        )
    if found.tag or source.tag:
        return Reference(family=found.family, tag=found.tag or source.tag)
    raise UsageError(
        f"{source} has no tag that {found.family!r} could take over",
        why="it was named by its digest",
        next_step=f"name a tag: --to {found.family}:TAG",
    )


def check_family(family: str, fleet: Fleet) -> str:
    """``family`` itself.

    Raises:
        UsageError: the fleet has no such image.
    """
    if family not in fleet.images:
        raise UsageError(f"the fleet has no image {family!r}", why=_families(fleet))
    return family


def complete_digest(short: str, known: Iterable[str], *, family: str) -> str:
    """The one digest of ``known`` that begins with ``short``.

    Raises:
        UsageError: none does, or several do.
    """
    found = sorted({digest for digest in known if digest.startswith(short)})
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"{short} is the beginning of {len(found) or 'no'} known digests of {family!r}",
        why="a shortened digest is looked up among the pins",
        next_step=f"invoke image.history --image {family} --json",
    )


def shortened(digest: str) -> str:
    """``sha256:`` and twelve digits, as tables show a digest."""
    return digest[:SHORT_DIGEST_LENGTH]


def _parse(text: str, fleet: Fleet, default: str) -> Reference:
    typed = text.strip()
    if typed.startswith("sha256:"):
        return Reference(family=check_family(default, fleet), digest=_digest(text, typed))
    name, at, digest = typed.partition("@")
    if "/" in name:
        family, tag = _of_repository(text, name, fleet)
    else:
        family, tag = _of_name(name, fleet, default, fixed=bool(at))
    if tag and not TAG.fullmatch(tag):
        raise _malformed(text, f"{tag!r} is no tag")
    return Reference(family=family, tag=tag, digest=_digest(text, digest) if at else "")


def _of_name(name: str, fleet: Fleet, default: str, *, fixed: bool) -> tuple[str, str]:
    """``FAMILY:TAG``, ``FAMILY`` or, unless a digest follows, ``TAG``."""
    left, colon, tag = name.partition(":")
    if colon or fixed or left in fleet.images:
        if colon and not tag:
            raise _malformed(name, "there is no tag after the colon")
        return check_family(left, fleet), tag
    if not left:
        raise _malformed(name, "it is empty")
    return check_family(default, fleet), left


def _of_repository(text: str, name: str, fleet: Fleet) -> tuple[str, str]:
    """The family and the tag of a reference as engines and configs write it."""
    folder, _, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    path = f"{folder}/{last}".partition("/")[2]
    for family, image in fleet.images.items():
        if path == f"{fleet.project}/{image.repository}/{image.name}":
            return family, tag
    raise UsageError(f"{text} is in no repository of this fleet", why=_families(fleet))


def _digest(text: str, digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise _malformed(text, "a digest is sha256: and 64 hexadecimal digits, or the first few")
    return digest


def _pinned(family: str, slot: str, fleet: Fleet) -> Reference:
    history = read_histories(fleet.outputs.pins).get(family)
    pin = None
    if history is not None:
        pin = history.current if slot == "current" else history.previous
    if pin is not None:
        return Reference(family=family, tag=pin.tag, digest=pin.digest)
    raise UsageError(
        f"the image {family!r} has no {slot} pin",
        why=f"{fleet.outputs.pins} has none",
        next_step=f"invoke image.history --image {family}",
    )


def _malformed(text: str, why: str) -> UsageError:
    return UsageError(f"{text!r} names no image: {why}", why=f"write {SYNTAX}")


def _families(fleet: Fleet) -> str:
    return f"its images are {', '.join(sorted(fleet.images))}"

"""What pruning the vault leaves alone, and what it has done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from rayfleet.job.vault.model import Backup
from rayfleet.job.vault.records import Damaged

NEVER = datetime(1, 1, 1, tzinfo=UTC)

Protect: TypeAlias = Callable[[Collection[str]], Mapping[str, str]]
"""Told ids of backups, it names those that must stay, each with why."""


def nothing_protected(_ids: Collection[str]) -> Mapping[str, str]:
    """Nobody needs a backup."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What pruning deletes, or has deleted: ids of backups, how many packages, the bytes of both,
    and how many files or folders that killed runs have left. ``kept`` are ids of backups that are
    old enough and stay, each with why."""

    backups: tuple[str, ...] = ()
    packages: int = 0
    size: int = 0
    leftovers: int = 0
    kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.backups or self.packages or self.leftovers)


def needed_ids(known: Sequence[Backup | Damaged], protect: Protect) -> dict[str, str]:
    """The ids of ``known``, newest first, that must stay, each with why. Pure."""
    needed = dict(protect([one.id for one in known]))
    oldest: dict[str, Backup | Damaged] = {}
    for one in known:
        if one.id in needed:
            oldest[one.cluster] = one
    for one in known:
        first = oldest.get(one.cluster)
        if first is not None and (one.taken or NEVER) > (first.taken or NEVER):
            needed.setdefault(one.id, f"it tells which jobs of {first.id} have ended since")
    return needed

"""What a set of cleanup policies deletes and keeps. Pure: the same input, the same answer.

The semantics are Artifact Registry's: KEEP wins over DELETE, a version that nothing matches
stays, the newest are counted per package, and a manifest stays as long as an index that
stays refers to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rayfleet.registry.policy import (
    Action,
    Condition,
    MostRecent,
    Policy,
    TagState,
    Version,
    short_duration,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether ``version`` goes, and the policies (or the index) that decided it."""

    version: Version
    delete: bool
    reason: str


def judge(
    policies: Sequence[Policy], versions: Sequence[Version], *, now: datetime
) -> tuple[Verdict, ...]:
    """One verdict per version, in the order given; ``now`` is an aware time."""
    ranks = _ranks(versions)
    verdicts = tuple(_verdict(policies, version, ranks, now) for version in versions)
    return _with_indexes_whole(verdicts)


def _verdict(
    policies: Sequence[Policy],
    version: Version,
    ranks: dict[tuple[str, str], int],
    now: datetime,
) -> Verdict:
    rank = ranks[version.package, version.digest]
    age = now - version.uploaded
    matching = [policy for policy in policies if _matches(policy, version, rank, age)]
    keeps = [policy.id for policy in matching if policy.action is Action.KEEP]
    deletes = [policy.id for policy in matching if policy.action is Action.DELETE]
    if keeps:
        return Verdict(version=version, delete=False, reason=f"kept by {', '.join(keeps)}")
    if deletes:
        seconds = timedelta(seconds=int(age.total_seconds()))
        reason = f"deleted by {', '.join(deletes)}: {_age(seconds)} old, number {rank + 1}"
        return Verdict(version=version, delete=True, reason=reason)
    return Verdict(version=version, delete=False, reason="no policy matches")


def _matches(policy: Policy, version: Version, rank: int, age: timedelta) -> bool:
    match policy.rule:
        case Condition() as condition:
            return _holds(condition, version, age)
        case MostRecent() as recent:
            named = _starts(version.package, recent.package_name_prefixes)
            # The API allows it with KEEP only; anything else must not delete.
            return policy.action is Action.KEEP and named and rank < recent.keep_count
        case None:
            return False


def _holds(condition: Condition, version: Version, age: timedelta) -> bool:
    if condition.tag_state is TagState.TAGGED and not version.tags:
        return False
    if condition.tag_state is TagState.UNTAGGED and version.tags:
        return False
    if condition.tag_prefixes and not any(
        _starts(tag, condition.tag_prefixes) for tag in version.tags
    ):
        return False
    if condition.older_than is not None and age <= condition.older_than:
        return False
    if condition.newer_than is not None and age >= condition.newer_than:
        return False
    return _starts(version.digest, condition.version_name_prefixes) and _starts(
        version.package, condition.package_name_prefixes
    )


def _starts(name: str, prefixes: tuple[str, ...]) -> bool:
    return not prefixes or name.startswith(prefixes)


def _ranks(versions: Sequence[Version]) -> dict[tuple[str, str], int]:
    """0 for the newest version of its package; the digest settles equal times."""
    packages: dict[str, list[Version]] = defaultdict(list)
    for version in versions:
        packages[version.package].append(version)
    ranks: dict[tuple[str, str], int] = {}
    for package, members in packages.items():
        newest_first = sorted(members, key=lambda each: (each.uploaded, each.digest), reverse=True)
        ranks.update({(package, each.digest): rank for rank, each in enumerate(newest_first)})
    return ranks


def _with_indexes_whole(verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Spare the children of every index that stays, theirs included."""
    held: dict[tuple[str, str], str] = {}
    waiting = [verdict.version for verdict in verdicts if not verdict.delete]
    by_key = {(each.version.package, each.version.digest): each.version for each in verdicts}
    while waiting:
        parent = waiting.pop()
        for digest in parent.children:
            key = (parent.package, digest)
            if key in by_key and key not in held:
                held[key] = parent.digest
                waiting.append(by_key[key])
    return tuple(_spared(verdict, held) for verdict in verdicts)


def _spared(verdict: Verdict, held: dict[tuple[str, str], str]) -> Verdict:
    parent = held.get((verdict.version.package, verdict.version.digest))
    if parent is None or not verdict.delete:
        return verdict
    return Verdict(version=verdict.version, delete=False, reason=f"kept by the index {parent}")


def _age(age: timedelta) -> str:
    return f"{age.days}d" if age.days else short_duration(age)

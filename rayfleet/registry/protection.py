"""The KEEP rules that protect images in use, however many there are. Pure.

A version's name is its digest, so a rule that keeps version names keeps images whatever their
tags do. What is needed by a tag alone gets a rule for that tag as well, which follows the tag.

What is needed no more is kept for some days still: another operator's checkout, which nobody can
ask, may know better.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

from rayfleet.registry.policy import Action, Condition, Policy, TagState, Version

PREFIXES = 100
"""Prefixes in one rule. The API documents no limit; a request of ten such rules has 80 kB."""

EVERYTHING = "sha256:"
GRACE = timedelta(days=7)
MOST_GRACES = 2
"""Rules for what is needed no more: with more, releases would use up the policies there may be."""

_GRACE_ID = re.compile(r"keep-until-(\d{4})(\d\d)(\d\d)")
_ID = re.compile(r"keep-in-use-(?:\d+|tags)")


def protection(digests: Iterable[str], tags: Iterable[str], *, room: int) -> tuple[Policy, ...]:
    """At most ``room`` rules that keep all of ``digests`` and ``tags`` (or prefixes of them).

    Where they do not fit, prefixes become shorter: then more is kept than is needed, never less.

    Raises:
        ValueError: ``room`` is less than :func:`least_room`.
    """
    wanted, named = sorted(set(digests)), sorted(set(tags))
    if room < least_room(wanted, named):
        raise ValueError(f"{room} rules are too few")
    rules = []
    if wanted:
        most = (room - bool(named)) * PREFIXES
        chunks = _chunks(_fitting(wanted, most, shortest=len(EVERYTHING)))
        rules += [
            _rule(f"keep-in-use-{number}", Condition(version_name_prefixes=chunk))
            for number, chunk in enumerate(chunks, 1)
        ]
    if named:
        prefixes = _fitting(named, PREFIXES, shortest=1)
        tagged = Condition(tag_state=TagState.TAGGED, tag_prefixes=prefixes)
        rules.append(_rule("keep-in-use-tags", tagged))
    return tuple(rules)


def least_room(digests: Collection[str], tags: Collection[str]) -> int:
    """How many rules :func:`protection` needs at least."""
    return bool(digests) + bool(tags)


def is_our_name(name: str) -> bool:
    """True for an id that :func:`protection` gives; whoever else uses it loses it."""
    return _ID.fullmatch(name) is not None


def is_grace_name(name: str) -> bool:
    """True for an id that :func:`grace` gives; whoever else uses it loses it."""
    return _GRACE_ID.fullmatch(name) is not None


def is_protection(policy: Policy) -> bool:
    """True for a rule of the shape and name that :func:`protection` gives."""
    match policy.rule:
        case Condition() as rule if policy.action is Action.KEEP and is_our_name(policy.id):
            return rule in (
                Condition(version_name_prefixes=rule.version_name_prefixes),
                Condition(tag_state=TagState.TAGGED, tag_prefixes=rule.tag_prefixes),
            )
    return False


def protected(policies: Iterable[Policy]) -> tuple[frozenset[str], frozenset[str]]:
    """The prefixes of digests and of tags that our rules among ``policies`` keep."""
    digests: set[str] = set()
    tags: set[str] = set()
    for policy in policies:
        if isinstance(policy.rule, Condition) and is_protection(policy):
            digests.update(policy.rule.version_name_prefixes)
            tags.update(policy.rule.tag_prefixes)
    return frozenset(digests), frozenset(tags)


def grace(
    found: Iterable[Policy], versions: Iterable[Version], needed: frozenset[str], *, now: datetime
) -> tuple[Policy, ...]:
    """The rules for those of ``versions`` that our rules among ``found`` protect, or spare still,
    although they are not among the digests ``needed`` any more.

    There are :data:`MOST_GRACES` at most; the older one runs out, the newer one may be prolonged.
    """
    policies = tuple(found)
    today = now.astimezone(UTC).date()
    rules = {
        policy.id: set(policy.rule.version_name_prefixes)
        for policy in sorted(policies, key=lambda each: each.id)
        if isinstance(policy.rule, Condition) and (end := grace_end(policy)) and end >= today
    }
    digests, tags = (tuple(each) for each in protected(policies))
    spared = tuple(prefix for prefixes in rules.values() for prefix in prefixes)
    dropped = {
        version.digest
        for version in versions
        if version.digest.startswith(digests) or any(tag.startswith(tags) for tag in version.tags)
        if version.digest not in needed and not version.digest.startswith(spared)
    }
    if dropped:
        name = f"keep-until-{today + GRACE:%Y%m%d}"
        if name not in rules and len(rules) == MOST_GRACES:
            dropped |= rules.pop(max(rules))
        rules[name] = rules.get(name, set()) | dropped
    shortest = len(EVERYTHING)
    return tuple(
        _rule(
            name,
            Condition(
                version_name_prefixes=_fitting(sorted(prefixes), PREFIXES, shortest=shortest)
            ),
        )
        for name, prefixes in rules.items()
    )


def grace_end(policy: Policy) -> date | None:
    """The last day of a rule that :func:`grace` gave; None for any other."""
    match = _GRACE_ID.fullmatch(policy.id)
    rule = policy.rule
    if match is None or policy.action is not Action.KEEP or not isinstance(rule, Condition):
        return None
    # Without a prefix it would keep everything.
    prefixes = rule.version_name_prefixes
    if not prefixes or rule != Condition(version_name_prefixes=prefixes):
        return None
    try:
        return date(*map(int, match.groups()))
    except ValueError:
        return None


def _rule(name: str, condition: Condition) -> Policy:
    return Policy(id=name, action=Action.KEEP, rule=condition)


def _fitting(names: Sequence[str], most: int, *, shortest: int) -> tuple[str, ...]:
    """Prefixes that cover all ``names``, as long as they can be for ``most`` of them."""
    for length in range(max(map(len, names)), shortest, -1):
        prefixes = _distinct(name[:length] for name in names)
        if len(prefixes) <= most:
            return prefixes
    return _distinct(name[:shortest] for name in names)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """``names`` without those that begin with another one, sorted."""
    found: list[str] = []
    for name in sorted(set(names)):
        # In this order the only one that can cover it is the last that was taken.
        if not (found and name.startswith(found[-1])):
            found.append(name)
    return tuple(found)


def _chunks(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return (names[at : at + PREFIXES] for at in range(0, len(names), PREFIXES))

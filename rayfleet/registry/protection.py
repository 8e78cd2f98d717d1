"""The KEEP rules that protect images in use, however many there are. Pure.

A version's name is its digest, so a rule that keeps version names keeps images whatever their
tags do. What is needed by a tag alone gets a rule for that tag as well, which follows the tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rayfleet.registry.policy import Action, Condition, Policy, TagState

PREFIXES = 100
"""Prefixes in one rule. The API documents no limit; a request of ten such rules has 80 kB."""

EVERYTHING = "sha256:"
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


def least_room(digests: Sequence[str], tags: Sequence[str]) -> int:
    """How many rules :func:`protection` needs at least."""
    return bool(digests) + bool(tags)


def is_our_name(name: str) -> bool:
    """True for an id that :func:`protection` gives; whoever else uses it loses it."""
    return _ID.fullmatch(name) is not None


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

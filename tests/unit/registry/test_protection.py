"""Rules for any number of images, within the API's limits."""

from __future__ import annotations

import hashlib

import pytest

from rayfleet.registry.policy import Action, Condition, Policy, TagState
from rayfleet.registry.protection import PREFIXES, is_protection, protected, protection

DIGESTS = [f"sha256:{hashlib.sha256(str(n).encode()).hexdigest()}" for n in range(5000)]


def covered(rules: tuple[Policy, ...], name: str) -> bool:
    digests, tags = protected(rules)
    return name.startswith(tuple(digests | tags))


@pytest.mark.parametrize("count", [0, 1, PREFIXES, PREFIXES + 1, 800, 801, 5000])
@pytest.mark.parametrize("room", [1, 2, 8])
def test_any_number_of_digests_fits(count: int, room: int) -> None:
    rules = protection(DIGESTS[:count], [], room=room)
    assert len(rules) <= room
    assert all(is_protection(rule) for rule in rules)
    assert all(covered(rules, digest) for digest in DIGESTS[:count])
    for rule in rules:
        assert isinstance(rule.rule, Condition)
        assert 0 < len(rule.rule.version_name_prefixes) <= PREFIXES
        assert min(map(len, rule.rule.version_name_prefixes)) >= len("sha256:")


def test_digests_are_whole_as_long_as_they_fit() -> None:
    (rule,) = protection(DIGESTS[:PREFIXES], [], room=3)
    assert rule.rule == Condition(version_name_prefixes=tuple(sorted(DIGESTS[:PREFIXES])))
    assert rule.action is Action.KEEP


def test_what_does_not_fit_is_kept_by_the_longest_prefixes_that_do() -> None:
    kept, _ = protected(protection(DIGESTS[:801], [], room=8))
    (length,) = {len(prefix) for prefix in kept}
    assert len(kept) <= 8 * PREFIXES < len({digest[: length + 1] for digest in DIGESTS[:801]})


def test_tags_have_a_rule_of_their_own_which_follows_them() -> None:
    digests, tags = protection(DIGESTS[:2], ["v1", "20251209", "v1.2"], room=2)
    assert digests.id == "keep-in-use-1"
    assert tags.id == "keep-in-use-tags"
    assert tags.rule == Condition(tag_state=TagState.TAGGED, tag_prefixes=("20251209", "v1"))
    many = [f"{name}-{number}" for number in range(500) for name in "abc"]
    (rule,) = protection([], many, room=1)
    assert isinstance(rule.rule, Condition)
    assert len(rule.rule.tag_prefixes) <= PREFIXES
    assert all(covered((rule,), tag) for tag in many)


def test_too_little_room_is_an_error_and_never_fewer_rules() -> None:
    with pytest.raises(ValueError, match="too few"):
        protection(DIGESTS[:1], ["v1"], room=1)
    assert protection([], [], room=0) == ()


@pytest.mark.parametrize(
    "policy",
    [
        Policy(id="keep-in-use-1", action=Action.DELETE, rule=Condition()),
        Policy(id="keep-in-use-mine", action=Action.KEEP, rule=Condition()),
        Policy(
            id="keep-in-use-1",
            action=Action.KEEP,
            rule=Condition(version_name_prefixes=("sha256:1",), package_name_prefixes=("a",)),
        ),
        Policy(id="keep-in-use-1", action=Action.KEEP, rule=None),
    ],
)
def test_rules_of_others_are_not_taken_for_ours(policy: Policy) -> None:
    assert not is_protection(policy)
    assert protected([policy]) == (frozenset(), frozenset())

"""What cleanup policies delete and keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.fleet.model import Cleanup
from rayfleet.registry.policy import (
    Action,
    Condition,
    MostRecent,
    Policy,
    TagState,
    Version,
    desired_policies,
)
from rayfleet.registry.retention import judge

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
AGED = Condition(older_than=timedelta(days=30))


def version(number: int, *, days: float, package: str = "app", tags: Sequence[str] = ()) -> Version:
    return Version(
        package=package,
        digest=f"sha256:{number:064x}",
        uploaded=NOW - timedelta(days=days),
        tags=tuple(tags),
    )


def delete(rule: Condition | MostRecent) -> Policy:
    return Policy(id="delete", action=Action.DELETE, rule=rule)


def keep(rule: Condition | MostRecent) -> Policy:
    return Policy(id="keep", action=Action.KEEP, rule=rule)


def deleted(policies: Sequence[Policy], versions: Sequence[Version]) -> set[Version]:
    return {each.version for each in judge(policies, versions, now=NOW) if each.delete}


versions_of_a_repository = st.lists(
    st.builds(
        version,
        st.integers(0, 10_000),
        days=st.floats(0, 90, allow_nan=False),
        package=st.sampled_from(["app", "app/sub", "vllm"]),
        tags=st.lists(st.sampled_from(["latest", "v1", "20260101"]), unique=True, max_size=2),
    ),
    unique_by=lambda each: (each.package, each.digest),
    max_size=30,
)
prefixes = st.lists(st.sampled_from(["app", "v", "late", "sha256:0"]), max_size=2).map(tuple)
ages = st.none() | st.integers(0, 90).map(lambda days: timedelta(days=days))
conditions = st.builds(
    Condition,
    tag_state=st.sampled_from(TagState),
    tag_prefixes=prefixes,
    version_name_prefixes=prefixes,
    package_name_prefixes=prefixes,
    older_than=ages,
    newer_than=ages,
)
keeps = st.builds(keep, conditions | st.builds(MostRecent, keep_count=st.integers(1, 20)))
deletes = st.builds(delete, conditions)


@given(versions_of_a_repository, st.integers(1, 60), st.integers(1, 12))
def test_our_pair_deletes_exactly_what_is_old_and_not_among_the_newest_of_its_package(
    versions: list[Version], days: int, count: int
) -> None:
    limit = timedelta(days=days)
    policies = desired_policies(Cleanup(delete_older_than=limit, keep_most_recent=count))
    gone = deleted(policies, versions)
    for each in versions:
        newer = [
            other
            for other in versions
            if other.package == each.package
            and (other.uploaded, other.digest) > (each.uploaded, each.digest)
        ]
        assert (each in gone) == (len(newer) >= count and NOW - each.uploaded > limit)


@given(versions_of_a_repository, st.lists(deletes, max_size=3), keeps, st.integers(0, 3))
def test_a_keep_wins_over_every_delete_in_any_order(
    versions: list[Version], others: list[Policy], kept: Policy, at: int
) -> None:
    spared = {
        each.version
        for each in judge([kept], versions, now=NOW)
        if each.reason.startswith("kept by")
    }
    policies = [*others[:at], kept, *others[at:]]
    assert not deleted(policies, versions) & spared


@given(versions_of_a_repository, st.lists(keeps, max_size=3))
def test_without_a_delete_nothing_goes(versions: list[Version], policies: list[Policy]) -> None:
    assert deleted(policies, versions) == set()


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        (Condition(), {1, 2, 3}),
        (AGED, {1, 2}),
        (Condition(newer_than=timedelta(days=30)), {3}),
        (Condition(tag_state=TagState.TAGGED), {2, 3}),
        (Condition(tag_state=TagState.UNTAGGED), {1}),
        (Condition(tag_prefixes=("v",)), {3}),
        (Condition(package_name_prefixes=("vl", "x")), {3}),
        (Condition(version_name_prefixes=(f"sha256:{1:064x}",)), {1}),
        (replace(AGED, tag_state=TagState.TAGGED), {2}),
        (replace(AGED, newer_than=timedelta(days=35)), {2}),
    ],
)
def test_each_part_of_a_condition_narrows_it(condition: Condition, numbers: set[int]) -> None:
    versions = [
        version(1, days=40),
        version(2, days=31, tags=["latest"]),
        version(3, days=29, package="vllm", tags=["v1", "old"]),
    ]
    gone = deleted([delete(condition)], versions)
    assert {int(each.digest.removeprefix("sha256:"), 16) for each in gone} == numbers


def test_a_child_stays_as_long_as_its_index() -> None:
    child = version(1, days=40)
    index = replace(version(2, days=1), children=(child.digest,))
    assert deleted([delete(AGED)], [child, index]) == set()
    old = replace(index, uploaded=child.uploaded)
    assert deleted([delete(AGED)], [child, old]) == {child, old}


def test_a_most_recent_rule_never_deletes() -> None:
    assert deleted([delete(MostRecent(keep_count=5))], [version(1, days=99)]) == set()


def test_the_reason_names_the_policy_the_age_and_the_place() -> None:
    newest, old = version(2, days=1), version(1, days=31.5)
    policies = desired_policies(Cleanup(keep_most_recent=1))
    first, second = judge(policies, [newest, old], now=NOW)
    assert first.reason == "kept by keep-1"
    assert second.reason == "deleted by delete-older-than-30d: 31d old, number 2"

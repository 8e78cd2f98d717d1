"""No policy that is computed from any state of a fleet deletes an image that is in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from rayfleet.errors import ToolFailed
from rayfleet.fleet.model import Cleanup
from rayfleet.registry.client import Place, Repository
from rayfleet.registry.plan import CleanupPlan, plan_cleanup
from rayfleet.registry.policy import (
    MAX_POLICIES,
    Action,
    Condition,
    MostRecent,
    Policy,
    TagState,
    Version,
    desired_policies,
)
from rayfleet.registry.protection import protection
from rayfleet.registry.retention import judge
from rayfleet.registry.uses import Kind, Unknown, Use, Uses
from tests.unit.registry.model import documented_deletions, without_mercy

STATES = 10_000
PARTS = 8  # of the states, so that several processes can share them
HERE = Place(project="p", region="us-east5", repository="marin")
ELSEWHERE = "europe-west4"
START = datetime(2026, 1, 1, tzinfo=UTC)
PACKAGES = ("app", "app/sub", "vllm")
TAGS = ("latest", "v1", "v1.2", "20260101", "6e804a10", "l")


@dataclass(frozen=True, kw_only=True)
class State:
    """A repository and those who need its images: ``secret`` ones cannot be asked."""

    now: datetime
    versions: tuple[Version, ...]
    found: Repository | None
    uses: Uses
    secret: tuple[Use, ...]
    cleanup: Cleanup
    rehearse: bool | None

    @property
    def truth(self) -> Uses:
        return Uses(known=(*self.uses.known, *self.secret)).at(HERE)


def a_digest(random: Random) -> str:
    # Few first digits, so that prefixes are shared.
    return f"sha256:{random.choice('01')}{random.getrandbits(252):063x}"


def some_versions(random: Random, now: datetime) -> tuple[Version, ...]:
    found: list[Version] = []
    free = {package: list(TAGS) for package in PACKAGES}
    for _ in range(random.randrange(14)):
        package = random.choice(PACKAGES)
        tags = [t for t in free[package] if random.random() < 0.25]
        free[package] = [tag for tag in free[package] if tag not in tags]
        own = [each.digest for each in found if each.package == package]
        children = random.sample(own, min(len(own), 2)) if random.random() < 0.2 else []
        # A promoted image has the same digest in another package.
        known = [each.digest for each in found if each.package != package]
        shared = random.random() < 0.15 and known
        digest = random.choice(known) if shared else a_digest(random)
        if digest in own:
            continue
        found.append(
            Version(
                package=package,
                digest=digest,
                uploaded=now - timedelta(days=random.choice((0, 1, 29, 30, 31, 90, 400))),
                tags=tuple(tags),
                children=tuple(children),
            )
        )
    return tuple(found)


def some_use(random: Random, versions: Sequence[Version]) -> Use:
    version = random.choice(versions) if versions and random.random() < 0.9 else None
    by_tag = version is None or (bool(version.tags) and random.random() < 0.3)
    tag = random.choice(version.tags if version and version.tags else TAGS)
    return Use(
        by=f"somebody {random.random()}",
        kind=random.choice(tuple(Kind)),
        digest="" if by_tag or version is None else version.digest,
        tag=tag if by_tag else "",
        region=random.choice((HERE.region, "", ELSEWHERE)),
        repository=random.choice((HERE.repository, "")),
        package=random.choice((version.package if version else PACKAGES[0], "")),
    )


def some_condition(random: Random) -> Condition:
    state = random.choice(tuple(TagState))
    digits = ("sha256:0", "sha256:1", "sha256:")
    return Condition(
        tag_state=state,
        tag_prefixes=() if state is TagState.UNTAGGED else some(random, ("v", "latest", "2")),
        version_name_prefixes=some(random, digits),
        package_name_prefixes=some(random, ("app", "v")),
        older_than=random.choice((None, timedelta(days=1), timedelta(days=60))),
        newer_than=random.choice((None, None, timedelta(days=60))),
    )


def some(random: Random, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(value for value in values if random.random() < 0.2)


def some_policies(random: Random, versions: Sequence[Version], now: datetime) -> list[Policy]:
    """What earlier runs left and what others set."""
    found = list(desired_policies(Cleanup(keep_most_recent=3))) if random.random() < 0.6 else []
    digests = [v.digest for v in versions if random.random() < 0.3]
    found += protection(digests, some(random, TAGS), room=5)
    if random.random() < 0.3:
        day = now + timedelta(days=random.randrange(-3, 8))
        prefixes = tuple(digests[:2])
        rule = Condition(version_name_prefixes=prefixes)
        found.append(Policy(id=f"keep-until-{day:%Y%m%d}", action=Action.KEEP, rule=rule))
    for number in range(random.choice((0, 0, 1, 2, 7))):
        kind = random.random()
        if kind < 0.5:
            theirs = Policy(id="", action=Action.DELETE, rule=some_condition(random))
        elif kind < 0.7:
            theirs = Policy(id="", action=Action.KEEP, rule=some_condition(random))
        elif kind < 0.9:
            theirs = Policy(id="", action=Action.KEEP, rule=MostRecent(keep_count=2))
        else:
            theirs = Policy(id="", action=Action.DELETE, rule=None)
        found.append(replace(theirs, id=f"theirs-{number}"))
    return found[:MAX_POLICIES]


def some_state(random: Random) -> State:
    now = START + timedelta(days=random.randrange(1000))
    versions = some_versions(random, now)
    policies = tuple(some_policies(random, versions, now))
    secret = tuple(some_use(random, versions) for _ in range(random.choice((0, 0, 0, 1, 2))))
    # Somebody who cannot be asked is known by name and place only.
    secret = tuple(replace(each, region=HERE.region) for each in secret)
    unknown = tuple(Unknown(by=each.by, why="no answer", region=HERE.region) for each in secret)
    repository = Repository(place=HERE, policies=policies, policies_dry_run=random.random() < 0.2)
    return State(
        now=now,
        versions=versions if random.random() < 0.95 else (),
        found=repository if versions or random.random() < 0.5 else None,
        uses=Uses(
            known=tuple(some_use(random, versions) for _ in range(random.randrange(5))),
            unknown=unknown,
        ),
        secret=secret,
        cleanup=Cleanup(
            delete_older_than=timedelta(days=random.choice((1, 7, 30))),
            keep_most_recent=random.choice((1, 2, 16)),
        ),
        rehearse=random.choice((False, False, False, True, None)),
    )


def needed(truth: Uses, versions: Sequence[Version]) -> set[Version]:
    """What is in use, by the model's own reckoning: what a use names, and all below it."""
    found = {
        version
        for version in versions
        for use in truth.known
        if use.package in ("", version.package)
        and (use.digest == version.digest if use.digest else use.tag in version.tags)
    }
    while True:
        below = {
            version
            for parent in found
            for version in versions
            if version.package == parent.package and version.digest in parent.children
        }
        if below <= found:
            return found
        found |= below


def later(random: Random, state: State) -> tuple[datetime, tuple[Version, ...]]:
    """Some other time, and what was pushed until then."""
    days = random.choice((0, 0, 1, 40, 2000))
    now = state.now + timedelta(days=days)
    pushed = [
        Version(
            package=package,
            digest=a_digest(random),
            uploaded=state.now + timedelta(days=days * random.random()),
        )
        for package in PACKAGES
        for _ in range(random.choice((0, 3, 20)))
        if days
    ]
    return now, (*state.versions, *pushed)


def planned(state: State) -> CleanupPlan | None:
    """What the package makes of it; None where there is no room for the rules."""
    try:
        return plan_cleanup(
            HERE,
            desired_policies(state.cleanup),
            state.found,
            now=state.now,
            versions=state.versions,
            uses=state.uses,
            rehearse=state.rehearse,
        )
    except ToolFailed as error:
        if "would have" not in error.what:
            raise
        return None


@pytest.mark.parametrize("part", range(PARTS))
def test_of_ten_thousand_states_none_loses_an_image_in_use(part: int) -> None:
    plans = [check(number) for number in range(part, STATES, PARTS)]
    assert 0 < plans.count(None) < len(plans) / 5
    assert sum(plan is not None and plan.cautious for plan in plans) > len(plans) / 20


def check(number: int) -> CleanupPlan | None:
    random = Random(number)  # noqa: S311
    state = some_state(random)
    plan = planned(state)
    if plan is None:
        return None
    assert len(plan.after) <= MAX_POLICIES
    assert len({policy.id for policy in plan.after}) == len(plan.after), number
    if plan.dry_run:
        return plan  # nothing is deleted
    now, versions = later(random, state)
    gone = without_mercy(plan.after, versions, now=now)
    assert not gone & needed(state.uses.at(HERE), versions), number
    if plan.cautious:
        assert state.found is not None
        before = without_mercy(state.found.policies, versions, now=now)
        assert gone <= before, f"{number}: more goes although somebody was not asked"
    else:
        assert not gone & needed(state.truth, versions), number
    return plan


@pytest.mark.parametrize("part", range(PARTS))
def test_the_judge_says_what_the_documentation_says(part: int) -> None:
    for number in range(part, STATES // 2, PARTS):
        random = Random(number)  # noqa: S311
        state = some_state(random)
        policies = some_policies(random, state.versions, state.now)
        judged = judge(policies, state.versions, now=state.now)
        gone = {each.version for each in judged if each.delete}
        assert gone == documented_deletions(policies, state.versions, now=state.now), number

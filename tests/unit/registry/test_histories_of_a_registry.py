"""A registry over months: releases, rollbacks, heads of any age, cleanups by several operators."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from rayfleet.fleet.model import Cleanup
from rayfleet.registry.client import Place, Repository
from rayfleet.registry.plan import CleanupPlan, plan_cleanup, plan_growth
from rayfleet.registry.policy import Policy, Version, desired_policies
from rayfleet.registry.protection import GRACE
from rayfleet.registry.uses import Kind, Unknown, Use, Uses
from tests.unit.registry.model import without_mercy

HERE = Place(project="p", region="us-east5", repository="marin")
STALE = GRACE - timedelta(days=1)
"""How old another operator's checkout may be."""

HISTORIES = 120
STEPS = 60


@dataclass
class World:
    """One region. ``pins`` has (current, previous) since when; ``heads`` what runs where."""

    random: Random
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    versions: tuple[Version, ...] = ()
    policies: tuple[Policy, ...] = ()
    pins: list[tuple[datetime, str, str]] = field(default_factory=list)
    heads: dict[str, str] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    kept_old: int = 0

    def act(self) -> None:
        """Something happens."""
        weights = {
            self.release: 4,
            self.promote: 2,
            self.roll_back: 1,
            self.start: 4,
            self.stop: 1,
            self.fall_silent: 1,
            self.answer_again: 2,
            self.clean_up: 3,
            self.pass_days: 6,
        }
        self.random.choices(list(weights), list(weights.values()))[0]()

    def release(self) -> None:
        digest = f"sha256:{self.random.getrandbits(256):064x}"
        fresh = Version(package="app", digest=digest, uploaded=self.now)
        self.versions = (*self.versions, fresh)
        self.pin(digest)

    def promote(self) -> None:
        """Any image that is there, however old."""
        if self.versions:
            self.pin(self.random.choice(self.versions).digest)

    def roll_back(self) -> None:
        if self.pins and self.pins[-1][2]:
            self.pin(self.pins[-1][2])

    def pin(self, digest: str) -> None:
        old = self.pins[-1][1] if self.pins else ""
        named = frozenset(each for each in (digest, old) if each)
        self.apply(plan_growth(HERE, self.repository, named, frozenset()))
        self.pins.append((self.now, digest, old))

    def start(self) -> None:
        if self.pins:
            self.heads[self.random.choice("abc")] = self.pins[-1][1]

    def stop(self) -> None:
        self.heads.pop(self.random.choice("abc"), None)

    def fall_silent(self) -> None:
        self.silent.add(self.random.choice("abc"))

    def answer_again(self) -> None:
        self.silent.clear()

    def clean_up(self) -> None:
        """By an operator whose checkout may be some days old."""
        seen = self.now - self.random.choice((timedelta(), STALE))
        pins = [pin for pin in self.pins if pin[0] <= seen]
        named = (*pins[-1][1:],) if pins else ()
        known = [Use(by="a pin", kind=Kind.PIN, digest=each) for each in named if each]
        unknown = [Unknown(by=name, why="silent") for name in self.heads if name in self.silent]
        known += [
            Use(by=name, kind=Kind.NODE, digest=digest)
            for name, digest in self.heads.items()
            if name not in self.silent
        ]
        self.apply(
            plan_cleanup(
                HERE,
                desired_policies(Cleanup(keep_most_recent=3)),
                self.repository,
                now=self.now,
                versions=self.versions,
                uses=Uses(known=tuple(known), unknown=tuple(unknown)),
            )
        )

    def pass_days(self) -> None:
        """A sweep a day, as Google's."""
        for _ in range(self.random.randrange(1, 15)):
            self.now += timedelta(days=1)
            gone = without_mercy(self.policies, self.versions, now=self.now)
            assert not {each.digest for each in gone} & self.in_use()
            self.versions = tuple(each for each in self.versions if each not in gone)
        old = {v.digest for v in self.versions if self.now - v.uploaded > timedelta(days=31)}
        self.kept_old += len(old & self.in_use())

    def in_use(self) -> set[str]:
        return {*self.heads.values(), *(self.pins[-1][1:] if self.pins else ())} - {""}

    @property
    def repository(self) -> Repository:
        return Repository(place=HERE, policies=self.policies)

    def apply(self, plan: CleanupPlan) -> None:
        there = {p.id: p for p in self.policies if p.id not in plan.replaced}
        self.policies = tuple({**there, **{p.id: p for p in plan.policies}}.values())
        assert set(self.policies) == set(plan.after)


@pytest.mark.parametrize("seed", range(4))
def test_over_months_nothing_in_use_goes_and_what_nobody_needs_does(seed: int) -> None:
    kept = left = made = 0
    for number in range(seed, HISTORIES, 4):
        world = World(Random(number))  # noqa: S311
        for _ in range(STEPS):
            world.act()
        kept += world.kept_old
        # In the end, with everybody there, nothing stays that has no reason to.
        world.silent.clear()
        world.heads.clear()
        made += len(world.versions)
        for _ in range(3):
            world.clean_up()
            world.now += GRACE + timedelta(days=1)
        world.now += timedelta(days=40)
        world.clean_up()
        gone = without_mercy(world.policies, world.versions, now=world.now)
        left += len(world.versions) - len(gone)
    assert kept > HISTORIES / 4, "no old image was ever in use"
    assert left <= HISTORIES / 4 * 5, "three of the newest and two pins"
    assert made > left


def test_what_is_needed_no_more_is_spared_for_a_week() -> None:
    world = World(Random(0))  # noqa: S311
    for _ in range(3):
        world.release()
    world.heads = {"a": world.versions[0].digest}
    world.clean_up()
    world.heads = {}
    world.clean_up()
    first = {policy.id for policy in world.policies}
    assert "keep-until-20260108" in first
    world.clean_up()
    assert {policy.id for policy in world.policies} == first, "nothing is prolonged"
    world.now += GRACE + timedelta(days=1)
    world.clean_up()
    assert not any(policy.id.startswith("keep-until") for policy in world.policies)


def test_many_releases_use_two_rules_of_grace_at_most() -> None:
    world = World(Random(0))  # noqa: S311
    for _ in range(20):
        world.release()
        world.heads = {"a": world.versions[-1].digest}
        world.clean_up()
        graces = [policy for policy in world.policies if policy.id.startswith("keep-until")]
        assert len(graces) <= 2
        world.now += timedelta(days=1)
    assert len(graces) == 2


def test_a_repository_only_rehearses_what_may_not_be_known() -> None:
    world = World(Random(0))  # noqa: S311
    world.release()
    unknown = Uses(unknown=(Unknown(by="a", why="silent"),))
    made = plan_cleanup(
        HERE,
        desired_policies(Cleanup()),
        replace(world.repository, policies=()),
        now=world.now,
        versions=world.versions,
        uses=unknown,
        rehearse=True,
    )
    assert (made.dry_run, made.cautious) == (True, False)
    assert {policy.id for policy in made.after} == {"delete-older-than-30d", "keep-16"}

"""What has to change so that a repository keeps what is in use and follows its policy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.registry.client import Place, Repository
from rayfleet.registry.policy import MAX_POLICIES, Action, Condition, Policy, Version, is_ours
from rayfleet.registry.protection import (
    grace,
    is_grace_name,
    is_our_name,
    is_protection,
    least_room,
    protected,
    protection,
)
from rayfleet.registry.repositories import check_usable
from rayfleet.registry.retention import judge
from rayfleet.registry.uses import Unknown, Uses

LATER = timedelta(days=36500)
"""Far enough for every age that a policy may name."""

SHOWN = 3


class Change(StrEnum):
    """What a plan does to a repository. PROTECT adds KEEP rules and leaves all else alone."""

    NONE = "unchanged"
    SET = "set"
    CREATE = "create"
    PROTECT = "protect"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """What makes one repository follow ``policies``.

    It was made from ``found``, None when there is no repository. ``replaced`` are ids of ours
    with other values, which go; ``others`` are policies that the plan does not touch, which stay.
    ``dry_run`` is whether the repository only rehearses its policies afterwards; ``goes_live``
    when it did before and does no more. ``unknown`` could not be asked what it needs of this
    repository; ``cautious`` when rules are only added for that.
    """

    place: Place
    change: Change
    policies: tuple[Policy, ...]
    found: Repository | None = None
    replaced: tuple[str, ...] = ()
    others: tuple[Policy, ...] = ()
    dry_run: bool = False
    goes_live: bool = False
    unknown: tuple[Unknown, ...] = ()
    cautious: bool = False

    @property
    def after(self) -> tuple[Policy, ...]:
        """All policies that the repository has once the plan is carried out."""
        return (*self.policies, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A version that ``users`` need and that policies delete, for ``reason``."""

    version: Version
    users: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        name = f"{self.version.package}@{self.version.digest}"
        return f"{name}, needed by {', '.join(self.users)}: {self.reason}"


def plan_cleanup(
    place: Place,
    desired: Sequence[Policy],
    found: Repository | None,
    *,
    now: datetime,
    versions: Sequence[Version] = (),
    uses: Uses | None = None,
    rehearse: bool | None = False,
) -> CleanupPlan:
    """What has to change so that ``found`` (None: there is no repository), which holds
    ``versions``, follows ``desired`` and keeps what ``uses`` says.

    ``rehearse`` None leaves it as it is whether policies only rehearse. Where something could
    not be asked what it needs, KEEP rules are added and nothing else changes, unless nothing is
    deleted anyway: ``rehearse`` is True, or the repository is empty.

    Raises:
        ToolFailed: the repository cannot hold images, would have too many policies, or would
            lose an image that is in use.
    """
    needs = (uses or Uses()).at(place)
    digests, tags = needs.needed(versions)
    if found is None:
        rules = _protection(place, digests, tags, desired, ())
        return CleanupPlan(
            place=place,
            change=Change.CREATE,
            policies=(*desired, *rules),
            dry_run=bool(rehearse),
            unknown=needs.unknown,
        )
    check_usable(found)
    dry_run = found.policies_dry_run if rehearse is None else rehearse
    if needs.unknown and versions and not dry_run:
        growth = plan_growth(place, found, digests, tags)
        growth = replace(growth, unknown=needs.unknown, cautious=True)
        return _guarded(growth, versions, needs, now)
    ids = {policy.id for policy in desired}
    others = tuple(policy for policy in found.policies if not _gives_way(policy, ids))
    spared = grace(found.policies, versions, digests, now=now)
    room = MAX_POLICIES - len(desired) - len(others) - len(spared)
    if room < least_room(digests, tags):
        # No room for a rule that ends some day: then without end.
        digests = digests.union(*(_prefixes(policy) for policy in spared))
        spared = ()
    rules = _protection(place, digests, tags, (*desired, *spared), others)
    plan = _plan(place, found, (*desired, *rules, *spared), others, dry_run=dry_run)
    return _guarded(replace(plan, unknown=needs.unknown), versions, needs, now)


def plan_growth(
    place: Place,
    found: Repository,
    digests: frozenset[str],
    tags: frozenset[str],
) -> CleanupPlan:
    """What has to change so that ``found`` keeps ``digests`` and ``tags`` as well; nothing that
    it keeps now is given up.

    Raises:
        ToolFailed: it would have too many policies.
    """
    others = tuple(p for p in found.policies if not is_our_name(p.id))
    old_digests, old_tags = protected(found.policies)
    # Names that a rule covers already change nothing, so that nobody writes for nothing.
    digests = frozenset(each for each in digests if not each.startswith(tuple(old_digests)))
    tags = frozenset(each for each in tags if not each.startswith(tuple(old_tags)))
    wanted = tuple(p for p in found.policies if is_protection(p))
    if digests or tags:
        wanted = _protection(place, old_digests | digests, old_tags | tags, (), others)
    plan = _plan(place, found, wanted, others, dry_run=found.policies_dry_run)
    change = Change.PROTECT if plan.change is Change.SET else plan.change
    return replace(plan, change=change)


def taken(
    policies: Sequence[Policy], versions: Sequence[Version], uses: Uses, *, now: datetime
) -> tuple[Taken, ...]:
    """The versions in use that ``policies`` delete at the time ``now``.

    A DELETE of a kind that is not known here is taken to match everything.
    """
    users = uses.users(versions)
    worst = [
        replace(each, rule=Condition())
        if each.rule is None and each.action is not Action.KEEP
        else each
        for each in policies
    ]
    return tuple(
        Taken(
            version=each.version,
            users=users[each.version.package, each.version.digest],
            reason=each.reason,
        )
        for each in judge(worst, versions, now=now)
        if each.delete and (each.version.package, each.version.digest) in users
    )


def not_asked(place: Place, unknown: Sequence[Unknown]) -> Unreachable:
    """The error that says why policies of ``place`` were not tightened."""
    names = "; ".join(map(str, unknown[:SHOWN]))
    more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
    return Unreachable(
        f"{place}: not all that may need its images could be asked",
        why=f"{names}{more}; its rules were only added to",
        next_step=next((each.next_step for each in unknown if each.next_step), ""),
    )


def in_danger(place: Place, found: Sequence[Taken], *, next_step: str) -> ToolFailed:
    """The error that says which images in use the policies of ``place`` take."""
    more = f"\n  and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    lines = "".join(f"\n  {each}" for each in found[:SHOWN])
    return ToolFailed(
        f"{place}: the cleanup policies delete what is in use",
        why=f"{lines}{more}",
        next_step=next_step,
    )


def alike(one: Policy, other: Policy) -> bool:
    """Whether two policies are the same, in whatever order they list prefixes."""
    return _sorted(one) == _sorted(other)


def _plan(
    place: Place,
    found: Repository,
    wanted: tuple[Policy, ...],
    others: tuple[Policy, ...],
    *,
    dry_run: bool,
) -> CleanupPlan:
    left = {policy.id for policy in others}
    targets = {policy.id: policy for policy in wanted}
    replaced = tuple(
        policy.id
        for policy in found.policies
        if policy.id not in left
        and not (policy.id in targets and alike(policy, targets[policy.id]))
    )
    there = {policy.id: policy for policy in found.policies}
    same = not replaced and all(
        name in there and alike(policy, there[name]) for name, policy in targets.items()
    )
    return CleanupPlan(
        place=place,
        change=Change.NONE if same and dry_run == found.policies_dry_run else Change.SET,
        policies=wanted,
        found=found,
        replaced=replaced,
        others=others,
        dry_run=dry_run,
        goes_live=found.policies_dry_run and not dry_run,
    )


def _protection(
    place: Place,
    digests: frozenset[str],
    tags: frozenset[str],
    ours: Sequence[Policy],
    others: Sequence[Policy],
) -> tuple[Policy, ...]:
    room = MAX_POLICIES - len(ours) - len(others)
    least = least_room(digests, tags)
    if room >= least:
        return protection(digests, tags, room=room)
    raise ToolFailed(
        f"{place.name} would have {len(ours) + len(others) + least} cleanup policies",
        why=f"{MAX_POLICIES} is the limit, the images in use need {least} at least, "
        f"and not ours are {', '.join(policy.id for policy in others)}",
        next_step="take some of those away with gcloud artifacts repositories "
        f"delete-cleanup-policies {place.repository} --location={place.region}",
    )


def _gives_way(policy: Policy, ids: set[str]) -> bool:
    """Whether a policy is ours, or stands under a name that ours need."""
    named = policy.id in ids or is_our_name(policy.id) or is_grace_name(policy.id)
    return named or is_ours(policy)


def _prefixes(policy: Policy) -> tuple[str, ...]:
    return policy.rule.version_name_prefixes if isinstance(policy.rule, Condition) else ()


def _guarded(
    plan: CleanupPlan, versions: Sequence[Version], needs: Uses, now: datetime
) -> CleanupPlan:
    """The second look: the rules are judged, not trusted."""
    for moment in (now, now + LATER):
        if found := taken(plan.after, versions, needs, now=moment):
            raise in_danger(plan.place, found, next_step="invoke registry.preview")
    return plan


def _sorted(policy: Policy) -> Policy:
    rule = policy.rule
    if not isinstance(rule, Condition):
        return policy
    ordered = replace(
        rule,
        tag_prefixes=tuple(sorted(rule.tag_prefixes)),
        version_name_prefixes=tuple(sorted(rule.version_name_prefixes)),
        package_name_prefixes=tuple(sorted(rule.package_name_prefixes)),
    )
    return replace(policy, rule=ordered)

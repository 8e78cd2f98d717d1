"""Cleanup policies of every region's repository: read, plan, apply, read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rayfleet.console import Console
from rayfleet.errors import ToolFailed
from rayfleet.fleet.model import Fleet
from rayfleet.registry.client import Place, Repositories, Repository, artifact_registry_client
from rayfleet.registry.policy import MAX_POLICIES, Policy, desired_policies, is_ours
from rayfleet.registry.regions import Outcome, everywhere, places, raise_failures
from rayfleet.registry.repositories import check_usable


class Change(StrEnum):
    """What a plan does to a repository."""

    NONE = "unchanged"
    SET = "set"
    CREATE = "create"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """What makes one repository follow ``policies``.

    ``replaced`` are ids of ours with other values, which go; ``foreign`` are policies that
    are not ours, which stay; ``goes_live`` when the repository only rehearsed its policies.
    """

    place: Place
    change: Change
    policies: tuple[Policy, ...]
    replaced: tuple[str, ...] = ()
    foreign: tuple[Policy, ...] = ()
    goes_live: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What came of every repository; ``applied`` is False for a dry run."""

    outcomes: tuple[Outcome[CleanupPlan], ...]
    applied: bool

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print one row or object per repository on stdout."""
        if as_json:
            console.json(self.as_data())
            return
        headers = ("REGION", "REPOSITORY", "CHANGE", "POLICIES", "REPLACED", "NOT OURS, KEPT")
        console.table(
            headers, [_as_row(outcome, applied=self.applied) for outcome in self.outcomes]
        )

    def as_data(self) -> list[dict[str, object]]:
        """One object per repository, as ``--json`` prints it."""
        return [_as_data(outcome, applied=self.applied) for outcome in self.outcomes]

    def raise_failures(self) -> None:
        """Raise if any repository failed.

        Raises:
            PartialFailure: some failed; the error of the first one if all did alike.
        """
        raise_failures(
            self.outcomes, what="the registry policy", next_step="invoke registry.cleanup"
        )


def plan_cleanup(place: Place, desired: Sequence[Policy], found: Repository | None) -> CleanupPlan:
    """What has to change so that ``found`` (None: there is no repository) follows ``desired``.

    Raises:
        ToolFailed: the repository cannot hold images, or would have too many policies.
    """
    wanted = tuple(desired)
    if found is None:
        return CleanupPlan(place=place, change=Change.CREATE, policies=wanted)
    check_usable(found)
    ids = {policy.id for policy in wanted}
    replaced = tuple(
        policy.id
        for policy in found.policies
        if policy not in wanted and (policy.id in ids or is_ours(policy))
    )
    foreign = tuple(
        policy for policy in found.policies if policy.id not in ids and policy.id not in replaced
    )
    _refuse_too_many(place, wanted, foreign)
    same = not replaced and all(policy in found.policies for policy in wanted)
    return CleanupPlan(
        place=place,
        change=Change.NONE if same and not found.policies_dry_run else Change.SET,
        policies=wanted,
        replaced=replaced,
        foreign=foreign,
        goes_live=found.policies_dry_run,
    )


def set_cleanup_policies(
    fleet: Fleet,
    *,
    console: Console,
    regions: Sequence[str] = (),
    dry_run: bool = False,
    api: Repositories | None = None,
) -> CleanupReport:
    """Make every repository of the fleet (in ``regions``, default all) follow its policy.

    A missing repository is created with it. ``dry_run`` only plans. A region's failure is in
    the report and stops no other.

    Raises:
        UsageError: a region that the fleet does not have.
        Unreachable: the sandbox is not up.
    """
    where = places(fleet, regions=regions)
    repositories = api or artifact_registry_client(fleet)
    desired = desired_policies(fleet.registries.cleanup)

    def one(place: Place) -> CleanupPlan:
        plan = plan_cleanup(place, desired, repositories.read(place))
        if not dry_run and plan.change is not Change.NONE:
            _apply(repositories, plan)
            console.event(f"{place}: policies {', '.join(p.id for p in plan.policies)} are set")
        return plan

    return CleanupReport(outcomes=everywhere(where, one), applied=not dry_run)


def _apply(repositories: Repositories, plan: CleanupPlan) -> None:
    created = plan.change is Change.CREATE and repositories.create(plan.place, plan.policies)
    if not created:
        repositories.set_policies(plan.place, plan.policies, replaced=plan.replaced)
    _verify(plan, repositories.read(plan.place))


def _verify(plan: CleanupPlan, found: Repository | None) -> None:
    after = plan_cleanup(plan.place, plan.policies, found)
    lost = [policy.id for policy in plan.foreign if policy not in after.foreign]
    if after.change is Change.NONE and not lost:
        return
    raise ToolFailed(
        f"the policies of {plan.place.name} read back differently from what was set",
        why=f"lost: {', '.join(lost)}" if lost else "someone else may have changed them meanwhile",
        next_step="invoke registry.cleanup",
    )


def _refuse_too_many(place: Place, wanted: Sequence[Policy], foreign: Sequence[Policy]) -> None:
    total = len(wanted) + len(foreign)
    if total <= MAX_POLICIES:
        return
    raise ToolFailed(
        f"{place.name} would have {total} cleanup policies",
        why=f"{MAX_POLICIES} is the limit; not ours are {', '.join(p.id for p in foreign)}",
        next_step="take some of those away with gcloud artifacts repositories "
        f"delete-cleanup-policies {place.repository} --location={place.region}",
    )


def _as_data(outcome: Outcome[CleanupPlan], *, applied: bool) -> dict[str, object]:
    place = {"region": outcome.place.region, "repository": outcome.place.repository}
    plan = outcome.value
    if plan is None:
        return {**place, "change": "failed", "error": outcome.error and outcome.error.what}
    return {
        **place,
        "change": plan.change.value,
        "applied": applied,
        "policies": [policy.id for policy in plan.policies],
        "replaced": list(plan.replaced),
        "foreign": [policy.id for policy in plan.foreign],
        "goes_live": plan.goes_live,
    }


def _as_row(outcome: Outcome[CleanupPlan], *, applied: bool) -> tuple[str, ...]:
    place = (outcome.place.region, outcome.place.repository)
    plan = outcome.value
    if plan is None:
        return (*place, "failed", outcome.error.what if outcome.error else "", "", "")
    change = plan.change.value
    if plan.change is not Change.NONE:
        change = f"{change}: done" if applied else f"would {change}"
    if plan.goes_live:
        change += ", leaves dry run"
    policies = "\n".join(str(policy) for policy in plan.policies)
    return (*place, change, policies, ", ".join(plan.replaced), "\n".join(map(str, plan.foreign)))

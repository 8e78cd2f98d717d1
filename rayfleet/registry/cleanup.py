"""Cleanup policies of every region's repository: read, plan, apply, read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from rayfleet.console import Console
from rayfleet.errors import Locked, ToolFailed
from rayfleet.fleet.model import Fleet
from rayfleet.registry.client import Place, Repositories, Repository, artifact_registry_client
from rayfleet.registry.plan import Change, CleanupPlan, alike, not_asked, plan_cleanup
from rayfleet.registry.policy import desired_policies
from rayfleet.registry.regions import Outcome, everywhere, places, raise_failures
from rayfleet.registry.uses import Uses

TRIES = 5
"""How often a plan is made where others change the policies at the same time."""


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
        headers = ("REGION", "REPOSITORY", "CHANGE", "POLICIES", "REPLACED", "LEFT ALONE")
        console.table(
            headers, [_as_row(outcome, applied=self.applied) for outcome in self.outcomes]
        )

    def as_data(self) -> list[dict[str, object]]:
        """One object per repository, as ``--json`` prints it."""
        return [_as_data(outcome, applied=self.applied) for outcome in self.outcomes]

    def not_asked(self) -> tuple[Outcome[CleanupPlan], ...]:
        """The repositories whose rules were only added to, with the reason."""
        return tuple(
            Outcome(place=each.place, error=not_asked(each.place, each.value.unknown))
            for each in self.outcomes
            if each.value is not None and each.value.cautious
        )

    def raise_failures(self, *, strict: bool = True) -> None:
        """Raise if any repository failed; with ``strict`` also where something could not be asked
        what it needs, so that rules were only added.

        Raises:
            PartialFailure: some failed; the error of the first one if all did alike.
        """
        unsure = {each.place: each for each in (self.not_asked() if strict else ())}
        raise_failures(
            [unsure.get(each.place, each) for each in self.outcomes],
            what="the registry policy",
            next_step="invoke registry.preview",
        )


def set_cleanup_policies(
    fleet: Fleet,
    *,
    console: Console,
    uses: Uses,
    regions: Sequence[str] = (),
    dry_run: bool = False,
    rehearse: bool | None = False,
    api: Repositories | None = None,
) -> CleanupReport:
    """Make every repository of the fleet (in ``regions``, default all) follow its policy and
    keep what ``uses`` says.

    A missing repository is created with it. Where somebody else changes policies meanwhile, it is
    planned again from what they are then. ``dry_run`` only plans. With ``rehearse`` the API
    deletes nothing; None leaves that as it is. A region's failure is in the report and stops no
    other.

    Raises:
        UsageError: a region that the fleet does not have.
        Unreachable: the sandbox is not up.
    """
    where = places(fleet, regions=regions)
    repositories = api or artifact_registry_client(fleet)
    desired = desired_policies(fleet.registries.cleanup)

    def plan_of(place: Place, found: Repository | None) -> CleanupPlan:
        return plan_cleanup(
            place,
            desired,
            found,
            now=datetime.now(UTC),
            versions=repositories.versions(place) if found else (),
            uses=uses,
            rehearse=rehearse,
        )

    def one(place: Place) -> CleanupPlan:
        if dry_run:
            return plan_of(place, repositories.read(place))
        plan = carry_out(repositories, place, partial(plan_of, place))
        if plan.change is not Change.NONE:
            ids = ", ".join(policy.id for policy in plan.policies)
            console.event(f"{place}: policies {ids} are set" + _rehearsed(plan))
        return plan

    return CleanupReport(outcomes=everywhere(where, one), applied=not dry_run)


def carry_out(
    repositories: Repositories, place: Place, plan_of: Callable[[Repository | None], CleanupPlan]
) -> CleanupPlan:
    """Do what ``plan_of`` makes of the repository as it is, and read it back; returns that plan.

    A plan is written only over what it was made from: another operator's rule may be what keeps
    the image of a cluster. Where that has changed, there is another plan.

    Raises:
        ToolFailed: the API refuses, or says something else afterwards.
        Unreachable: it does not answer.
        Locked: the policies were changed by others before each write.
    """
    for _ in range(TRIES):
        plan = plan_of(repositories.read(place))
        if plan.change is Change.NONE or _written(repositories, plan):
            return plan
    raise Locked(
        f"the policies of {place.name} change again and again",
        why=f"others changed them before each of {TRIES} attempts to write",
        next_step="run the same command again when they have finished",
    )


def _written(repositories: Repositories, plan: CleanupPlan) -> bool:
    """False if the repository is not any more what ``plan`` was made from."""
    place, dry_run = plan.place, plan.dry_run
    if plan.found is None:
        written = repositories.create(place, plan.policies, dry_run=dry_run)
    else:
        written = repositories.set_policies(
            place, plan.policies, found=plan.found, replaced=plan.replaced, dry_run=dry_run
        )
    if written:
        _verify(plan, repositories.read(place))
    return written


def _verify(plan: CleanupPlan, found: Repository | None) -> None:
    there = {policy.id: policy for policy in found.policies} if found else {}
    wrong = [p.id for p in plan.after if p.id not in there or not alike(p, there[p.id])]
    wanted = {policy.id for policy in plan.after}
    wrong += [name for name in plan.replaced if name in there and name not in wanted]
    if found is not None and found.policies_dry_run != plan.dry_run:
        wrong.append("cleanup_policy_dry_run")
    if found is None or wrong:
        raise ToolFailed(
            f"the policies of {plan.place.name} read back differently from what was set",
            why=f"it differs in {', '.join(wrong)}; someone else may have changed it meanwhile"
            if wrong
            else "the repository is gone",
            next_step="invoke registry.cleanup",
        )


def _rehearsed(plan: CleanupPlan) -> str:
    return " (a rehearsal: nothing is deleted)" if plan.dry_run else ""


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
        "foreign": [policy.id for policy in plan.others],
        "dry_run": plan.dry_run,
        "goes_live": plan.goes_live,
        "not_asked": [str(each) for each in plan.unknown],
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
    elif plan.dry_run:
        change += ", dry run"
    policies = "\n".join(str(policy) for policy in plan.policies)
    return (*place, change, policies, ", ".join(plan.replaced), "\n".join(map(str, plan.others)))

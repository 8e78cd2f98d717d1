"""A pin is about to move: the images that it will name are protected first.

Rules are only added here, for which no cluster has to be asked; what is no longer needed loses its
rule at the next ``registry.cleanup``, which asks them all.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rayfleet.console import Console
from rayfleet.errors import RayfleetError
from rayfleet.fleet.model import Fleet, Pin
from rayfleet.fleet.pins import read_histories
from rayfleet.registry.cleanup import carry_out
from rayfleet.registry.client import Place, Repositories, Repository, artifact_registry_client
from rayfleet.registry.plan import Change, CleanupPlan, in_danger, plan_growth, taken
from rayfleet.registry.policy import Action, Policy, Version
from rayfleet.registry.regions import everywhere, places, raise_failures
from rayfleet.registry.uses import Kind, Use, Uses


def protect_pin(
    fleet: Fleet,
    family: str,
    pin: Pin,
    *,
    console: Console,
    strict: bool = False,
    now: datetime | None = None,
    api: Repositories | None = None,
) -> None:
    """Let every region keep what LATEST of ``family`` will name once ``pin`` is written: it, and
    what it replaces, which a rollback goes back to.

    A repository that deletes nothing needs no rule. Where the rules could not be set, that is an
    error with ``strict``: the image may be old enough to go any day. Without, for an image that
    was just built, it is said, and it is an error only if the image would go at the next sweep:
    an operator without the right to set policies may publish.

    Raises:
        ToolFailed: policies that are in force delete the image, and could not be changed; or,
            with ``strict``, the API refuses.
        Unreachable: with ``strict``: the API does not answer.
        PartialFailure: this is so in some regions.
        UsageError: the pin file is broken.
    """
    uses = pin_uses(fleet, family, pin)
    moment = now or datetime.now(UTC)
    where = places(fleet, families=(fleet.images[family],))
    try:
        repositories = api or artifact_registry_client(fleet)
    except RayfleetError as error:
        if strict:
            raise _not_protected(f"{family}:{pin.tag}", error) from error
        console.say(f"not protected from cleanup policies: {error.what}; {_LATER}")
        return

    def one(place: Place) -> None:
        try:
            _protect(repositories, place, uses, moment)
        except _Endangered as danger:
            raise danger.error from danger
        except RayfleetError as error:
            if strict:
                raise _not_protected(f"{place}: {family}:{pin.tag}", error) from error
            console.say(f"{place}: not protected from cleanup policies: {error.what}; {_LATER}")

    raise_failures(
        everywhere(where, one), what="protecting the image", next_step="invoke registry.preview"
    )


def pin_uses(fleet: Fleet, family: str, pin: Pin | None = None) -> Uses:
    """What the pins of ``family`` need, in every region: the current and the previous one, and
    ``pin``, which is about to become current."""
    history = read_histories(fleet.outputs.pins).get(family)
    image = fleet.images.get(family)
    named = {"new": pin}
    if history is not None:
        named |= {"current": history.current, "previous": history.previous}
    return Uses(
        known=tuple(
            Use(
                by=f"the {slot} pin of {family}",
                kind=Kind.PIN,
                digest=each.digest,
                tag="" if each.digest else each.tag,
                repository=image.repository if image else "",
                package=image.name if image else "",
            )
            for slot, each in named.items()
            if each is not None
        )
    )


_LATER = "nothing young is deleted; next: invoke registry.cleanup"


class _Endangered(Exception):
    """Policies in force take the image and could not be changed."""

    def __init__(self, error: RayfleetError) -> None:
        self.error = error
        super().__init__(str(error))


def _not_protected(image: str, error: RayfleetError) -> RayfleetError:
    return type(error)(
        f"{image} cannot be protected from cleanup policies, so it is not pinned",
        why=error.what + (f": {error.why}" if error.why else ""),
        next_step=error.next_step or "mend the cause, then run the same command again",
    )


def _protect(repositories: Repositories, place: Place, uses: Uses, now: datetime) -> None:
    in_force: tuple[Policy, ...] = ()
    versions: tuple[Version, ...] = ()

    def plan_of(found: Repository | None) -> CleanupPlan:
        nonlocal in_force, versions
        if found is None or all(policy.action is Action.KEEP for policy in found.policies):
            return CleanupPlan(place=place, change=Change.NONE, policies=(), found=found)
        growth = plan_growth(place, found, *uses.needed(()))
        if growth.change is Change.NONE:
            return growth
        in_force = () if found.policies_dry_run else found.policies
        versions = repositories.versions(place)
        # With the list at hand: the parts of an index need rules as well.
        return plan_growth(place, found, *uses.needed(versions))

    try:
        carry_out(repositories, place, plan_of)
    except RayfleetError as error:
        if danger := taken(in_force, versions, uses, now=now):
            raise _Endangered(in_danger(place, danger, next_step=error.next_step)) from error
        raise

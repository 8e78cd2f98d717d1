"""Do one thing in many places at once; one place's failure does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from rayfleet.errors import PartialFailure, RayfleetError, UsageError
from rayfleet.fleet.model import Fleet, ImageFamily
from rayfleet.registry.client import Place

T = TypeVar("T")

AT_ONCE = 8
"""Places worked on at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """What came of one place: a value, or the error that stopped it."""

    place: Place
    value: T | None = None
    error: RayfleetError | None = None


def places(
    fleet: Fleet, *, regions: Sequence[str] = (), families: Sequence[ImageFamily] = ()
) -> tuple[Place, ...]:
    """Every repository of ``families`` (default: all of the fleet's) in every region.

    ``regions`` narrows it down to those, in the fleet's order.

    Raises:
        UsageError: a region that the fleet does not have.
    """
    unknown = sorted(set(regions) - set(fleet.registries.regions))
    if unknown:
        raise UsageError(
            f"the fleet has no registry in {', '.join(unknown)}",
            why=f"its regions are {', '.join(fleet.registries.regions)}",
        )
    images = families or tuple(fleet.images.values())
    repositories = sorted({family.repository for family in images})
    return tuple(
        Place(project=fleet.project, region=region, repository=repository)
        for region in fleet.registries.regions
        if not regions or region in regions
        for repository in repositories
    )


def everywhere(where: Sequence[Place], work: Callable[[Place], T]) -> tuple[Outcome[T], ...]:
    """Call ``work`` for every place in parallel and return what came of each, in order."""

    def attempt(place: Place) -> Outcome[T]:
        try:
            return Outcome(place=place, value=work(place))
        except RayfleetError as error:
            return Outcome(place=place, error=error)

    if not where:
        return ()
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(where))) as pool:
        return tuple(pool.map(attempt, where))


def raise_failures(outcomes: Sequence[Outcome[T]], *, what: str, next_step: str) -> None:
    """Raise if any place failed.

    Raises:
        RayfleetError: all failed in one way: the first one's error.
        PartialFailure: otherwise; lists each place with its cause.
    """
    errors = [(each.place, each.error) for each in outcomes if each.error is not None]
    if not errors:
        return
    first = errors[0][1]
    if len(errors) == len(outcomes) and {type(error) for _, error in errors} == {type(first)}:
        raise first
    causes = "\n  ".join(_cause(place, error) for place, error in errors)
    raise PartialFailure(
        f"{what} failed in {len(errors)} of {len(outcomes)} places",
        why=f"\n  {causes}",
        next_step=next_step,
    )


def _cause(place: Place, error: RayfleetError) -> str:
    return f"{place}: {error.what}" + (f": {error.why}" if error.why else "")

"""What cleanup policies would delete and keep of what the registries really hold, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rayfleet.bars import readable
from rayfleet.console import Console
from rayfleet.errors import RayfleetError, ToolFailed
from rayfleet.fleet.model import Fleet
from rayfleet.registry.client import Place, Repositories, artifact_registry_client
from rayfleet.registry.inventory import SHORT_DIGEST, shown_age
from rayfleet.registry.plan import (
    Change,
    CleanupPlan,
    Taken,
    in_danger,
    not_asked,
    plan_cleanup,
    taken,
)
from rayfleet.registry.policy import Version, desired_policies
from rayfleet.registry.regions import Outcome, everywhere, places, raise_failures
from rayfleet.registry.retention import judge
from rayfleet.registry.uses import Use, Uses

SHOWN_USERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """Whether ``version`` goes, the policies that decide it, and who needs it."""

    version: Version
    goes: bool
    why: str
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One repository once ``plan`` is carried out.

    ``fates`` are of all its versions, those that go first. ``endangered`` would be deleted by the
    policies that are in force now; ``missing`` is needed and not there.
    """

    plan: CleanupPlan
    fates: tuple[Fate, ...] = ()
    endangered: tuple[Taken, ...] = ()
    missing: tuple[Use, ...] = ()

    @property
    def going(self) -> tuple[Fate, ...]:
        """Those that go."""
        return tuple(fate for fate in self.fates if fate.goes)

    def summary(self) -> str:
        """A line for people."""
        size = readable(sum(fate.version.size_bytes for fate in self.going))
        used = sum(1 for fate in self.fates if fate.users)
        text = (
            f"{self.plan.place}: {len(self.going)} of {len(self.fates)} versions go ({size}), "
            f"{used} are in use"
        )
        if self.plan.change is Change.NONE:
            return f"{text}; the policies are set"
        return f"{text}; registry.cleanup would {self.plan.change.value} the policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What was found at ``read_at`` (aware, UTC) in every repository."""

    outcomes: tuple[Outcome[Forecast], ...]
    read_at: datetime

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print a row or an object per version on stdout, a summary per repository on stderr."""
        if as_json:
            console.json([self._as_data(outcome) for outcome in self.outcomes])
            return
        headers = ("REGION", "IMAGE", "DIGEST", "TAGS", "AGE", "FATE", "WHY")
        console.table(headers, [row for each in self.outcomes for row in self._rows(each)])
        for outcome in self.outcomes:
            if outcome.value is not None:
                console.say(outcome.value.summary())
                for use in outcome.value.missing:
                    console.say(f"{outcome.place}: {use} is not there; {use.by} needs it")

    def raise_failures(self) -> None:
        """Raise if a repository could not be read, if policies in force delete what is in use,
        or if something could not be asked what it needs; the worst comes first.

        Raises:
            PartialFailure: this is so in some places; else the error of the first one.
        """
        raise_failures(
            [self._verdict(each) for each in self.outcomes],
            what="the preview",
            next_step="invoke registry.cleanup",
        )

    def _verdict(self, outcome: Outcome[Forecast]) -> Outcome[Forecast]:
        forecast, error = outcome.value, outcome.error
        if forecast is not None and forecast.endangered:
            error = _danger(outcome.place, forecast)
        elif forecast is not None and forecast.plan.cautious:
            error = not_asked(outcome.place, forecast.plan.unknown)
        return Outcome(place=outcome.place, value=forecast, error=error)

    def _rows(self, outcome: Outcome[Forecast]) -> list[tuple[str, ...]]:
        place, forecast = outcome.place, outcome.value
        if forecast is None:
            why = outcome.error.what if outcome.error else ""
            return [(place.region, place.repository, "", "", "", "unknown", why)]
        return [
            (
                place.region,
                f"{place.repository}/{fate.version.package}",
                fate.version.digest[:SHORT_DIGEST],
                ", ".join(fate.version.tags),
                shown_age((self.read_at - fate.version.uploaded).total_seconds()),
                "goes" if fate.goes else "stays",
                shortened(fate),
            )
            for fate in forecast.fates
        ]

    def _as_data(self, outcome: Outcome[Forecast]) -> dict[str, object]:
        place = {"region": outcome.place.region, "repository": outcome.place.repository}
        forecast = outcome.value
        if forecast is None:
            return {**place, "error": outcome.error and outcome.error.what}
        return {
            **place,
            "change": forecast.plan.change.value,
            "dry_run": forecast.plan.dry_run or forecast.plan.goes_live,
            "policies": [str(policy) for policy in forecast.plan.after],
            "not_asked": [str(each) for each in forecast.plan.unknown],
            "endangered": [str(each) for each in forecast.endangered],
            "missing": [{"image": str(use), "needed_by": use.by} for use in forecast.missing],
            "versions": [self._fate_data(fate) for fate in forecast.fates],
        }

    def _fate_data(self, fate: Fate) -> dict[str, object]:
        version = fate.version
        return {
            "package": version.package,
            "digest": version.digest,
            "tags": list(version.tags),
            "age_seconds": int((self.read_at - version.uploaded).total_seconds()),
            "size_bytes": version.size_bytes,
            "goes": fate.goes,
            "why": fate.why,
            "used_by": list(fate.users),
        }


def preview_cleanup(
    fleet: Fleet,
    *,
    uses: Uses,
    regions: Sequence[str] = (),
    now: datetime | None = None,
    api: Repositories | None = None,
) -> Preview:
    """Judge what every repository of the fleet (in ``regions``, default all) holds, as if
    ``registry.cleanup`` had just run; changes nothing.

    Raises:
        UsageError: a region that the fleet does not have.
        Unreachable: the sandbox is not up.
    """
    where = places(fleet, regions=regions)
    repositories = api or artifact_registry_client(fleet)
    desired = desired_policies(fleet.registries.cleanup)
    moment = now or datetime.now(UTC)

    def one(place: Place) -> Forecast:
        found = repositories.read(place)
        versions = repositories.versions(place) if found else ()
        needs = uses.at(place)
        in_force = found.policies if found and not found.policies_dry_run else ()
        endangered = taken(in_force, versions, needs, now=moment)
        try:
            plan = plan_cleanup(place, desired, found, now=moment, versions=versions, uses=uses)
        except ToolFailed as error:
            if endangered:
                raise in_danger(place, endangered, next_step=error.next_step) from error
            raise
        return Forecast(
            plan=plan,
            fates=_fates(plan, versions, needs, moment),
            endangered=endangered,
            missing=needs.missing(versions),
        )

    return Preview(outcomes=everywhere(where, one), read_at=moment)


def _fates(
    plan: CleanupPlan, versions: Sequence[Version], needs: Uses, now: datetime
) -> tuple[Fate, ...]:
    users = needs.users(versions)
    fates = []
    for verdict in judge(plan.after, versions, now=now):
        version = verdict.version
        by = users.get((version.package, version.digest), ())
        fates.append(Fate(version=version, goes=verdict.delete, why=verdict.reason, users=by))
    return tuple(
        sorted(fates, key=lambda each: (not each.goes, each.version.package, each.version.uploaded))
    )


def shortened(fate: Fate) -> str:
    """Why, for a table: what matters most, and how much more there is."""
    if not fate.users:
        return fate.why
    more = len(fate.users) - SHOWN_USERS
    named = ", ".join(fate.users[:SHOWN_USERS])
    return f"in use: {named}" + (f" and {more} more" if more > 0 else "")


def _danger(place: Place, forecast: Forecast) -> RayfleetError:
    return in_danger(
        place, forecast.endangered, next_step=f"invoke registry.cleanup --region {place.region}"
    )

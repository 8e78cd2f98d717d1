"""What the regional repositories hold: their policies and their versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rayfleet.console import Console
from rayfleet.fleet.model import Fleet
from rayfleet.registry.client import Place, Repositories, Repository, artifact_registry_client
from rayfleet.registry.policy import Version
from rayfleet.registry.regions import Outcome, everywhere, places, raise_failures

SHORT_DIGEST = len("sha256:") + 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One repository (None: there is none) and its versions, newest first."""

    repository: Repository | None
    versions: tuple[Version, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What was found at ``read_at`` (aware, UTC) in every repository."""

    outcomes: tuple[Outcome[Holding], ...]
    read_at: datetime

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print the policies and versions on stdout."""
        if as_json:
            console.json([self._as_data(outcome) for outcome in self.outcomes])
            return
        console.table(("REGION", "REPOSITORY", "POLICIES"), [_row(each) for each in self.outcomes])
        console.data("")
        rows = [row for outcome in self.outcomes for row in self._version_rows(outcome)]
        console.table(("REGION", "IMAGE", "DIGEST", "TAGS", "AGE"), rows)

    def raise_failures(self) -> None:
        """Raise if any repository could not be read.

        Raises:
            PartialFailure: some failed; the error of the first one if all did alike.
        """
        raise_failures(
            self.outcomes, what="reading the registries", next_step="invoke registry.show"
        )

    def _version_rows(self, outcome: Outcome[Holding]) -> list[tuple[str, ...]]:
        place = outcome.place
        return [
            (
                place.region,
                f"{place.repository}/{version.package}",
                version.digest[:SHORT_DIGEST],
                ", ".join(version.tags),
                shown_age((self.read_at - version.uploaded).total_seconds()),
            )
            for version in (outcome.value.versions if outcome.value else ())
        ]

    def _as_data(self, outcome: Outcome[Holding]) -> dict[str, object]:
        place = {"region": outcome.place.region, "repository": outcome.place.repository}
        if outcome.value is None:
            return {**place, "error": outcome.error and outcome.error.what}
        repository = outcome.value.repository
        return {
            **place,
            "exists": repository is not None,
            "dry_run": repository is not None and repository.policies_dry_run,
            "policies": [str(policy) for policy in repository.policies] if repository else [],
            "versions": [
                {
                    "package": version.package,
                    "digest": version.digest,
                    "tags": list(version.tags),
                    "uploaded": version.uploaded.isoformat(timespec="seconds"),
                    "age_seconds": int((self.read_at - version.uploaded).total_seconds()),
                    "size_bytes": version.size_bytes,
                }
                for version in outcome.value.versions
            ],
        }


def read_inventory(
    fleet: Fleet, *, regions: Sequence[str] = (), api: Repositories | None = None
) -> Inventory:
    """Read every repository of the fleet (in ``regions``, default all) at once.

    Raises:
        UsageError: a region that the fleet does not have.
        Unreachable: the sandbox is not up.
    """
    where = places(fleet, regions=regions)
    repositories = api or artifact_registry_client(fleet)
    outcomes = everywhere(where, lambda place: _holding(repositories, place))
    return Inventory(outcomes=outcomes, read_at=datetime.now(UTC))


def _holding(repositories: Repositories, place: Place) -> Holding:
    repository = repositories.read(place)
    if repository is None:
        return Holding(repository=None)
    versions = sorted(
        repositories.versions(place), key=lambda each: (each.package, each.uploaded), reverse=True
    )
    return Holding(repository=repository, versions=tuple(versions))


def _row(outcome: Outcome[Holding]) -> tuple[str, ...]:
    place = (outcome.place.region, outcome.place.repository)
    if outcome.value is None:
        return (*place, f"failed: {outcome.error.what if outcome.error else ''}")
    repository = outcome.value.repository
    if repository is None:
        return (*place, "no such repository; next: invoke registry.cleanup")
    lines = [str(policy) for policy in repository.policies] or ["none"]
    if repository.policies_dry_run:
        lines.append("(dry run: nothing is deleted)")
    return (*place, "\n".join(lines))


def shown_age(seconds: float) -> str:
    """Seconds as tables show an age, in the largest unit that fits."""
    for unit, suffix in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit:
            return f"{int(seconds // unit)}{suffix}"
    return f"{int(seconds)}s"

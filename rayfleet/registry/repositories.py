"""The repositories that images are pushed to: one per region and image family."""

from __future__ import annotations

from dataclasses import dataclass

from rayfleet.console import Console
from rayfleet.errors import ToolFailed
from rayfleet.fleet.model import Fleet, ImageFamily
from rayfleet.registry.client import Place, Repositories, Repository, artifact_registry_client
from rayfleet.registry.regions import everywhere, places, raise_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensured:
    """A repository that is there; ``created`` when this run made it."""

    place: Place
    created: bool


def ensure_repositories(
    fleet: Fleet,
    family: ImageFamily,
    *,
    console: Console,
    api: Repositories | None = None,
) -> tuple[Ensured, ...]:
    """Create what is missing of ``family``'s repositories, all regions at once.

    Raises:
        Unreachable: the API does not answer.
        ToolFailed: the API refuses, or a repository is there that cannot take our images.
        PartialFailure: this happened in some regions; the others are done.
    """
    repositories = api or artifact_registry_client(fleet)
    where = places(fleet, families=(family,))
    outcomes = everywhere(where, lambda place: _ensure(repositories, place))
    ensured = tuple(each.value for each in outcomes if each.value is not None)
    for each in ensured:
        if each.created:
            console.event(f"{each.place.region}: created repository {each.place.repository}")
    raise_failures(
        outcomes, what="preparing the repositories", next_step="run the same command again"
    )
    return ensured


def check_usable(repository: Repository) -> None:
    """Refuse a repository that cannot hold the fleet's images.

    Raises:
        ToolFailed: it is of another format or mode, or its tags cannot move.
    """
    place = repository.place
    if repository.format != "DOCKER" or repository.mode in {
        "VIRTUAL_REPOSITORY",
        "REMOTE_REPOSITORY",
    }:
        raise ToolFailed(
            f"{place.name} cannot take images",
            why=f"its format is {repository.format} and its mode {repository.mode}",
            next_step="name another repository for the image in the fleet file",
        )
    if repository.immutable_tags:
        raise ToolFailed(
            f"{place.name} has immutable tags",
            why="the tag latest could never move",
            next_step=f"gcloud artifacts repositories update {place.repository} "
            f"--location={place.region} --project={place.project} --no-immutable-tags",
        )


def _ensure(repositories: Repositories, place: Place) -> Ensured:
    found = repositories.read(place)
    if found is not None:
        check_usable(found)
        return Ensured(place=place, created=False)
    return Ensured(place=place, created=repositories.create(place))

"""``invoke registry.login``: how the push logs in to every region, and whether it may push."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError
from rayfleet.fleet.model import Fleet
from rayfleet.fleet.references import image_repository
from rayfleet.image.oci.credentials import Kind, Source, login_for, source_for
from rayfleet.image.oci.refusals import NoRepository
from rayfleet.image.oci.registries import Registries
from rayfleet.registry.client import Place
from rayfleet.registry.regions import everywhere, places

if TYPE_CHECKING:
    from rayfleet.image.oci.client import RegistryClient
    from rayfleet.image.oci.http import Retries

OK = "ok"
REFUSED = "refused"
UNTRIED = "not tried"
MISSING = "no repository yet: a push makes it"
# A tag that is asked for to see whether one may; it need not be there.
TAG = "latest"
NEXT_STEP = "invoke registry.login --check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came of one repository of one region.

    ``login``, ``pull`` and ``push`` are "ok", or say what is not; ``errors`` say why.
    """

    place: Place
    host: str
    source: Source | None = None
    login: str = UNTRIED
    pull: str = UNTRIED
    push: str = UNTRIED
    stored: str = ""
    errors: tuple[RayfleetError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginReport:
    """Every repository of every region, in the fleet's order."""

    checked: tuple[Checked, ...]

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print a table, or a JSON list of objects."""
        if as_json:
            console.json([_as_json(each) for each in self.checked])
            return
        console.table(
            ("region", "repository", "logs in with", "login", "pull", "push"),
            [
                (each.place.region, each.place.repository, each.source or "", *_states(each))
                for each in self.checked
            ],
        )
        for text in dict.fromkeys(_remark(each) for each in self.checked):
            if text:
                console.say(text)

    def raise_failures(self) -> None:
        """Raise if an image could not be pushed to, or pulled from, one of them.

        Raises:
            RayfleetError: all failed in one way: the first one's error.
            PartialFailure: some did; lists each with its cause and what mends it.
        """
        failed = [each for each in self.checked if each.errors]
        if not failed:
            return
        errors = [error for each in failed for error in each.errors]
        if len(failed) == len(self.checked) and len({error.text() for error in errors}) == 1:
            raise errors[0]
        alike = len(failed) == len(self.checked) and len({type(each) for each in errors}) == 1
        kind = type(errors[0]) if alike else PartialFailure
        lines = (line for each in failed for line in _lines(each))
        raise kind(
            f"{len(failed)} of {len(self.checked)} repositories cannot be pushed to",
            why="\n  ".join(["", *lines]),
            next_step=f"the commands above, then: {NEXT_STEP}",
        )


def check_logins(
    fleet: Fleet, *, regions: Sequence[str] = (), retries: Retries | None = None
) -> LoginReport:
    """Log in to every repository as a push would, and ask whether it may pull and push.

    An upload is begun in each of them and cancelled; nothing stays. All regions at once.

    Raises:
        UsageError: a region that the fleet does not have.
        PrerequisiteMissing: the sandbox with the registries is not up.
    """
    paths = {place: _image_path(fleet, place) for place in places(fleet, regions=regions)}
    with Registries(lambda host: login_for(host, fleet), retries=retries) as registries:

        def check(place: Place) -> Checked:
            host, _, repository = paths[place].partition("/")
            found = Checked(place=place, host=host)
            try:
                found = replace(found, source=source_for(host, fleet))
                registries.log_in(paths[place])
                client = registries.client(paths[place])
                client.ping()
            except RayfleetError as error:
                return replace(found, login=REFUSED, errors=(error,))
            return _try_rights(replace(found, login=OK), client, repository)

        return LoginReport(
            checked=tuple(each.value for each in everywhere(tuple(paths), check) if each.value)
        )


def _try_rights(found: Checked, client: RegistryClient, repository: str) -> Checked:
    errors: list[RayfleetError] = []
    pull = push = OK
    try:
        client.manifest_digest(repository, TAG)
    except RayfleetError as error:
        errors.append(error)
        pull = REFUSED
    try:
        client.try_upload(repository)
    except NoRepository:
        push = MISSING
    except RayfleetError as error:
        errors.append(error)
        push = REFUSED
    return replace(found, pull=pull, push=push, errors=tuple(errors))


def _image_path(fleet: Fleet, place: Place) -> str:
    family = next(
        name for name, image in fleet.images.items() if image.repository == place.repository
    )
    return image_repository(fleet, family, place.region)


def _lines(each: Checked) -> Iterator[str]:
    for error in each.errors:
        yield f"{each.place}: {error.what}" + (f": {error.why}" if error.why else "")
        if error.next_step:
            yield f"  {error.next_step}"


def _states(each: Checked) -> tuple[str, str, str]:
    return each.login, each.pull, each.push


def _remark(each: Checked) -> str:
    source = each.source
    if source is None:
        return ""
    if source.kind is Kind.PLAIN:
        return f"the password of {each.host} is in plain text in {source.place}"
    return f"{source.place}: {source.remark}" if source.remark else ""


def _as_json(each: Checked) -> dict[str, object]:
    return {
        "region": each.place.region,
        "repository": each.place.name,
        "host": each.host,
        "source": str(each.source or ""),
        "login": each.login,
        "pull": each.pull,
        "push": each.push,
        "stored": each.stored,
        "errors": [
            {"what": error.what, "why": error.why, "next": error.next_step} for error in each.errors
        ],
    }

"""Move a digest between images or tags in every region, without moving bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, UsageError
from rayfleet.fleet.model import Fleet, Pin
from rayfleet.fleet.pins import write_pin
from rayfleet.fleet.references import image_repository
from rayfleet.image.contents import describe
from rayfleet.image.fanout import Outcome, each_region
from rayfleet.image.history import known_digests
from rayfleet.image.labels import REVISION
from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.oci.credentials import login_for
from rayfleet.image.oci.registries import Registries
from rayfleet.image.promote.carry import carry, point_tags
from rayfleet.image.promote.promotion import Held, Order, Plan, Promoted, Promotion, one_digest
from rayfleet.image.references import (
    MOVING_TAGS,
    Reference,
    find_destination,
    find_reference,
)
from rayfleet.image.repositories import (
    EnsureRepositories,
    ProtectPin,
    ensure_repositories,
    require_protection,
)
from rayfleet.locks import exclusive
from rayfleet.project import Project

REGIONS_AT_ONCE = 16


def execute(
    project: Project,
    fleet: Fleet,
    console: Console,
    order: Order,
    *,
    dry_run: bool = False,
    yes: bool = False,
    as_json: bool = False,
) -> None:
    """Show what ``order`` would do, or do it and show what came of it.

    Raises:
        PartialFailure: some regions failed.
        RayfleetError: as :meth:`Promoter.promote` does.
    """
    with Registries(lambda host: login_for(host, fleet)) as registries:
        promoter = Promoter(project=project, fleet=fleet, console=console, registries=registries)
        if dry_run:
            promoter.plan(order).show(console, as_json=as_json)
            return
        promotion = promoter.promote(order, yes=yes)
    promotion.show(console, as_json=as_json)
    promotion.require()
    following = next_commands(fleet, order.family)
    if order.pin is not None and following:
        console.say(f"next: {', then: '.join(following)}")


def next_commands(fleet: Fleet, family: str) -> tuple[str, ...]:
    """What brings the clusters that follow LATEST of ``family`` onto a new pin."""
    names = [
        cluster.name
        for cluster in fleet.clusters.values()
        if cluster.image == family and not cluster.tag
    ]
    if not names:
        return ()
    every = len(names) == len(fleet.clusters)
    chosen = "--all" if every else " ".join(f"--cluster {name}" for name in names)
    return "invoke update-configs", f"invoke restart {chosen}"


def find_order(
    fleet: Fleet, source: str, to: Sequence[str], *, family: str = "cluster", pin: bool = False
) -> Order:
    """Read what an operator typed; names without a family are ``family``'s.

    To pin an image is to let ``latest`` name it as well.

    Raises:
        UsageError: it makes no sense; says what to write instead.
    """
    image = find_reference(source, fleet, family=family, known=known_digests(fleet))
    targets = [find_destination(each, fleet, image) for each in to]
    families = {target.family for target in targets} or {image.family}
    if len(families) > 1:
        raise UsageError(
            f"--to names several images: {', '.join(sorted(families))}",
            why="one is changed at a time, so that its pin and its tags agree",
            next_step="run it once for each of them",
        )
    goal = families.pop()
    tags = [target.tag for target in targets]
    if pin:
        tags.append("latest")
    if not tags:
        raise UsageError(
            f"where to promote {image} is not said",
            next_step=f"invoke image.promote {source} --to TAG (or --to FAMILY:TAG, or --pin)",
        )
    named = _pin_tag(image, goal, tags) if pin else ""
    tags = list(dict.fromkeys([*([named] if named else []), *tags]))
    flags = [*(f"--to {each}" for each in to), *(["--pin"] if pin else [])]
    default = f" --image {family}" if family != "cluster" else ""
    return Order(
        source=image,
        family=goal,
        tags=tuple(sorted(tags, key=lambda tag: tag in MOVING_TAGS)),
        command=" ".join([f"invoke image.promote {source}{default}", *flags]),
        pin=Pin(tag=named) if pin else None,
    )


def _pin_tag(image: Reference, goal: str, tags: Sequence[str]) -> str:
    """The tag that the pin names: a fixed one, which says what is inside."""
    own = [image.tag] if image.family == goal else []
    for tag in (*tags, *own):
        if tag and tag not in MOVING_TAGS:
            return tag
    raise UsageError(
        f"{image} cannot be pinned without a tag that stays",
        why="clusters name what they run by a fixed tag and its digest",
        next_step=f"name one as well: --to {goal}:TAG",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoter:
    """Plans and carries out what is ordered for a fleet."""

    project: Project
    fleet: Fleet
    console: Console
    registries: Registries
    ensure_repositories: EnsureRepositories = ensure_repositories
    protect_pin: ProtectPin = require_protection
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def plan(self, order: Order) -> Plan:
        """Look at every region; changes nothing.

        Raises:
            UsageError: no region has the image.
            PartialFailure: the regions do not hold the same under that name.
            RayfleetError: what stopped every region.
        """
        sources, destinations = self._places(order.source.family), self._places(order.family)

        def look(region: str, _: threading.Event) -> Held:
            client, source = self._open(sources[region])
            destination = self._open(destinations[region])[1]
            digest = client.manifest_digest(source, order.source.target)
            tags = {tag: client.manifest_digest(destination, tag) or "" for tag in order.tags}
            return Held(digest=digest or "", tags=tags)

        with self.console.phase("look"):
            outcomes = each_region(sources, look, limit=REGIONS_AT_ONCE)
            digest = one_digest(order, outcomes)
            first = next(each.region for each in outcomes if each.value is not None)
            image = describe(*self._open(sources[first]), digest)
        return Plan(
            order=order,
            digest=digest,
            sources=sources,
            destinations=destinations,
            regions=outcomes,
            blobs=len(image.blobs),
            size=image.size,
            pin=self._pin(order, digest, image.labels.get(REVISION, "")),
        )

    def promote(self, order: Order, *, yes: bool = False) -> Promotion:
        """Do what is ordered in every region, as far as each one lets it.

        Tags that name another image now, and ``latest``, come when every region has all else;
        the pin comes last.

        Raises:
            Declined: the operator did not agree to move a tag.
            Locked: another run publishes or promotes to the same image.
            ToolFailed: the image that is to be pinned cannot be protected from cleanup
                policies; neither a tag that moves nor the pin was changed.
            Unreachable: the API that protects it does not answer; the same.
            RayfleetError: as :meth:`plan` does; nothing was changed.
        """
        with exclusive(self.project.state, f"publish-{order.family}"):
            plan = self.plan(order)
            if plan.question:
                self.console.confirm(plan.question, yes=yes, refused_next=f"{order.command} --yes")
            self._ensure(order)
            self._protect(plan)
            elsewhere = plan.sources != plan.destinations
            with self.console.phase("promote") if plan.fixed or elsewhere else nullcontext():
                regions = self._everywhere(plan)
            moved = all(each.error is None for each in regions)
            if moved and elsewhere:
                self._protect(plan)  # the parts of an index are known there only now
            if moved and plan.moving:
                with self.console.phase(", ".join(plan.moving)):
                    regions = self._move(plan, regions)
            complete = all(each.error is None for each in regions)
            pinned = complete and plan.pin is not None and self._write(order.family, plan.pin)
        return Promotion(plan=plan, regions=regions, moved=moved, pinned=pinned)

    def _everywhere(self, plan: Plan) -> tuple[Promoted, ...]:
        """Hand the image over in every region that answered, and set the fixed tags there."""

        def work(region: str, _: threading.Event) -> Promoted:
            client, destination = self._open(plan.destinations[region])
            source = self._open(plan.sources[region])[1]
            mounted = carry(client, plan.digest, source=source, destination=destination)
            changed = point_tags(client, destination, plan.fixed, plan.digest)
            if plan.fixed:
                self.console.event(f"{region}: {', '.join(plan.fixed)} verified")
            return Promoted(region=region, mounted=mounted, tags_set=changed)

        done = each_region(plan.answering, work, limit=REGIONS_AT_ONCE)
        outcomes = {each.region: each for each in done}
        return tuple(
            _promoted(outcomes.get(each.region) or Outcome(region=each.region, error=each.error))
            for each in plan.regions
        )

    def _move(self, plan: Plan, so_far: Sequence[Promoted]) -> tuple[Promoted, ...]:
        """Set the moving tags in every region."""

        def work(region: str, _: threading.Event) -> tuple[str, ...]:
            return point_tags(*self._open(plan.destinations[region]), plan.moving, plan.digest)

        outcomes = each_region(plan.destinations, work, limit=REGIONS_AT_ONCE)
        return tuple(
            replace(each, tags_set=(*each.tags_set, *(outcome.value or ())), error=outcome.error)
            for each, outcome in zip(so_far, outcomes, strict=True)
        )

    def _protect(self, plan: Plan) -> None:
        """An image that is promoted or rolled back to may be old enough to go any time."""
        if plan.pin is not None:
            self.protect_pin(self.fleet, plan.order.family, plan.pin, self.console)

    def _write(self, family: str, pin: Pin) -> bool:
        path = self.fleet.outputs.pins
        changed = write_pin(path, family, pin)
        word = "pinned" if changed else "already pinned"
        self.console.say(f"{word}: {family} {pin.reference} in {self.project.shown(path)}")
        return changed

    def _pin(self, order: Order, digest: str, commit: str) -> Pin | None:
        if order.pin is None:
            return None
        return replace(
            order.pin,
            digest=digest,
            published=order.pin.published or self.now().isoformat(timespec="seconds"),
            commit=order.pin.commit or commit,
        )

    def _places(self, family: str) -> dict[str, str]:
        regions = self.fleet.registries.regions
        return {region: image_repository(self.fleet, family, region) for region in regions}

    def _open(self, destination: str) -> tuple[RegistryClient, str]:
        """The client of a repository and the repository's path in its registry."""
        return self.registries.client(destination), destination.partition("/")[2]

    def _ensure(self, order: Order) -> None:
        """Make the repository that the image goes to where it is missing.

        A region where that fails has its say when the image comes; the others go on.
        """
        source, goal = self.fleet.images[order.source.family], self.fleet.images[order.family]
        if source.repository == goal.repository:
            return
        with self.console.phase("repositories"):
            try:
                self.ensure_repositories(self.fleet, goal, self.console)
            except PartialFailure as failure:
                self.console.say(failure.what + failure.why)


def _promoted(outcome: Outcome[Promoted]) -> Promoted:
    return outcome.value or Promoted(region=outcome.region, error=outcome.error)

"""Look at one image in every region."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rayfleet.fleet.model import Fleet
from rayfleet.fleet.pins import read_histories
from rayfleet.fleet.references import image_repository
from rayfleet.image.contents import describe
from rayfleet.image.fanout import each_region
from rayfleet.image.history import known_digests
from rayfleet.image.inspection import Inspection, Seen, leading_digest
from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.oci.credentials import login_for
from rayfleet.image.oci.registries import Registries
from rayfleet.image.references import MOVING_TAGS, Reference, find_reference
from rayfleet.registry.regions import places

REGIONS_AT_ONCE = 16
TAGS_AT_ONCE = 8
# A region's tags that are looked at: each is a request.
MOST_TAGS = 200


def inspect_reference(
    fleet: Fleet, text: str, *, family: str = "cluster", regions: Sequence[str] = ()
) -> Inspection:
    """Read the image that an operator calls ``text``, as :func:`inspect_image` does.

    Raises:
        UsageError: ``text`` names no image, or as :func:`inspect_image` does.
        RayfleetError: as :func:`inspect_image` does.
    """
    reference = find_reference(text, fleet, family=family, known=known_digests(fleet))
    with Registries(lambda host: login_for(host, fleet)) as registries:
        return inspect_image(fleet, reference, registries, regions=regions)


def inspect_image(
    fleet: Fleet, reference: Reference, registries: Registries, *, regions: Sequence[str] = ()
) -> Inspection:
    """Read the image and its tags in ``regions``, default all of the fleet's.

    Raises:
        UsageError: a region that the fleet does not have, or none has the image.
        RayfleetError: no registry answers, or the image is damaged.
    """
    family = reference.family
    destinations = {
        place.region: image_repository(fleet, family, place.region)
        for place in places(fleet, regions=regions, families=(fleet.images[family],))
    }

    def look(region: str, _: threading.Event) -> Seen:
        destination = destinations[region]
        return _look(registries.client(destination), _path(destination), reference)

    outcomes = each_region(destinations, look, limit=REGIONS_AT_ONCE)
    digest = leading_digest(reference, outcomes)
    holder = next(
        destinations[each.region]
        for each in outcomes
        if each.value is not None and each.value.digest == digest
    )
    return Inspection(
        reference=reference,
        digest=digest,
        pinned=_pinned(fleet, reference, digest),
        image=describe(registries.client(holder), _path(holder), digest),
        destinations=destinations,
        regions=outcomes,
    )


def _look(client: RegistryClient, repository: str, reference: Reference) -> Seen:
    digest = client.manifest_digest(repository, reference.target) or ""
    tags = client.tags(repository)
    # The ones that people ask for first, should there be too many.
    wanted = sorted(tags, key=lambda tag: tag not in {reference.tag, *MOVING_TAGS})
    found = each_region(
        wanted[:MOST_TAGS],
        lambda tag, _: client.manifest_digest(repository, tag) or "",
        limit=TAGS_AT_ONCE,
    )
    for each in found:
        if each.error is not None:
            raise each.error
    behind = {each.region: each.value or "" for each in found}
    return Seen(digest=digest, tags=behind, skipped=len(tags) - len(behind))


def _pinned(fleet: Fleet, reference: Reference, digest: str) -> str:
    """Whether the image is the current pin, the previous one, or none of both (empty)."""
    history = read_histories(fleet.outputs.pins).get(reference.family)
    slots = {"current": history.current, "previous": history.previous} if history else {}
    for slot, pin in slots.items():
        # Before the first publish a pin is a tag without a digest.
        if pin is not None and (pin.digest or pin.tag) in {digest, reference.tag}:
            return slot
    return ""


def _path(destination: str) -> str:
    """``project/repository/name`` of ``host/project/repository/name``."""
    return destination.partition("/")[2]

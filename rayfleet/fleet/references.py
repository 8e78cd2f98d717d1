"""Where an image lies: one repository per family and region, one reference per cluster."""

from __future__ import annotations

from collections.abc import Mapping

from rayfleet.errors import PrerequisiteMissing, UsageError
from rayfleet.fleet.model import AuthMode, Cluster, Fleet, Pin, knows_tokens
from rayfleet.fleet.pins import read_pins


def image_repository(fleet: Fleet, family: str, region: str) -> str:
    """``host/project/repository/name`` of an image family in a region, without a tag.

    Raises:
        PrerequisiteMissing: the sandbox that holds the registry is not up.
    """
    host = fleet.registries.hosts.get(region)
    if host is None:
        raise PrerequisiteMissing(
            f"there is no registry for {region} yet",
            why="the sandbox that holds it is not up, or came up before the region was added",
            next_step="invoke sandbox.up",
        )
    image = fleet.images[family]
    return f"{host}/{fleet.project}/{image.repository}/{image.name}"


def base_reference(fleet: Fleet, family: str) -> str:
    """The image that ``family`` is built on. Another family of the fleet is named by its pin's
    digest: its tags move.

    Raises:
        PrerequisiteMissing: the sandbox that holds the registry is not up.
        UsageError: no pin names the other family by its digest yet, or the pin file is broken.
    """
    base = fleet.images[family].base_image
    if base not in fleet.images:
        return base
    pin = read_pins(fleet.outputs.pins).get(base)
    if pin is None or not pin.digest:
        raise UsageError(
            f"the image {family!r} is built on {base!r}, which has no pin with a digest yet",
            why=f"{fleet.outputs.pins} has none; a tag could name another image tomorrow",
            next_step=_publish(base),
        )
    return f"{image_repository(fleet, base, fleet.registries.regions[0])}:{pin.reference}"


def image_reference(fleet: Fleet, cluster: Cluster, pins: Mapping[str, Pin]) -> str:
    """The image that ``cluster`` shall run: its repository, the tag and, if known, the digest.

    A fixed ``tag`` of the cluster goes before the family's LATEST.

    Raises:
        PrerequisiteMissing: the sandbox that holds the registry is not up.
        UsageError: the family has no LATEST yet, or one whose Ray lacks what the cluster wants.
    """
    repository = image_repository(fleet, cluster.image, cluster.region)
    if cluster.tag:
        return f"{repository}:{cluster.tag}"
    pin = pins.get(cluster.image)
    if pin is None:
        raise UsageError(
            f"the image {cluster.image!r} has no LATEST yet",
            why=f"{cluster.name} runs it and {fleet.outputs.pins} does not pin it",
            next_step=_publish(cluster.image),
        )
    if cluster.auth.mode is AuthMode.TOKEN and pin.ray and not knows_tokens(pin.ray):
        raise UsageError(
            f"{cluster.name} wants tokens, and Ray {pin.ray} of {pin.tag} lets everybody in",
            why="tokens came with Ray 2.52",
            next_step=f"{_publish(cluster.image)} (or write auth: {{mode: disabled}})",
        )
    return f"{repository}:{pin.reference}"


def _publish(family: str) -> str:
    return "invoke cluster-docker" + (f" --image {family}" if family != "cluster" else "")

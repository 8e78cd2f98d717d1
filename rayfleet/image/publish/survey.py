"""What every region lacks of an image: the plan of a publish. Only reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rayfleet.bars import readable
from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError
from rayfleet.fleet.model import Compression
from rayfleet.image.fanout import each_region, failure, region_lines
from rayfleet.image.layers.blobs import BlobCache
from rayfleet.image.layers.collect import LocalImage, cached
from rayfleet.image.oci.registries import Registries
from rayfleet.image.publish.manifest import build_manifest

T = TypeVar("T")

LOOKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPlan:
    """What one region lacks: ``tags`` to set, and blobs whose digests are known already.

    ``size`` is the bytes of those blobs. ``error`` is why the region could not be asked.
    """

    region: str
    destination: str
    tags: tuple[str, ...] = ()
    blobs: int = 0
    size: int = 0
    error: RayfleetError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPlan:
    """What a publish would do. Before all layers are compressed there is no ``digest``.

    ``unknown`` counts the layers that are not compressed yet, of any size; None is for an
    image that is not even built.
    """

    digest: str
    tags: tuple[str, ...]
    regions: tuple[RegionPlan, ...]
    unknown: int | None

    def show(self, console: Console) -> None:
        """Print what each region lacks."""
        rows = [(plan.region, ", ".join(plan.tags), self._blobs(plan)) for plan in self.regions]
        console.table(("region", "tags to set", "to send"), rows)

    def conclude(self, console: Console, *, as_json: bool) -> None:
        """Print the plan.

        Raises:
            PartialFailure: some regions could not be asked.
        """
        if as_json:
            console.json(self.as_json())
        else:
            self.show(console)
        self.require(next_step="invoke doctor")

    def as_json(self) -> dict[str, object]:
        """The plan as ``--json`` prints it."""
        return {
            "digest": self.digest,
            "tags": list(self.tags),
            "layers_not_compressed": self.unknown,
            "regions": {
                plan.region: {
                    "image": plan.destination,
                    "tags_missing": list(plan.tags),
                    "blobs_missing": plan.blobs,
                    "bytes_missing": plan.size,
                    "error": failure(plan.error) if plan.error is not None else None,
                }
                for plan in self.regions
            },
        }

    def require(self, *, next_step: str) -> None:
        """Return if every region could be asked.

        Raises:
            PartialFailure: some could not.
        """
        failed = [plan for plan in self.regions if plan.error is not None]
        if failed:
            lines = region_lines((plan.region, failure(plan.error)) for plan in failed)
            raise PartialFailure(
                f"{len(failed)} of {len(self.regions)} regions could not be asked",
                why="\n  ".join(["", *lines]),
                next_step=next_step,
            )

    def _blobs(self, plan: RegionPlan) -> str:
        if plan.error is not None:
            return failure(plan.error)
        if self.unknown is None:
            return "not built yet"
        known = f"{plan.blobs} blobs, {readable(plan.size)}" if plan.blobs else ""
        unknown = f"{self.unknown} layers not compressed yet" if self.unknown else ""
        return " and ".join(part for part in (known, unknown) if part) or "nothing"


def survey(
    image: LocalImage | None,
    destinations: Mapping[str, str],
    tags: Sequence[str],
    *,
    registries: Registries,
    cache: BlobCache,
    compression: Compression,
) -> PublishPlan:
    """Ask every region what it lacks of ``image``; None is an image that is still to be built."""
    sizes, digest, unknown = _known(image, cache, compression)

    def look(region: str, _: threading.Event) -> RegionPlan:
        destination = destinations[region]
        client, repository = registries.client(destination), destination.partition("/")[2]
        held = _together(tags, lambda tag: client.manifest_digest(repository, tag))
        there = dict.fromkeys(sizes, True)
        if not digest or digest not in held.values():
            there = _together(sizes, lambda blob: client.has_blob(repository, blob))
        missing = [size for blob, size in sizes.items() if not there[blob]]
        return RegionPlan(
            region=region,
            destination=destination,
            tags=tuple(tag for tag in tags if not digest or held[tag] != digest),
            blobs=len(missing),
            size=sum(missing),
        )

    return PublishPlan(
        digest=digest,
        tags=tuple(tags),
        regions=tuple(
            each.value
            or RegionPlan(
                region=each.region, destination=destinations[each.region], error=each.error
            )
            for each in each_region(destinations, look, limit=len(destinations))
        ),
        unknown=unknown if image is not None else None,
    )


def _known(
    image: LocalImage | None, cache: BlobCache, compression: Compression
) -> tuple[dict[str, int], str, int]:
    """The sizes of the blobs that are known, the manifest's digest, how many are not known."""
    if image is None:
        return {}, "", 0
    collected = cached(image, cache=cache, compression=compression)
    if collected is not None:
        built = build_manifest(collected)
        sizes = {blob.digest: blob.size for blob in collected.blobs}
        return sizes | {built.config.digest: built.config.size}, built.digest, 0
    found = {each: cache.find(each, compression) for each in image.diff_ids}
    sizes = {blob.digest: blob.size for blob in found.values() if blob is not None}
    return sizes, "", sum(blob is None for blob in found.values())


def _together(keys: Iterable[str], look: Callable[[str], T]) -> dict[str, T]:
    """What ``look`` finds for each key, several at a time.

    Raises:
        RayfleetError: what went wrong first.
    """
    found: dict[str, T] = {}

    def work(key: str, _: threading.Event) -> None:
        found[key] = look(key)

    for outcome in each_region(keys, work, limit=LOOKS):
        if outcome.error is not None:
            raise outcome.error
    return found

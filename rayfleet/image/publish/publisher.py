"""Put an image of the engine into every region: plan, send, tag, read back."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rayfleet.bars import Tally, bars, readable
from rayfleet.console import Console
from rayfleet.fleet.model import Compression
from rayfleet.image.layers.blobs import BlobCache
from rayfleet.image.layers.collect import Collected, LayerEngine, LocalImage, cached, collect
from rayfleet.image.oci.registries import Registries
from rayfleet.image.publish.manifest import build_manifest
from rayfleet.image.publish.publication import Publication
from rayfleet.image.publish.region import Region
from rayfleet.image.publish.regions import Regions
from rayfleet.image.references import MOVING_TAGS

PHASES = ("prepare", "upload", "tags", "verify")


class Publisher:
    """Publishes images of ``engine``, with its layers kept in ``cache``.

    Cache and registries are open, and the caller's to close.
    """

    def __init__(
        self,
        *,
        engine: LayerEngine,
        cache: BlobCache,
        registries: Registries,
        compression: Compression,
        console: Console,
    ) -> None:
        self._engine = engine
        self._cache = cache
        self._registries = registries
        self._compression = compression
        self._console = console

    def publish(
        self,
        image: LocalImage,
        destinations: Mapping[str, str],
        tags: Sequence[str],
        *,
        name: str,
        moving: Collection[str] = MOVING_TAGS,
    ) -> Publication:
        """Get ``image``, which people call ``name``, to every destination (by region) under
        every tag.

        All regions at once: blobs, the manifest, the tags that are not ``moving``; those only
        when all regions have the others; then every tag is read back. An error of a region is
        in the result and does not stop the others.

        Raises:
            ToolFailed: the engine cannot read the image's layers.
            PrerequisiteMissing: no engine, or a full disk.
        """
        console, watch = self._console, Stopwatch()
        with self._regions(destinations, tuple(dict.fromkeys(tags))) as regions:
            with console.phase("publish"), bars(console, regions.tallies, regions.layers):
                regions.read_tags()
                collected = self._collect(image, regions)
                watch.split("prepare")
                built = None if collected is None else build_manifest(collected)
                if collected is not None and built is not None:
                    regions.supply(built, collected.blobs, moving)
                    watch.split("upload", at=regions.blobs_done)
                    regions.move(built, moving)
                    watch.split("tags")
            if built is not None:
                with console.phase("verify"):
                    regions.verify(built)
                    watch.split("verify")
            return Publication(
                image=name,
                digest=built.digest if built else "",
                tags=regions.tags,
                regions=tuple(region.result() for region in regions.members),
                size=built.size if built else 0,
                compressed=collected.compressed if collected else 0,
                source=collected.source if collected else "",
                revision=built.config.revision if built else "",
                seconds=watch.seconds,
            )

    def _collect(self, image: LocalImage, regions: Regions) -> Collected | None:
        """The image's compressed layers, offered to the regions as they get ready.

        None when no region is left that wants them.
        """
        found = cached(image, cache=self._cache, compression=self._compression)
        if found is not None:
            return found
        try:
            collected = collect(
                image,
                self._engine,
                cache=self._cache,
                compression=self._compression,
                on_blob=regions.offer,
                on_compressed=regions.layers.add,
                stop=regions.abandoned,
            )
        except Exception:
            if regions.working:
                raise
            return None
        finally:
            regions.layers.done = True
        self._console.event(f"compressed {readable(collected.compressed)} of layers")
        return collected

    @contextmanager
    def _regions(self, destinations: Mapping[str, str], tags: tuple[str, ...]) -> Iterator[Regions]:
        regions = Regions(tags)
        for name, destination in destinations.items():
            regions.members.append(
                Region(
                    name,
                    destination,
                    self._registries.client(destination),
                    Tally(region=name, tell=self._console.event),
                    uploads=self._registries.limits.per_registry,
                    on_failure=regions.note_failure,
                )
            )
        try:
            yield regions
        finally:
            regions.halt()


class Stopwatch:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last = time.monotonic()

    def split(self, phase: str, *, at: float = 0.0) -> None:
        """End ``phase`` now, or at an earlier moment of the monotonic clock."""
        now = max(at or time.monotonic(), self._last)
        self.seconds[phase] = now - self._last
        self._last = now

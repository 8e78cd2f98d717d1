"""All layers of an image of the engine as compressed blobs: each is read and compressed once.

What the cache has is taken from it. What it lacks is read from the engine's own folders if they
are on this machine and may be read (store.py), and is otherwise exported (exported.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rayfleet.errors import ToolFailed
from rayfleet.fleet.model import Compression
from rayfleet.image.interruption import Interrupted
from rayfleet.image.layers.blobs import Blob, BlobCache
from rayfleet.image.layers.exported import Exported
from rayfleet.image.layers.packing import Packer
from rayfleet.image.layers.store import LayerStore, Unreadable

# Layers that are read at once, and cores that compress: what bounds the memory.
MAX_READERS = 4
MAX_HELPERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalImage:
    """An image in the engine as ``inspect`` shows it.

    ``diff_ids`` are its layers, lowest first; one may stand there twice. ``size`` is the bytes
    of the unpacked files.
    """

    id: str
    diff_ids: tuple[str, ...]
    size: int
    architecture: str
    os: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """An image as a registry takes it.

    ``config`` is exactly what the engine has; ``blobs`` has one for each diff id, in order,
    repeats included. ``compressed`` counts the raw bytes that had to be compressed in this run;
    ``source`` is ``cache``, ``store`` or ``export``, the last one that was needed.
    """

    config: bytes
    blobs: tuple[Blob, ...]
    compressed: int
    source: str


class LayerEngine(Protocol):
    """What is asked of the engine."""

    @property
    def address(self) -> str:
        """Where it is, for messages."""

    def store_root(self) -> Path | None:
        """The folder of a classic engine on this machine, if it may be read."""

    def export(self, image_id: str) -> Iterator[bytes]:
        """The archive of ``docker save``, in chunks."""


def cached(image: LocalImage, *, cache: BlobCache, compression: Compression) -> Collected | None:
    """Everything from the cache, or None when anything is missing."""
    config = cache.config(image.id)
    blobs = [cache.find(diff_id, compression) for diff_id in image.diff_ids]
    found = tuple(blob for blob in blobs if blob is not None)
    if config is None or len(found) < len(blobs):
        return None
    return Collected(config=config, blobs=found, compressed=0, source="cache")


def collect(
    image: LocalImage,
    engine: LayerEngine,
    *,
    cache: BlobCache,
    compression: Compression,
    on_blob: Callable[[Blob], None] = lambda blob: None,
    on_compressed: Callable[[int], None] = lambda size: None,
    stop: threading.Event,
) -> Collected:
    """All layers of ``image`` in ``cache``, compressed; blocks until they are there.

    ``on_blob`` is called once for each distinct layer as soon as it is ready, cached ones
    first, and ``on_compressed`` with counts of raw bytes; both from any thread.

    Raises:
        ToolFailed: the engine cannot give the image.
        PrerequisiteMissing: the disk is full, or the engine stopped answering.
        Interrupted: ``stop`` was set.
    """
    return _Collection(image, engine, cache, compression, on_blob, stop).run(on_compressed)


class _Collection:
    """One call of :func:`collect`."""

    def __init__(
        self,
        image: LocalImage,
        engine: LayerEngine,
        cache: BlobCache,
        compression: Compression,
        on_blob: Callable[[Blob], None],
        stop: threading.Event,
    ) -> None:
        self._image = image
        self._engine = engine
        self._cache = cache
        self._compression = compression
        self._on_blob = on_blob
        self._stop = stop
        self._failed = threading.Event()
        self._lock = threading.Lock()
        self._blobs: dict[str, Blob] = {}
        self._config: bytes | None = None

    def run(self, on_compressed: Callable[[int], None]) -> Collected:
        self._config = self._cache.config(self._image.id)
        for diff_id in self._lacking():
            blob = self._cache.find(diff_id, self._compression)
            if blob is not None:
                self._take(blob)
        if self._complete():
            return self._collected(0, "cache")
        helpers = min(_cores(), MAX_HELPERS)
        with ThreadPoolExecutor(helpers, thread_name_prefix="compress") as pool:
            packer = Packer(
                self._cache,
                self._compression,
                helpers=pool,
                ahead=helpers + 1,
                check=self._check,
                on_compressed=on_compressed,
            )
            source = "store"
            self._from_store(packer)
            if not self._complete():
                source = "export"
                self._from_export(packer)
            return self._collected(packer.compressed, source)

    def _lacking(self) -> list[str]:
        return [each for each in dict.fromkeys(self._image.diff_ids) if each not in self._blobs]

    def _complete(self) -> bool:
        return self._config is not None and not self._lacking()

    def _take(self, blob: Blob) -> None:
        with self._lock:
            self._blobs[blob.diff_id] = blob
        self._on_blob(blob)

    def _check(self) -> None:
        if self._stop.is_set() or self._failed.is_set():
            raise Interrupted

    def _from_store(self, packer: Packer) -> None:
        root = self._engine.store_root()
        if root is None:
            return
        store = LayerStore(root, image_id=self._image.id, diff_ids=self._image.diff_ids)
        try:
            self._config = self._config or store.config()
        except Unreadable:
            return  # an engine that keeps it elsewhere keeps the layers elsewhere too

        def read(diff_id: str) -> None:
            try:
                blob = packer.pack(store.layer(diff_id), (diff_id,))
            except Unreadable:
                return
            if blob is not None:
                self._take(blob)

        self._each(sorted(self._lacking(), key=store.size, reverse=True), read)

    def _from_export(self, packer: Packer) -> None:
        for exact in (False, True):
            reading = Exported(
                self._image,
                packer,
                held=self._blobs.values(),
                exact=exact,
                on_blob=self._take,
                check=self._check,
            )
            reading.read(self._engine.export(self._image.id))
            self._config = self._config or reading.config
            if self._complete():
                return
        lacking = ", ".join(self._lacking())
        why = f"it lacks the layers {lacking}" if lacking else "it lacks the config"
        raise ToolFailed(
            f"the engine's archive of image {self._image.id} is not complete",
            why=f"{why} ({reading.complaint})" if reading.complaint else why,
            next_step="build the image again, or pull it again",
        )

    def _each(self, diff_ids: Iterable[str], work: Callable[[str], None]) -> None:
        """Do ``work`` for a few layers at a time; the first failure ends all."""
        readers = min(_cores(), MAX_READERS)
        with ThreadPoolExecutor(readers, thread_name_prefix="layer") as pool:
            futures = [pool.submit(work, diff_id) for diff_id in diff_ids]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                self._failed.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _collected(self, compressed: int, source: str) -> Collected:
        if self._config is None:
            raise ToolFailed(f"the engine at {self._engine.address} has no config")
        self._cache.keep_config(self._image.id, self._config)
        return Collected(
            config=self._config,
            blobs=tuple(self._blobs[diff_id] for diff_id in self._image.diff_ids),
            compressed=compressed,
            source=source,
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2

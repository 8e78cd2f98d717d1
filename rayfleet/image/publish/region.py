"""One region of a publish: what its registry has, and what it still gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rayfleet.bars import FAILED, Tally, readable
from rayfleet.errors import RayfleetError, ToolFailed
from rayfleet.image.fanout import failure
from rayfleet.image.oci.refusals import RegistryFault
from rayfleet.image.publish.manifest import BuiltManifest
from rayfleet.image.publish.publication import RegionResult
from rayfleet.image.workers import Workers

if TYPE_CHECKING:
    from rayfleet.image.oci.client import RegistryClient, Sendable

# Short requests that a region may have in flight: all tags and most layers in one round trip.
LOOKS = 12
# A registry says so of a manifest that names a blob it does not have:
# https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#error-codes
BLOB_UNKNOWN = "BLOB_UNKNOWN"


class Halted(Exception):
    """The run was stopped before this region was through."""


class Region:
    """A repository in one region's registry, worked on by threads of its own.

    The first error ends the region: what is under way is told to stop, the rest is dropped.
    ``tags`` is what was last read, None for a tag that is not there.
    """

    def __init__(
        self,
        name: str,
        destination: str,
        client: RegistryClient,
        tally: Tally,
        *,
        uploads: int,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.destination = destination
        self.tally = tally
        self.tags: dict[str, str | None] = {}
        self.error: RayfleetError | None = None
        self.blobs_done = 0.0
        self._repository = destination.partition("/")[2]
        self._client = client
        self._on_failure = on_failure
        self._looks = Workers(f"look-{name}", limit=LOOKS)
        self._uploads = Workers(f"upload-{name}", limit=uploads)
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._pending = 0
        self._broken: BaseException | None = None
        self._offered: set[str] = set()
        self._set: list[str] = []

    def look_at(self, tags: Iterable[str]) -> None:
        """Begin to read what ``tags`` are; :meth:`settle` waits for it."""
        for tag in tags:
            self._begin(self._looks, lambda tag=tag: self._read(tag))  # type: ignore[misc]

    def offer(self, blob: Sendable) -> None:
        """Begin to look for a blob and send it if it is missing; each digest once."""
        with self._changed:
            if blob.digest in self._offered or self._stop.is_set():
                return
            self._offered.add(blob.digest)
            # What is ready last was not in the cache, and is what the others wait for.
            urgency = len(self._offered)
        self.tally.expect()
        self._begin(self._looks, lambda: self._look(blob), urgency=urgency)

    def settle(self) -> None:
        """Return when all that was begun is done.

        Raises:
            RayfleetError: what ended the region.
            Halted: the run was stopped.
        """
        with self._changed:
            while self._pending and not self._stop.is_set():
                self._changed.wait()
            broken = self._broken or self.error
        if broken is not None:
            raise broken
        if self._stop.is_set():
            raise Halted

    def complete(
        self, built: BuiltManifest, blobs: Iterable[Sendable], tags: Iterable[str]
    ) -> None:
        """Get the image there under ``tags``, which :meth:`look_at` was asked to read.

        Blobs first, then the manifest by its digest, then the tags, as far as they are not
        there. A registry that has the manifest has its blobs.
        """
        needed = (built.config, *blobs)
        early = bool(self._offered)
        if not early:
            self.settle()
        if early or built.digest not in self.tags.values():
            self._supply(needed)
        else:
            self.tally.all_found(len({blob.digest for blob in needed}), built.size)
        self.blobs_done = time.monotonic()
        if self.differing(self.tags, built.digest):
            self._put_manifest(built, needed)
            self.set_tags(built, tags)

    def set_tags(self, built: BuiltManifest, tags: Iterable[str]) -> None:
        """Make each of ``tags`` the manifest, all at once; those that are it are left alone."""
        differing = self.differing(tags, built.digest)
        for tag in differing:
            self._begin(self._looks, lambda tag=tag: self._put_tag(tag, built))  # type: ignore[misc]
        self.settle()
        self.tally.set_state("tagged")
        if differing:
            self.tally.tell(f"{self.name}: tagged {', '.join(differing)}")

    def read_back(self, tags: Iterable[str]) -> None:
        """Read what each of ``tags`` is now."""
        self.look_at(tags)
        self.settle()

    def differing(self, tags: Iterable[str], digest: str) -> list[str]:
        """Those of ``tags`` that were not ``digest`` when last read."""
        return [tag for tag in tags if self.tags.get(tag) != digest]

    def holds_above(self, tags: Iterable[str], digest: str) -> bool:
        """True if one of ``tags`` was a digest that sorts behind ``digest`` when last read."""
        return any((self.tags.get(tag) or "") > digest for tag in tags)

    def require(self, tags: Iterable[str], digest: str) -> None:
        """End the region if one of ``tags`` was not ``digest`` when last read."""
        for tag in self.differing(tags, digest):
            self.fail(
                ToolFailed(
                    f"{self.destination}:{tag} is not what was published",
                    why=f"it is {self.tags.get(tag) or 'missing'}, not {digest}",
                )
            )

    @property
    def touched(self) -> bool:
        """True when something had to be set here."""
        return bool(self._set)

    def result(self) -> RegionResult:
        """What came of the region so far."""
        return RegionResult(
            region=self.name,
            destination=self.destination,
            sent=self.tally.sent,
            present=self.tally.present,
            blobs_sent=self.tally.blobs_sent,
            blobs_present=self.tally.blobs_present,
            tags_set=tuple(dict.fromkeys(self._set)),
            error=self.error,
        )

    def halt(self) -> None:
        """Stop what is under way and drop the rest."""
        self._stop.set()
        self._looks.close()
        self._uploads.close()
        with self._changed:
            self._changed.notify_all()

    def wait(self, deadline: float) -> None:
        """After :meth:`halt`: wait for what was under way, until the monotonic ``deadline``."""
        self._looks.wait(deadline)
        self._uploads.wait(deadline)

    def fail(self, error: RayfleetError) -> None:
        """End the region; only the first error counts."""
        with self._changed:
            first = self.error is None and not self._stop.is_set()
            self.error = error if first else self.error
        if first:
            self.tally.set_state(FAILED)
            self.tally.tell(f"{self.name}: {failure(error)}")
            self._on_failure()
            self.halt()

    def _begin(self, workers: Workers, work: Callable[[], None], *, urgency: int = 0) -> None:
        with self._changed:
            self._pending += 1
        workers.do(lambda: self._attempt(work), urgency=urgency)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except RayfleetError as error:
            self.fail(error)
        except BaseException as error:  # raised by settle, in a thread that somebody watches
            if not self._stop.is_set():
                self._broken = error
                self.halt()
        finally:
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()

    def _read(self, tag: str) -> None:
        try:
            self.tags[tag] = self._client.manifest_digest(self._repository, tag)
        except RegistryFault:
            # distribution 2.8 answers 500 for a tag that it had no room to write down, until
            # the tag is set again. A registry that fails at all else fails at that, too.
            self.tags[tag] = None

    def _look(self, blob: Sendable) -> None:
        if self._client.has_blob(self._repository, blob.digest):
            self.tally.found(blob.size)
            return
        self.tally.lacks(blob.size)
        self._begin(self._uploads, lambda: self._send(blob), urgency=blob.size)

    def _send(self, blob: Sendable) -> None:
        self._client.send_blob(self._repository, blob, on_sent=self.tally.move, stop=self._stop)
        self.tally.finish(blob.size)

    def _supply(self, blobs: Iterable[Sendable]) -> None:
        for blob in blobs:
            self.offer(blob)
        self.settle()
        self.tally.announce()

    def _put_manifest(self, built: BuiltManifest, blobs: Iterable[Sendable]) -> None:
        self.tally.set_state("tagging")
        try:
            self._put(built.digest, built)
        except ToolFailed as refused:
            if BLOB_UNKNOWN not in refused.why:
                raise
            # One was deleted since it was looked for; or a tag was there whose blobs are not.
            self.tally.tell(f"{self.name}: {readable(built.size)} are looked for again")
            self.tally.recount()
            self._offered.clear()
            self._supply(blobs)
            self._put(built.digest, built)

    def _put_tag(self, tag: str, built: BuiltManifest) -> None:
        self._put(tag, built)
        self.tags[tag] = built.digest
        self._set.append(tag)

    def _put(self, reference: str, built: BuiltManifest) -> None:
        self._client.put_manifest(self._repository, reference, built.raw, built.media_type)

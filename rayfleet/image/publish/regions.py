"""All regions of a publish, step by step: a step of all of them before the next one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from rayfleet.bars import Layers, Tally
from rayfleet.image.fanout import GRACE_SECONDS, each_region
from rayfleet.image.publish.manifest import BuiltManifest
from rayfleet.image.publish.region import Region

if TYPE_CHECKING:
    from rayfleet.image.oci.client import Sendable

# How long to keep out of the way of another publisher that sets the same tags, in seconds; and
# how often to set them again.
PAUSES = (0.2, 0.4, 0.8, 1.6, 3.2)


class Regions:
    """The regions of one publish under ``tags``; those that have failed take no more part."""

    def __init__(self, tags: tuple[str, ...]) -> None:
        self.tags = tags
        self.members: list[Region] = []
        self.layers = Layers()
        self.abandoned = threading.Event()
        """Set when nothing more is wanted: no region is left, or the run is over."""

    @property
    def tallies(self) -> list[Tally]:
        """How far each region is."""
        return [region.tally for region in self.members]

    @property
    def working(self) -> list[Region]:
        """Those that have not failed."""
        return [region for region in self.members if region.error is None]

    @property
    def blobs_done(self) -> float:
        """When the last region had all its blobs, by the monotonic clock."""
        return max((region.blobs_done for region in self.members), default=0.0)

    def note_failure(self) -> None:
        """A region has failed."""
        if not self.working:
            self.abandoned.set()

    def read_tags(self) -> None:
        """Begin to read every tag of every region."""
        for region in self.members:
            region.look_at(self.tags)

    def offer(self, blob: Sendable) -> None:
        """Begin to send a blob to every region that lacks it."""
        for region in self.members:
            region.offer(blob)

    def supply(
        self, built: BuiltManifest, blobs: Iterable[Sendable], moving: Collection[str]
    ) -> None:
        """Get blobs, manifest and all but the ``moving`` tags to every region."""
        needed = tuple(blobs)
        fixed = [tag for tag in self.tags if tag not in moving]
        self._each(self.working, lambda region: region.complete(built, needed, fixed))

    def move(self, built: BuiltManifest, moving: Collection[str]) -> None:
        """Set the ``moving`` tags, if every region has all that comes before them."""
        tags = [tag for tag in self.tags if tag in moving]
        if self.working == self.members and self._differing(built, tags):
            self._each(self.members, lambda region: region.set_tags(built, tags))

    def verify(self, built: BuiltManifest) -> None:
        """Read every tag back from every region; set again what others have moved meanwhile.

        Whoever sets a tag last reads all of them after that, so two publishers at once end
        with all regions equal: one of them, the same for both, lets the other go first. Where
        nothing had to be set, the tags have just been read.
        """
        complete = self.working == self.members
        tags = self.tags if complete else self._set_everywhere(built)
        if complete and not any(region.touched for region in self.members):
            return
        self._read_back(tags)
        for pause in PAUSES:
            differing = self._differing(built, tags)
            if not differing:
                return
            if any(region.holds_above(tags, built.digest) for region in differing):
                self.abandoned.wait(pause)
                self._read_back(tags)
            self._each(self._differing(built, tags), lambda region: region.set_tags(built, tags))
            self._read_back(tags)
        for region in self.working:
            region.require(tags, built.digest)

    def halt(self) -> None:
        """Stop whatever is under way, and wait a moment for it."""
        self.abandoned.set()
        for region in self.members:
            region.halt()
        deadline = time.monotonic() + GRACE_SECONDS
        for region in self.members:
            region.wait(deadline)

    def _read_back(self, tags: Iterable[str]) -> None:
        self._each(self.working, lambda region: region.read_back(tags))

    def _set_everywhere(self, built: BuiltManifest) -> tuple[str, ...]:
        """The tags that all regions at work were brought to."""
        working = self.working
        return tuple(
            tag
            for tag in self.tags
            if working and not any(region.differing([tag], built.digest) for region in working)
        )

    def _differing(self, built: BuiltManifest, tags: Iterable[str]) -> list[Region]:
        known = tuple(tags)
        return [region for region in self.working if region.differing(known, built.digest)]

    def _each(self, regions: list[Region], step: Callable[[Region], None]) -> None:
        """Do ``step`` for all of them at once; an error ends only its own region."""
        known = {region.name: region for region in regions}
        outcomes = each_region(
            known, lambda name, _: step(known[name]), limit=max(1, len(known)), give_up=self.halt
        )
        for outcome in outcomes:
            if outcome.error is not None:
                known[outcome.region].fail(outcome.error)

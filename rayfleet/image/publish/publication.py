"""What came of a publish: per region and as a whole, as a table, as JSON, as an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rayfleet.bars import readable
from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError
from rayfleet.image.fanout import failure, region_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionResult:
    """One region: ``sent`` and ``present`` are bytes of blobs, the latter what was there.

    ``destination`` is ``host/path/of/repository``; ``tags_set`` are the tags that had to be
    set. ``error`` is what stopped the region, if anything did.
    """

    region: str
    destination: str
    sent: int
    present: int
    blobs_sent: int
    blobs_present: int
    tags_set: tuple[str, ...] = ()
    error: RayfleetError | None = None

    def as_json(self) -> dict[str, object]:
        """The result as ``--json`` prints it."""
        return {
            "image": self.destination,
            "bytes_sent": self.sent,
            "bytes_saved": self.present,
            "blobs_sent": self.blobs_sent,
            "blobs_present": self.blobs_present,
            "tags_set": list(self.tags_set),
            "error": failure(self.error) if self.error is not None else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """An image in its regions: under ``tags`` as ``digest`` wherever there is no error.

    ``size`` is the bytes of its distinct blobs, ``compressed`` the raw bytes that had to be
    compressed for it, ``source`` where the layers came from, ``revision`` the commit that the
    image's label names. ``seconds`` has one entry per phase: prepare (until every layer is
    compressed), upload, tags, verify.
    """

    image: str
    digest: str
    tags: tuple[str, ...]
    regions: tuple[RegionResult, ...]
    size: int
    compressed: int
    source: str
    revision: str
    seconds: Mapping[str, float]

    @property
    def complete(self) -> bool:
        """True when every region was verified."""
        return all(each.error is None for each in self.regions)

    @property
    def sent(self) -> int:
        """Bytes of blobs sent to all regions together."""
        return sum(each.sent for each in self.regions)

    @property
    def present(self) -> int:
        """Bytes of blobs that the regions had, together."""
        return sum(each.present for each in self.regions)

    def require(self, *, next_step: str) -> None:
        """Return if every region was verified.

        Raises:
            PartialFailure: some were not; it has one line per region.
        """
        if self.complete:
            return
        failed = sum(each.error is not None for each in self.regions)
        lines = region_lines((each.region, self._line(each)) for each in self.regions)
        raise PartialFailure(
            f"the image did not reach every region ({failed} of {len(self.regions)} failed); "
            "nothing was pinned",
            why="\n  ".join(["", *lines]),
            next_step=next_step,
        )

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print the result."""
        if as_json:
            console.json(self.as_json())
            return
        console.table(
            ("region", "image", "sent", "was there", "result"),
            [
                (
                    each.region,
                    each.destination,
                    readable(each.sent),
                    readable(each.present),
                    failure(each.error) if each.error is not None else "verified",
                )
                for each in self.regions
            ],
        )
        console.say(f"{', '.join(self.tags)}: {self.digest}")

    def as_json(self) -> dict[str, object]:
        """The result as ``--json`` prints it."""
        return {
            "image": self.image,
            "digest": self.digest,
            "tags": list(self.tags),
            "complete": self.complete,
            "size": self.size,
            "bytes_sent": self.sent,
            "bytes_saved": self.present,
            "bytes_compressed": self.compressed,
            "layers_from": self.source,
            "regions": {each.region: each.as_json() for each in self.regions},
            "seconds": rounded(self.seconds),
        }

    def _line(self, result: RegionResult) -> str:
        return failure(result.error) if result.error is not None else f"holds {self.digest}"


def rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase, to the millisecond."""
    return {name: round(value, 3) for name, value in seconds.items()}

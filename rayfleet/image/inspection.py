"""An image as it was found in every region, as values. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rayfleet.bars import readable
from rayfleet.console import Console
from rayfleet.errors import UsageError
from rayfleet.image.contents import Described
from rayfleet.image.fanout import Outcome, failure, failure_lines, region_lines
from rayfleet.image.labels import REVISION, VERSION
from rayfleet.image.promote.promotion import worst_kind
from rayfleet.image.references import Reference, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a region holds: the ``digest`` that the reference names there (or nothing), the
    digest behind each tag that was looked at, and how many tags were not."""

    digest: str
    tags: Mapping[str, str]
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """An image and where it is. ``pinned`` is current, previous or empty; ``destinations``
    maps a region to ``host/path/of/repository``."""

    reference: Reference
    digest: str
    pinned: str
    image: Described
    destinations: Mapping[str, str]
    regions: tuple[Outcome[Seen], ...]

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag that names the image in some region."""
        seen = (each.value.tags for each in self.regions if each.value is not None)
        return tuple(
            sorted({tag for tags in seen for tag, digest in tags.items() if digest == self.digest})
        )

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print the image, its layers and its regions on stdout."""
        if as_json:
            console.json(self.as_json())
            return
        # Plain lines: a table would fold the digest, which is then of no use to copy.
        for line in region_lines(self._facts()):
            console.data(line)
        console.data("")
        console.table(*self._parts())
        console.data("")
        headers = ("region", "state", "tags that name it")
        console.table(headers, [self._row(each) for each in self.regions])
        console.data("")
        for line in region_lines(self._pulls()):
            console.data(line)

    def require(self) -> None:
        """Return if every region answered.

        Raises:
            Unreachable: one or more do not answer.
            RayfleetError: one or more refuse.
        """
        refuse_silence(self.regions, next_step="invoke doctor")

    def as_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        image = self.image
        return {
            "family": self.reference.family,
            "reference": str(self.reference),
            "digest": self.digest,
            "media_type": image.media_type,
            "pinned": self.pinned or None,
            "created": image.created,
            "platforms": list(image.platforms),
            "labels": dict(image.labels),
            "size": image.size,
            "layers": [
                {"digest": part.digest, "size": part.size, "media_type": part.media_type}
                for part in image.contents.layers
            ],
            "images": [asdict(part) for part in image.contents.images],
            "regions": {each.region: self._region(each) for each in self.regions},
        }

    def _region(self, each: Outcome[Seen]) -> dict[str, object]:
        seen = each.value
        if seen is None:
            return {"state": "failed", "error": failure(each.error)}
        return {
            "state": self._state(seen),
            "digest": seen.digest or None,
            "tags": dict(seen.tags),
            "pull": self._pull(each.region),
        }

    def _facts(self) -> Iterator[tuple[str, str]]:
        image = self.image
        yield "image", str(replace(self.reference, digest=""))
        yield "digest", self.digest
        yield "pin", self.pinned or "no"
        yield "media type", image.media_type
        yield "created", image.created or "unknown"
        yield "platform", ", ".join(image.platforms) or "unknown"
        yield "version", image.labels.get(VERSION, "unknown")
        yield "revision", image.labels.get(REVISION, "unknown")
        yield "size", f"{readable(image.size)} in {len(image.blobs)} blobs"

    def _parts(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The headers and rows of the images of an index, or of the layers of an image."""
        contents = self.image.contents
        if contents.images:
            return ("platform", "manifest"), [
                (part.platform or "unknown", shortened(part.digest)) for part in contents.images
            ]
        return ("layer", "size", "digest"), [
            (str(number), readable(part.size), shortened(part.digest))
            for number, part in enumerate(contents.layers, 1)
        ]

    def _row(self, each: Outcome[Seen]) -> tuple[str, str, str]:
        seen = each.value
        if seen is None:
            return each.region, failure(each.error), ""
        return each.region, self._state(seen), "\n".join(self._naming(seen))

    def _pulls(self) -> Iterator[tuple[str, str]]:
        """Each region that holds the image, and what to pull there."""
        for each in self.regions:
            if each.value is not None and self._present(each.value):
                yield each.region, self._pull(each.region)

    def _state(self, seen: Seen) -> str:
        if not seen.digest:
            return "missing"
        return "present" if seen.digest == self.digest else f"differs: {shortened(seen.digest)}"

    def _present(self, seen: Seen) -> bool:
        return self.digest in {seen.digest, *seen.tags.values()}

    def _naming(self, seen: Seen) -> Iterator[str]:
        """The tags that name the image here, then those that should, as elsewhere they do."""
        here = [tag for tag in self.tags if seen.tags.get(tag) == self.digest]
        yield ", ".join(here) or "none"
        for tag in self.tags:
            digest = seen.tags.get(tag)
            if digest != self.digest:
                yield f"but {tag} is {shortened(digest) if digest else 'missing'}"
        if seen.skipped:
            yield f"{seen.skipped} more tags were not looked at"

    def _pull(self, region: str) -> str:
        return f"{self.destinations[region]}@{self.digest}"


def leading_digest(reference: Reference, regions: Sequence[Outcome[Seen]]) -> str:
    """The digest that most regions hold under ``reference``, the first one's among equals.

    Raises:
        UsageError: no region holds any.
        RayfleetError: no region that answers holds any, and others do not answer.
    """
    held = [each.value.digest for each in regions if each.value is not None and each.value.digest]
    if held:
        return Counter(held).most_common(1)[0][0]
    history = f"invoke image.history --image {reference.family}"
    refuse_silence(regions, next_step=history)
    raise UsageError(f"no region has {reference}", next_step=history)


def refuse_silence(regions: Sequence[Outcome[Seen]], *, next_step: str) -> None:
    """Return if every region answered.

    Raises:
        Unreachable: one or more do not answer.
        RayfleetError: one or more refuse.
    """
    errors = [each.error for each in regions if each.error is not None]
    if not errors:
        return
    silent = [each for each in regions if each.error is not None]
    raise worst_kind(errors)(
        f"{len(errors)} of {len(regions)} registries could not be read",
        why="\n  ".join(["", *failure_lines(silent, done=lambda seen: seen.digest)]),
        next_step=next((error.next_step for error in errors if error.next_step), next_step),
    )

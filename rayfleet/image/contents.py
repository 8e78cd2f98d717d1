"""What a manifest refers to: a configuration and layers, or the images of an index.

https://github.com/opencontainers/image-spec/blob/v1.1.0/manifest.md and image-index.md;
Docker's own manifests of schema 2 have the same shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rayfleet.errors import ToolFailed

if TYPE_CHECKING:
    from rayfleet.image.oci.client import Manifest, RegistryClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something that a manifest refers to; ``size`` is in bytes.

    ``platform`` (``linux/amd64``) stands beside an index's images only. An ``elsewhere`` part is
    a layer that registries do not hold, by its licence.
    """

    digest: str
    size: int
    media_type: str
    platform: str = ""
    elsewhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """An image's ``config`` and ``layers`` (lowest first), or the ``images`` of an index."""

    config: Part | None
    layers: tuple[Part, ...]
    images: tuple[Part, ...]

    @property
    def blobs(self) -> tuple[Part, ...]:
        """The distinct blobs that a registry holds for the manifest."""
        parts = (*self.layers, self.config) if self.config is not None else self.layers
        return tuple({part.digest: part for part in parts if not part.elsewhere}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An image as a registry describes it.

    ``blobs`` maps every distinct blob, those of an index's images included, to its bytes.
    ``created`` (RFC 3339) and ``labels`` are the configuration's, the first image's of an index.
    """

    media_type: str
    contents: Contents
    blobs: Mapping[str, int]
    created: str
    labels: Mapping[str, str]
    platforms: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of all blobs."""
        return sum(self.blobs.values())


def read_contents(manifest: Manifest) -> Contents:
    """Read a manifest or an index.

    Raises:
        ToolFailed: it is neither.
    """
    try:
        document = json.loads(manifest.raw)
        config = document.get("config")
        contents = Contents(
            config=_part(config) if config else None,
            layers=tuple(_parts(document, "layers")),
            images=tuple(_parts(document, "manifests")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(manifest, type(error).__name__) from error
    if contents.config is None and not {"layers", "manifests"} & document.keys():
        raise _unreadable(manifest, "it has neither layers nor images")
    return contents


def describe(client: RegistryClient, repository: str, digest: str) -> Described:
    """What the image ``digest`` of a repository is made of, an index with all its images.

    Raises:
        ToolFailed: something of it is missing or damaged.
        Unreachable: the registry does not answer.
    """
    manifest = client.manifest(repository, digest)
    contents = read_contents(manifest)
    blobs = {part.digest: part.size for part in contents.blobs}
    created, labels, platforms = "", dict[str, str](), [image.platform for image in contents.images]
    if contents.config is not None:
        config = client.config(repository, contents.config.digest)
        created, labels = config.created, dict(config.labels)
        platforms = ["/".join(name for name in (config.os, config.architecture) if name)]
    for image in contents.images:
        found = describe(client, repository, image.digest)
        created, labels = created or found.created, labels or dict(found.labels)
        blobs |= found.blobs
    return Described(
        media_type=manifest.media_type,
        contents=contents,
        blobs=blobs,
        created=created,
        labels=labels,
        platforms=tuple(dict.fromkeys(name for name in platforms if name)),
    )


def _parts(document: dict[str, Any], key: str) -> Iterator[Part]:
    return map(_part, document.get(key) or ())


def _part(entry: Any) -> Part:
    media_type = str(entry.get("mediaType", ""))
    platform = entry.get("platform")
    keys = ("os", "architecture", "variant") if isinstance(platform, dict) else ()
    return Part(
        digest=str(entry["digest"]),
        size=int(entry["size"]),
        media_type=media_type,
        platform="/".join(str(platform[key]) for key in keys if platform.get(key)),
        elsewhere="nondistributable" in media_type or "foreign" in media_type,
    )


def _unreadable(manifest: Manifest, why: str) -> ToolFailed:
    return ToolFailed(
        f"the manifest {manifest.digest} ({manifest.media_type}) is not one of an image", why=why
    )

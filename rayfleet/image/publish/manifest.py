"""The manifest of an image, made here: the same bytes for the same blobs, everywhere. Pure."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from rayfleet.errors import ToolFailed
from rayfleet.image.labels import REVISION

if TYPE_CHECKING:
    from rayfleet.image.layers.collect import Collected

# https://github.com/opencontainers/image-spec/blob/v1.1.0/manifest.md. Always these, never
# Docker's own: schema 2 has no media type for zstd.
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigBlob:
    """An image's configuration as something to send."""

    digest: str
    data: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.data)

    @property
    def revision(self) -> str:
        """The commit that the image's label names; empty without one."""
        labels = json.loads(self.data).get("config", {}).get("Labels") or {}
        return str(labels.get(REVISION, ""))

    def open(self) -> BinaryIO:
        """A stream of it."""
        return io.BytesIO(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltManifest:
    """A manifest and the configuration that it names. ``size`` is that of all distinct blobs."""

    raw: bytes = field(repr=False)
    digest: str
    media_type: str
    config: ConfigBlob
    size: int


def build_manifest(collected: Collected) -> BuiltManifest:
    """The OCI manifest of an image's configuration and layers, in the image's order.

    Raises:
        ToolFailed: the layers are not those that the configuration names.
    """
    config = ConfigBlob(digest=sha256(collected.config), data=collected.config)
    named = _diff_ids(collected.config)
    if named != [blob.diff_id for blob in collected.blobs]:
        raise ToolFailed(
            "the engine's layers are not those of the image's configuration",
            why=f"{len(collected.blobs)} layers were read, the configuration names {len(named)}",
            next_step="build the image again",
        )
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "digest": config.digest, "size": config.size},
        "layers": [
            {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size}
            for blob in collected.blobs
        ],
    }
    raw = json.dumps(document, separators=(",", ":")).encode()
    sizes = {blob.digest: blob.size for blob in collected.blobs}
    return BuiltManifest(
        raw=raw,
        digest=sha256(raw),
        media_type=MANIFEST_TYPE,
        config=config,
        size=sum(sizes.values()) + config.size,
    )


def sha256(data: bytes) -> str:
    """The digest of ``data`` as manifests write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _diff_ids(config: bytes) -> list[str]:
    try:
        return [str(each) for each in json.loads(config)["rootfs"].get("diff_ids") or ()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolFailed(
            "the engine's image has an unreadable configuration", why=type(error).__name__
        ) from error

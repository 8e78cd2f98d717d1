"""The JSON files of an image's archive, and which of them is the image's config."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rayfleet.image.layers.collect import LocalImage

# Bytes up to which an entry may be a document: the most that registries take of a manifest.
SMALL = 4 << 20
# Bytes of documents that are kept; those of an image are some KB.
MAX_DOCUMENTS = 16 << 20

_ATTESTATION = "vnd.docker.reference.type"


class Documents:
    """The JSON files of an archive, and the config of the image among them."""

    def __init__(self) -> None:
        self._by_digest: dict[str, bytes] = {}
        self._by_name: dict[str, str] = {}
        self._size = 0

    def offer(self, name: str, raw: bytes) -> None:
        """Keep ``raw`` if it may be a config, or on the way to it."""
        if self._size + len(raw) <= MAX_DOCUMENTS and _matters(_parsed(raw)):
            digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
            self._by_digest[digest] = raw
            self._by_name[name.removeprefix("./")] = digest
            self._size += len(raw)

    def exact_config(self, image: LocalImage) -> bytes | None:
        """The config that the image ID is the digest of, as in a classic engine and podman."""
        raw = self._by_digest.get(image.id)
        return raw if raw is not None and _fits(raw, image) else None

    def config(self, image: LocalImage) -> bytes | None:
        """The config of ``image``: its ID leads to it, or the archive's indexes do."""
        digests = (
            image.id,
            *self._configs_below(image.id, image),
            *self._configs_below(self._by_name.get("index.json", ""), image),
            *self._named_configs(),
        )
        found = (self._by_digest.get(digest) for digest in digests)
        return next((raw for raw in found if raw is not None and _fits(raw, image)), None)

    def _configs_below(self, digest: str, image: LocalImage, depth: int = 0) -> Iterator[str]:
        """Configs of manifests for the image's platform; attestations and others are left out."""
        document = _parsed(self._by_digest.get(digest, b""))
        if not isinstance(document, dict) or depth > 4:  # an index of indexes at most
            return
        for descriptor in _mappings(document.get("manifests")):
            if _is_for(descriptor, image):
                yield from self._configs_below(str(descriptor.get("digest")), image, depth + 1)
        for descriptor in _mappings([document.get("config")]):
            yield str(descriptor.get("digest"))

    def _named_configs(self) -> Iterator[str]:
        manifest = _parsed(self._by_digest.get(self._by_name.get("manifest.json", ""), b""))
        for item in _mappings(manifest):
            yield self._by_name.get(str(item.get("Config")), "")


def _parsed(raw: bytes) -> Any:
    if raw[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _matters(document: Any) -> bool:
    """True for configs, manifests, indexes and manifest.json; not for SBOMs and the like."""
    if isinstance(document, list):
        return any("Config" in item for item in _mappings(document))
    return isinstance(document, dict) and not document.keys().isdisjoint(
        ("rootfs", "manifests", "config")
    )


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _is_for(descriptor: dict[str, Any], image: LocalImage) -> bool:
    annotations, platform = descriptor.get("annotations"), descriptor.get("platform")
    if isinstance(annotations, dict) and _ATTESTATION in annotations:
        return False
    if not isinstance(platform, dict):
        return True
    return (platform.get("os"), platform.get("architecture")) == (image.os, image.architecture)


def _fits(raw: bytes, image: LocalImage) -> bool:
    """True for a config with the image's own layers and platform."""
    config = _parsed(raw)
    if not isinstance(config, dict) or not isinstance(config.get("rootfs"), dict):
        return False
    return (config["rootfs"].get("diff_ids") or []) == list(image.diff_ids) and (
        config.get("os"),
        config.get("architecture"),
    ) == (image.os, image.architecture)

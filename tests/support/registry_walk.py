"""What a registry really holds, read past every proxy and hashed here."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any

import urllib3

from tests.support.registry import LocalRegistry

ACCEPT = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True, kw_only=True)
class Held:
    """An image that a registry holds in full.

    ``blobs`` maps the digest of its config and of each distinct layer to its bytes;
    ``diff_ids`` are those of the layers, hashed here after decompression.
    """

    digest: str
    manifest: bytes
    blobs: dict[str, int]
    config: bytes
    diff_ids: tuple[str, ...]


class Walk:
    """Reads one repository of a registry, directly."""

    def __init__(self, registry: LocalRegistry, repository: str) -> None:
        self.known: dict[str, Held] = {}
        self.base = f"http://{registry.host}/v2/{repository}"
        stored = registry.folder / "store/docker/registry/v2/repositories"
        self.layers = stored / repository / "_layers" / "sha256"
        self.tag_links = stored / repository / "_manifests" / "tags"
        self.headers = urllib3.make_headers(
            basic_auth=f"{registry.username}:{registry.password}"
        ) | {"accept": ACCEPT}

    def tags(self) -> dict[str, Held]:
        """What is behind each tag.

        Raises AssertionError for a tag whose image is not there in full, byte for byte.
        """
        response = self._get("tags/list")
        named = [] if response.status == 404 else response.json().get("tags") or []
        return {tag: self.image(tag) for tag in named}

    def image(self, reference: str) -> Held:
        """The image behind a tag or digest, every byte of it checked."""
        response = self._get(f"manifests/{reference}")
        assert response.status == 200, f"{self.base}: {reference}: {response.data!r}"
        digest = sha256(response.data)
        assert response.headers["Docker-Content-Digest"] == digest
        if digest not in self.known:
            self.known[digest] = self._checked(response, digest)
        return self.known[digest]

    def _checked(self, response: urllib3.BaseHTTPResponse, digest: str) -> Held:
        manifest: dict[str, Any] = response.json()
        config = self._blob(manifest["config"])
        layers = [self._blob(layer) for layer in manifest["layers"]]
        diff_ids = tuple(sha256(decompressed(layer)) for layer in layers)
        assert list(diff_ids) == json.loads(config)["rootfs"]["diff_ids"]
        blobs = {each["digest"]: each["size"] for each in (manifest["config"], *manifest["layers"])}
        return Held(
            digest=digest,
            manifest=response.data,
            blobs=blobs,
            config=config,
            diff_ids=diff_ids,
        )

    def blobs(self) -> set[str]:
        """The digests of all blobs in the repository, from the registry's own disk."""
        links = self.layers.glob("*/link")
        return {f"sha256:{each.parent.name}" for each in links if each.stat().st_size}

    def has(self, digest: str) -> bool:
        """True if the repository has this blob."""
        return self._request("HEAD", f"blobs/{digest}").status == 200

    def delete(self, digest: str) -> None:
        """Take a blob out of the repository."""
        assert self._request("DELETE", f"blobs/{digest}").status == 202

    def _blob(self, descriptor: dict[str, Any]) -> bytes:
        digest = descriptor["digest"]
        response = self._get(f"blobs/{digest}")
        assert response.status == 200, f"{self.base} lacks {digest}"
        data = response.data
        assert (sha256(data), len(data)) == (digest, descriptor["size"])
        return data

    def _get(self, path: str) -> urllib3.BaseHTTPResponse:
        return self._request("GET", path)

    def _request(self, method: str, path: str) -> urllib3.BaseHTTPResponse:
        return urllib3.request(method, f"{self.base}/{path}", headers=self.headers)


def decompressed(blob: bytes) -> bytes:
    """The tar in a layer that is gzip or zstd."""
    if blob.startswith(b"\x1f\x8b"):
        return zlib.decompress(blob, wbits=31)
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj().decompress(blob)


def sha256(data: bytes) -> str:
    """A digest as manifests write it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"

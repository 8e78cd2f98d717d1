"""Archives as Docker, the containerd image store and podman write them, made by hand."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayfleet.fleet.model import Compression
from rayfleet.image.layers.collect import LocalImage

PLATFORM = {"architecture": "amd64", "os": "linux"}
EMPTY_LAYER = bytes(1024)

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def hex_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tar_of(files: Mapping[str, bytes], *, links: Mapping[str, str] | None = None) -> bytes:
    """A tar of ``files``, and of symlinks by their targets."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return content.getvalue()


@dataclass(frozen=True, kw_only=True)
class MadeImage:
    """An image of uncompressed ``layers``, lowest first."""

    layers: tuple[bytes, ...]
    config: bytes

    @property
    def local(self) -> LocalImage:
        """The image as an engine would show it whose image IDs are digests of configs."""
        return LocalImage(
            id=digest_of(self.config),
            diff_ids=tuple(map(digest_of, self.layers)),
            size=sum(map(len, self.layers)),
            **PLATFORM,
        )


def make_image(*layers: bytes, **config: Any) -> MadeImage:
    """An image whose config also holds ``config``."""
    document = {
        **PLATFORM,
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
        **config,
    }
    return MadeImage(layers=layers, config=json.dumps(document).encode())


def legacy_archive(image: MadeImage) -> bytes:
    """As Docker before 25: the second of two like layers is a symlink."""
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    first: dict[bytes, str] = {}
    names = []
    for number, layer in enumerate(image.layers):
        folder = hex_of(b"%d %s" % (number, layer))
        files[f"{folder}/VERSION"] = b"1.0"
        files[f"{folder}/json"] = json.dumps({"id": folder}).encode()
        names.append(f"{folder}/layer.tar")
        if layer in first:
            links[names[-1]] = f"../{first[layer]}"
        else:
            files[names[-1]] = layer
            first[layer] = names[-1]
    return tar_of({**files, **_docker_documents(image, names)}, links=links)


def podman_archive(image: MadeImage) -> bytes:
    """As podman: layers by their diff ids, with symlinks for older readers."""
    names = [f"{hex_of(layer)}.tar" for layer in image.layers]
    files = dict(zip(names, image.layers, strict=True))
    links = {f"{hex_of(name.encode())}/layer.tar": f"../{name}" for name in names}
    return tar_of({**files, **_docker_documents(image, names)}, links=links)


def _docker_documents(image: MadeImage, layers: Sequence[str]) -> dict[str, bytes]:
    config = f"{hex_of(image.config)}.json"
    manifest = [{"Config": config, "RepoTags": ["name:tag"], "Layers": list(layers)}]
    return {
        config: image.config,
        "repositories": b'{"name": {"tag": "x"}}',
        "manifest.json": json.dumps(manifest).encode(),
    }


class OciLayout:
    """An OCI layout: blobs first, then ``index.json`` and Docker's ``manifest.json``."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.descriptors: list[dict[str, Any]] = []
        self.docker_manifest: list[dict[str, Any]] = []

    def add(self, content: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        """Store ``content``; its descriptor."""
        self.blobs[f"blobs/sha256/{hex_of(content)}"] = content
        digest, size = digest_of(content), len(content)
        return {"mediaType": media_type, "digest": digest, "size": size, **more}

    def add_json(self, document: Any, media_type: str, **more: Any) -> dict[str, Any]:
        """Store ``document``; its descriptor."""
        return self.add(json.dumps(document).encode(), media_type, **more)

    def add_image(
        self,
        image: MadeImage,
        *,
        packed: Sequence[bytes] | None = None,
        suffix: str = "",
        platform: Mapping[str, str] = PLATFORM,
    ) -> dict[str, Any]:
        """Store an image, its layers as ``packed`` if given; the manifest's descriptor."""
        layers = [self.add(layer, _LAYER + suffix) for layer in packed or image.layers]
        config = self.add(image.config, "application/vnd.oci.image.config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": layers}
        return self.add_json(manifest, _MANIFEST, platform=dict(platform))

    def add_attestation(self, of: Mapping[str, Any]) -> dict[str, Any]:
        """Store a provenance for the manifest ``of`` as BuildKit does; its descriptor."""
        statement = json.dumps({"_type": "https://in-toto.io/Statement/v0.1"}).encode()
        layer = self.add(statement, "application/vnd.in-toto+json")
        rootfs = {"type": "layers", "diff_ids": [digest_of(statement)]}
        unknown = {"architecture": "unknown", "os": "unknown"}
        config = self.add_json({**unknown, "rootfs": rootfs}, "application/vnd.oci.image.config")
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": [layer]}
        annotations = {
            "vnd.docker.reference.type": "attestation-manifest",
            "vnd.docker.reference.digest": of["digest"],
        }
        return self.add_json(manifest, _MANIFEST, platform=unknown, annotations=annotations)

    def add_index(self, *manifests: dict[str, Any]) -> dict[str, Any]:
        """Store an index of ``manifests``; its descriptor."""
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": list(manifests)}
        return self.add_json(index, _INDEX)

    def archive(self, *top: dict[str, Any]) -> bytes:
        """The tar of it all, ``index.json`` listing ``top``."""
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": list(top)}
        files = {
            **dict(sorted(self.blobs.items())),
            "index.json": json.dumps(index).encode(),
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        }
        if self.docker_manifest:
            files["manifest.json"] = json.dumps(self.docker_manifest).encode()
        return tar_of(files)


class ArchiveEngine:
    """An engine whose export is ``archive``, in chunks of ``chunk`` bytes.

    ``exports`` counts how often it was asked, ``given`` the bytes that were taken.
    """

    address = "unix:///somewhere.sock"

    def __init__(self, archive: bytes, *, chunk: int = 32 << 10) -> None:
        self._archive = archive
        self._chunk = chunk
        self.exports = 0
        self.given = 0

    def store_root(self) -> Path | None:
        """It is far away."""
        return None

    def export(self, image_id: str) -> Iterator[bytes]:
        """The archive, whatever the image."""
        self.exports += 1
        return self._chunks()

    def _chunks(self) -> Iterator[bytes]:
        for start in range(0, len(self._archive), self._chunk):
            self.given += self._chunk
            yield self._archive[start : start + self._chunk]


def compress(layer: bytes, compression: Compression) -> bytes:
    """A layer as somebody else compresses it: not as rayfleet does."""
    if compression is Compression.GZIP:
        import gzip

        return gzip.compress(layer, compresslevel=6, mtime=0)
    import zstandard

    return zstandard.ZstdCompressor(level=5).compress(layer)

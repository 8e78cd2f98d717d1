"""Images with layers and indexes of them, pushed to a test's registry without an engine."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence

import urllib3

from tests.support.registry import LocalRegistry

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def push_image(
    registry: LocalRegistry,
    repository: str,
    tag: str = "",
    *,
    layers: Sequence[bytes] = (b"base", b"top"),
    labels: Mapping[str, str] | None = None,
    architecture: str = "amd64",
) -> str:
    """Push an image whose layers are what is given, compressed; returns its digest."""
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": "2025-12-09T00:00:00Z",
        "config": {"Labels": dict(labels or {})},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
    }
    blobs = [(LAYER, gzip.compress(layer, mtime=0)) for layer in layers]
    described = [_send(registry, repository, *blob) for blob in blobs]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _send(registry, repository, CONFIG, json.dumps(config).encode()),
        "layers": described,
    }
    return put(registry, repository, tag, json.dumps(manifest).encode(), MANIFEST)


def push_index(registry: LocalRegistry, repository: str, tag: str, images: Sequence[str]) -> str:
    """Push an index of ``images`` (digests), each for a platform of its own."""
    entries = []
    for number, digest in enumerate(images):
        response = request(registry, "GET", f"{repository}/manifests/{digest}", accept=MANIFEST)
        entries.append(
            {
                "mediaType": MANIFEST,
                "digest": digest,
                "size": len(response.data),
                "platform": {"os": "linux", "architecture": ("amd64", "arm64")[number]},
            }
        )
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    return put(registry, repository, tag, json.dumps(index).encode(), INDEX)


def put(registry: LocalRegistry, repository: str, tag: str, raw: bytes, media_type: str) -> str:
    """Put a manifest under ``tag``, or under its digest alone."""
    path = f"{repository}/manifests/{tag or digest_of(raw)}"
    answer = request(registry, "PUT", path, body=raw, media_type=media_type)
    assert answer.status == 201, answer.data
    return digest_of(raw)


def tag_of(registry: LocalRegistry, repository: str, tag: str) -> str:
    """The digest behind a tag, empty if there is none."""
    path = f"{repository}/manifests/{tag}"
    answer = request(registry, "HEAD", path, accept=f"{MANIFEST}, {INDEX}")
    return str(answer.headers["Docker-Content-Digest"]) if answer.status == 200 else ""


def request(
    registry: LocalRegistry,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    media_type: str = "",
    accept: str = "",
) -> urllib3.BaseHTTPResponse:
    """One request of the registry's, with its password."""
    headers = urllib3.make_headers(basic_auth=f"{registry.username}:{registry.password}")
    headers |= {"Content-Type": media_type} if media_type else {}
    headers |= {"Accept": accept} if accept else {}
    url = path if path.startswith("http") else f"http://{registry.host}/v2/{path}"
    return urllib3.request(method, url, body=body, headers=headers)


def digest_of(data: bytes) -> str:
    """``sha256:…`` of ``data``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _send(
    registry: LocalRegistry, repository: str, media_type: str, data: bytes
) -> dict[str, object]:
    """Upload a blob; returns its descriptor."""
    started = request(registry, "POST", f"{repository}/blobs/uploads/")
    target = f"{started.headers['Location']}&digest={digest_of(data)}"
    stored = request(registry, "PUT", target, body=data)
    assert stored.status == 201, stored.data
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}

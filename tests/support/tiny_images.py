"""Images of no layers, pushed to a test's registry and made old."""

from __future__ import annotations

import hashlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import urllib3

from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.oci.credentials import Credentials
from tests.support.artifact_registry import PROJECT
from tests.support.registry import LocalRegistry

IMAGE = f"{PROJECT}/marin/marin_cluster"
MEDIA_TYPE = "application/vnd.oci.image.manifest.v1+json"


def client_of(registry: LocalRegistry) -> RegistryClient:
    return RegistryClient(
        registry.host, Credentials(username=registry.username, password=registry.password)
    )


def push(registry: LocalRegistry, tag: str, *, days_old: float = 0.0) -> str:
    """Push an image of no layers that only ``tag`` tells apart; returns its digest."""
    http = urllib3.PoolManager(
        headers=urllib3.make_headers(basic_auth=f"{registry.username}:{registry.password}")
    )
    base = f"http://{registry.host}/v2/{IMAGE}"
    config = json.dumps({"architecture": "amd64", "os": "linux", "comment": tag}).encode()
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    upload = http.request("POST", f"{base}/blobs/uploads/").headers["Location"]
    stored = http.request("PUT", f"{upload}&digest={digest}", body=config)
    assert stored.status == 201, stored.data
    manifest = {
        "schemaVersion": 2,
        "mediaType": MEDIA_TYPE,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest,
            "size": len(config),
        },
        "layers": [],
    }
    pushed = put_manifest(registry, tag, json.dumps(manifest).encode())
    if days_old:
        age(registry, pushed, days=days_old)
    return pushed


def put_manifest(registry: LocalRegistry, tag: str, manifest: bytes) -> str:
    headers = urllib3.make_headers(basic_auth=f"{registry.username}:{registry.password}")
    answer = urllib3.request(
        "PUT",
        f"http://{registry.host}/v2/{IMAGE}/manifests/{tag}",
        body=manifest,
        headers={**headers, "Content-Type": MEDIA_TYPE},
    )
    assert answer.status == 201, answer.data
    return str(answer.headers["Docker-Content-Digest"])


def age(registry: LocalRegistry, digest: str, *, days: float) -> None:
    """Make the registry's record of ``digest`` as old as if it was pushed ``days`` ago."""
    revisions = Path("docker/registry/v2/repositories") / IMAGE / "_manifests/revisions/sha256"
    link = registry.folder / "store" / revisions / digest.removeprefix("sha256:") / "link"
    then = time.time() - timedelta(days=days).total_seconds()
    os.utime(link, (then, then))

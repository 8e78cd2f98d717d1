"""Real registries (Debian's docker-registry) on 127.0.0.1, and what their access logs tell."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from publishing.processes import Background, background

PROGRAM = "docker-registry"
REGIONS = ("us-central1", "us-east5", "europe-west4", "asia-northeast1")
REPOSITORY = "rayfleet-bench/marin/cluster"
ANSWER_SECONDS = 30.0
AGENT = "rayfleet-bench"  # our own questions, which are no part of what is measured
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
# The access log is in Apache's combined format; a blob is there once its PUT answered 201.
_REQUEST = re.compile(rf'"[A-Z]+ /v2/\S* HTTP/1\.1" \d+ (?!.*"{AGENT}")')
_UPLOAD = re.compile(r'"PUT /v2/\S+/blobs/uploads/\S+[?&]digest=([^&\s]+)\S* HTTP/1\.1" 201')


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a registry has under a tag."""

    digest: str
    blobs: frozenset[str]  # the configuration and the layers
    packed: int  # the bytes of the layers, compressed
    diff_ids: tuple[str, ...]


@dataclass(kw_only=True)
class Registry:
    """One region's registry. ``known`` are the blobs that it had before the run at hand."""

    region: str
    server: Background
    log: Path
    store: Path
    known: set[str] = field(default_factory=set)
    _read: int = 0

    @property
    def host(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.server.port}"

    def manifest(self, tag: str) -> Manifest:
        """Read what lies under ``tag``.

        Raises:
            SystemExit: nothing, or something incomplete.
        """
        raw, digest = self._get(f"manifests/{tag}")
        described = json.loads(raw)
        config = described["config"]["digest"]
        layers = [layer["digest"] for layer in described["layers"]]
        diff_ids = json.loads(self._get(f"blobs/{config}")[0])["rootfs"]["diff_ids"]
        return Manifest(
            digest=digest,
            blobs=frozenset([config, *layers]),
            packed=sum(layer["size"] for layer in described["layers"]),
            diff_ids=tuple(diff_ids),
        )

    def holds(self, digest: str) -> bool:
        """Whether the registry has the blob."""
        return self._ask("HEAD", f"blobs/{digest}")[0] == 200

    def log_mark(self) -> None:
        """Forget what the access log has so far."""
        self._read = self.log.stat().st_size

    def log_since_mark(self) -> tuple[Counter[str], int]:
        """Since the mark: how often each blob was uploaded to its end, and all requests."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            text = log.read().decode(errors="replace")
        uploads = Counter(unquote(digest) for digest in _UPLOAD.findall(text))
        return uploads, len(_REQUEST.findall(text))

    def _get(self, path: str) -> tuple[bytes, str]:
        status, body, digest = self._ask("GET", path)
        if status != 200:
            raise SystemExit(f"{self.region} answers {status} for {path}")
        return body, digest

    def _ask(self, method: str, path: str) -> tuple[int, bytes, str]:
        client = http.client.HTTPConnection(self.host, timeout=ANSWER_SECONDS)
        with closing(client):
            headers = {"Accept": ",".join(MANIFESTS), "User-Agent": AGENT}
            client.request(method, f"/v2/{REPOSITORY}/{path}", headers=headers)
            answer = client.getresponse()
            return answer.status, answer.read(), answer.getheader("Docker-Content-Digest", "")


@contextmanager
def registries(folder: Path) -> Iterator[list[Registry]]:
    """One empty registry per region, on ports never used before; gone with the block."""
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield [stack.enter_context(_registry(region, folder / region)) for region in REGIONS]


@contextmanager
def _registry(region: str, folder: Path) -> Iterator[Registry]:
    store = folder / "store"
    store.mkdir(parents=True)
    config = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": False}},
        "storage": {
            "cache": {"blobdescriptor": "inmemory"},
            "filesystem": {"rootdirectory": str(store)},
        },
        "http": {"addr": "127.0.0.1:0", "secret": secrets.token_hex(16)},
    }
    path, log = folder / "config.json", folder / "registry.log"
    path.write_text(json.dumps(config))  # JSON is YAML
    with background([PROGRAM, "serve", str(path)], log=log, port_in=_port) as server:
        yield Registry(region=region, server=server, log=log, store=store)


def _port(log: str) -> int | None:
    found = _LISTENING.search(log)
    return int(found.group(1)) if found else None


def check(registries: Sequence[Registry], tags: Sequence[str], diff_ids: Sequence[str]) -> Manifest:
    """The one manifest that all registries have under all ``tags``.

    Raises:
        SystemExit: they differ, or it is another image, or a blob of it is missing.
    """
    found = {(each.region, tag): each.manifest(tag) for each in registries for tag in tags}
    digests = {manifest.digest for manifest in found.values()}
    if len(digests) != 1:
        lines = "\n".join(f"  {region} {tag}: {one.digest}" for (region, tag), one in found.items())
        raise SystemExit(f"the registries differ:\n{lines}")
    manifest = next(iter(found.values()))
    if manifest.diff_ids != tuple(diff_ids):
        raise SystemExit(f"{manifest.digest} is another image than the one to publish")
    for each in registries:
        missing = [blob for blob in manifest.blobs if not each.holds(blob)]
        if missing:
            raise SystemExit(f"{each.region} lacks {', '.join(missing)}")
    return manifest

"""A registry in memory that notes what it was asked, and refuses what a real one refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from rayfleet.errors import ToolFailed
from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.publish.manifest import sha256


@dataclass(frozen=True, kw_only=True)
class MemoryBlob:
    """Something to send that is never read."""

    digest: str
    size: int
    diff_id: str = ""
    media_type: str = "application/vnd.oci.image.layer.v1.tar+gzip"

    def open(self) -> BinaryIO:
        """Never called here."""
        raise AssertionError("a registry in memory reads nothing")


@dataclass
class MemoryRegistry(RegistryClient):
    """Blobs, manifests and tags of one repository; ``log`` has (what, of what), in order.

    ``before`` is called with the same pair ahead of every request.
    """

    blobs: set[str] = field(default_factory=set)
    manifests: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)  # type: ignore[assignment]
    log: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda what, of: None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def asked(self, what: str) -> list[str]:
        """Of what ``what`` was asked, in order."""
        return [of for name, of in self.log if name == what]

    def has_blob(self, repository: str, digest: str) -> bool:
        self._note("look", digest)
        return digest in self.blobs

    def send_blob(  # type: ignore[override]
        self,
        repository: str,
        blob: MemoryBlob,
        *,
        on_sent: Callable[[int], None],
        stop: threading.Event,
    ) -> None:
        self._note("send", blob.digest)
        on_sent(blob.size)
        with self.lock:
            self.blobs.add(blob.digest)

    def put_manifest(self, repository: str, reference: str, raw: bytes, media_type: str) -> str:
        self._note("put", reference)
        document, digest = json.loads(raw), sha256(raw)
        with self.lock:
            named = {each["digest"] for each in (document["config"], *document["layers"])}
            if named - self.blobs:
                raise ToolFailed(
                    "registry memory does not take it", why="HTTP 404 MANIFEST_BLOB_UNKNOWN: blob"
                )
            self.manifests[digest] = raw
            if not reference.startswith("sha256:"):
                self.tags[reference] = digest
        return digest

    def manifest_digest(self, repository: str, reference: str) -> str | None:
        self._note("read", reference)
        return self.tags.get(reference)

    def _note(self, what: str, of: str) -> None:
        self.before(what, of)
        with self.lock:
            self.log.append((what, of))

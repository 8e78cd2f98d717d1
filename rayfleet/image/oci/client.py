"""A client of the OCI Distribution API (specification 1.1), as far as rayfleet needs it."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, urljoin

from rayfleet.errors import ToolFailed
from rayfleet.image.oci.authorization import deleting, pulling, pushing
from rayfleet.image.oci.http import Http
from rayfleet.image.oci.limits import Limits
from rayfleet.image.oci.patience import Reply, Retries
from rayfleet.image.oci.refusals import error_codes
from rayfleet.image.oci.rights import Action
from rayfleet.image.oci.session import Session
from rayfleet.image.oci.upload import (
    DIGEST_HEADER,
    Sendable,
    Upload,
    has_blob,
    mount_blob,
    require_digest,
    try_upload,
)

if TYPE_CHECKING:
    from rayfleet.image.oci.credentials import Credentials, Login

__all__ = ["ImageConfig", "Manifest", "RegistryClient", "Sendable"]

MANIFEST_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_ACCEPT_MANIFEST = {"Accept": ", ".join(MANIFEST_TYPES)}
_PAGE = 1000
MOST_PAGES = 500
"""Pages of tags that are read, of a thousand tags each if the registry gives so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest as the registry has it, byte for byte; ``digest`` was computed from ``raw``."""

    raw: bytes = field(repr=False)
    media_type: str
    digest: str

    @property
    def config_digest(self) -> str:
        """The digest of the image's configuration; empty for an index."""
        return str(json.loads(self.raw).get("config", {}).get("digest", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """The part of an image's configuration that rayfleet reads; ``created`` is RFC 3339."""

    created: str
    labels: Mapping[str, str]
    architecture: str = ""
    os: str = ""


class RegistryClient:
    """One registry; safe to use from several threads.

    Loopback hosts are spoken to over plain HTTP, all others over TLS with the machine's CA
    bundle and through its proxy. Every method raises Unreachable when the registry does not
    answer or fails, and ToolFailed, with its own words, when it refuses. ``limits`` is shared
    by the clients of a run.
    """

    def __init__(
        self,
        host: str,
        login: Login | Credentials | None,
        *,
        retries: Retries | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.host = host
        self._limits = limits or Limits()
        http = Http(host, retries=retries or Retries(), uploads=self._limits.per_registry)
        self._session = Session(http, login if callable(login) else lambda _: login)

    def __enter__(self) -> Self:
        """Nothing is connected yet."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request would open new ones."""
        self._session.http.close()

    def ping(self) -> None:
        """Return if the registry answers and accepts the credentials."""
        self._session.expect(self._session.request("GET", "/v2/"), "answer", {200})

    def try_upload(self, repository: str) -> None:
        """Return if the repository takes uploads from us; one is begun and cancelled."""
        try_upload(self._session, repository)

    def has_blob(self, repository: str, digest: str) -> bool:
        """True if the repository has the blob."""
        return has_blob(self._session, repository, digest)

    def send_blob(
        self,
        repository: str,
        blob: Sendable,
        *,
        on_sent: Callable[[int], None] = lambda count: None,
        stop: threading.Event | None = None,
    ) -> None:
        """Send a whole blob, without a look whether it is there.

        ``on_sent`` gets the bytes that went out, and what was counted as a negative number
        when the upload starts again.

        Raises:
            Interrupted: ``stop`` was set.
        """
        Upload(
            self._session, repository, blob, limits=self._limits, on_sent=on_sent, stop=stop
        ).run()

    def mount_blob(self, repository: str, digest: str, *, source: str) -> bool:
        """Let ``repository`` have a blob of ``source``, in the same registry, without its bytes.

        False if the registry does not: it has no such blob, or mounts none.
        """
        return mount_blob(self._session, repository, digest, source=source)

    def put_manifest(self, repository: str, reference: str, raw: bytes, media_type: str) -> str:
        """Put a manifest, whose blobs are there, under a tag or its digest; returns the digest.

        Raises:
            ToolFailed: also if the registry took it under another digest.
        """
        path = f"/v2/{repository}/manifests/{quote(reference, safe=':')}"
        reply = self._session.request(
            "PUT", path, (pushing(repository),), headers={"Content-Type": media_type}, body=raw
        )
        digest = _sha256(raw)
        if _may_be_there(reply) and self.manifest_digest(repository, reference) == digest:
            # An immutable tag that is right already, maybe since the last attempt.
            return digest
        what = f"take {_named(repository, reference)}"
        self._session.expect(
            reply, what, {200, 201, 202}, repository=repository, action=Action.PUSH
        )
        require_digest(self._session, reply, digest)
        return digest

    def manifest_digest(self, repository: str, reference: str) -> str | None:
        """The digest behind a tag (or digest); None if the registry has no such manifest."""
        reply = self._manifest(repository, reference, "HEAD")
        if reply is None:
            return None
        digest = reply.headers.get(DIGEST_HEADER)
        return digest or self.manifest(repository, reference).digest

    def manifest(self, repository: str, reference: str) -> Manifest:
        """The manifest behind a tag or digest, checked against its digest."""
        reply = self._manifest(repository, reference, "GET")
        if reply is None:
            raise ToolFailed(f"{self.host} has no {_named(repository, reference)}")
        digest = _sha256(reply.data)
        claimed = reply.headers.get(DIGEST_HEADER, digest)
        wanted = reference if reference.startswith("sha256:") else claimed
        if not digest == claimed == wanted:
            raise ToolFailed(
                f"{self.host} sent a damaged manifest for {_named(repository, reference)}",
                why=f"its digest is {digest}, not {wanted}",
            )
        media_type = reply.headers.get("Content-Type", "").partition(";")[0]
        return Manifest(raw=reply.data, media_type=media_type, digest=digest)

    def config(self, repository: str, digest: str) -> ImageConfig:
        """The image configuration with the digest that a manifest names."""
        reply = self._session.request(
            "GET", f"/v2/{repository}/blobs/{digest}", (pulling(repository),)
        )
        what = f"give {_named(repository, digest)}"
        self._session.expect(reply, what, {200}, repository=repository)
        if _sha256(reply.data) != digest:
            raise ToolFailed(f"{self.host} sent a damaged blob for {_named(repository, digest)}")
        value = json.loads(reply.data)
        labels = value.get("config", {}).get("Labels") or {}
        return ImageConfig(
            created=str(value.get("created", "")),
            labels=dict(labels),
            architecture=str(value.get("architecture", "")),
            os=str(value.get("os", "")),
        )

    def tags(self, repository: str) -> tuple[str, ...]:
        """All tags of a repository, sorted; none if it does not exist.

        Raises:
            ToolFailed: also if its pages lead to another host, or do not end.
        """
        found: set[str] = set()
        path, seen = f"/v2/{repository}/tags/list?n={_PAGE}", set[str]()
        while path:
            url = self._session.http.url(path)
            if url in seen or len(seen) == MOST_PAGES:
                again = "a page leads back to an earlier one" if url in seen else "too many pages"
                raise ToolFailed(
                    f"the list of tags of {self.host}/{repository} does not end", why=again
                )
            seen.add(url)
            reply = self._session.request("GET", path, (pulling(repository),))
            if reply.status == 404:
                break
            what = f"list the tags of {repository}"
            self._session.expect(reply, what, {200}, repository=repository)
            found.update(json.loads(reply.data).get("tags") or ())
            path = _next_page(path, reply.headers.get("Link", ""))
        return tuple(sorted(found))

    def delete_manifest(self, repository: str, digest: str) -> None:
        """Delete a manifest and the tags that point at it; one that is gone is fine."""
        path = f"/v2/{repository}/manifests/{digest}"
        reply = self._session.request("DELETE", path, (deleting(repository),))
        what = f"delete {_named(repository, digest)}"
        self._session.expect(reply, what, {202, 404}, repository=repository, action=Action.DELETE)

    def _manifest(self, repository: str, reference: str, method: str) -> Reply | None:
        path = f"/v2/{repository}/manifests/{quote(reference, safe=':')}"
        scopes = (pulling(repository),)
        reply = self._session.request(method, path, scopes, headers=_ACCEPT_MANIFEST)
        if reply.status == 404:
            return None
        what = f"give {_named(repository, reference)}"
        self._session.expect(reply, what, {200}, repository=repository)
        return reply


def _may_be_there(refused: Reply) -> bool:
    """True for refusals that also come where nothing would change."""
    missing = any("BLOB_UNKNOWN" in code for code in error_codes(refused))
    return refused.status in {400, 403, 405, 409, 412} and not missing


def _next_page(path: str, link: str) -> str:
    match = re.match(r'<([^>]+)>;\s*rel="?next"?', link)
    return urljoin(path, match[1]) if match else ""


def _named(repository: str, reference: str) -> str:
    return f"{repository}{'@' if reference.startswith('sha256:') else ':'}{reference}"


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"

"""Sending a blob to a registry: one POST, then one PUT with all of it.

That is the monolithic upload of the OCI Distribution specification (1.1, "POST then PUT").
Artifact Registry takes no chunks.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import BinaryIO, Protocol
from urllib.parse import urlencode, urlsplit

from rayfleet.errors import RayfleetError, ToolFailed
from rayfleet.image.oci.authorization import deleting, pulling, pushing
from rayfleet.image.oci.connections import BLOCK, REDIRECTS
from rayfleet.image.oci.limits import Limits
from rayfleet.image.oci.patience import Reply, Transient, persist
from rayfleet.image.oci.refusals import clean, error_codes
from rayfleet.image.oci.rights import Action
from rayfleet.image.oci.session import Session

DIGEST_HEADER = "Docker-Content-Digest"
# What the registry has lost or got damaged: begun again, the upload may be right.
BEGIN_AGAIN = frozenset({"BLOB_UPLOAD_UNKNOWN", "BLOB_UPLOAD_INVALID", "DIGEST_INVALID"})
BEGIN_AGAIN |= {"SIZE_INVALID"}
# Registries put a blob into its place before they answer; so many bytes a second at least.
STORED_PER_SECOND = 20e6


class Sendable(Protocol):
    """A blob that can be sent, more than once."""

    @property
    def digest(self) -> str:
        """``sha256:`` and 64 digits."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def open(self) -> BinaryIO:
        """A stream of it, from the start."""


class Body:
    """The blocks of a blob; iterating starts over and takes back what was counted."""

    def __init__(
        self, blob: Sendable, *, on_sent: Callable[[int], None], stop: threading.Event | None
    ) -> None:
        self._blob = blob
        self._on_sent = on_sent
        self._stop = stop
        self._blocks: Iterator[bytes] = iter(())
        self.sent = 0

    def __iter__(self) -> Iterator[bytes]:
        """Start over.

        Raises:
            Interrupted: while iterating: the operator has interrupted.
            ToolFailed: while iterating: the blob cannot be read.
        """
        self.take_back()
        self.close()
        self._blocks = blocks = self._read()
        return blocks

    def take_back(self) -> None:
        """Count nothing as sent any more."""
        sent, self.sent = self.sent, 0
        if sent:
            self._on_sent(-sent)

    def close(self) -> None:
        """Close the blob's stream."""
        close = getattr(self._blocks, "close", None)
        if close is not None:
            close()

    def _read(self) -> Iterator[bytes]:
        left = self._blob.size
        with closing(self._blob.open()) as stream:
            while left:
                self._look()
                block = self._block(stream, min(BLOCK, left))
                yield block
                left -= len(block)
                self.sent += len(block)
                self._on_sent(len(block))

    def _look(self) -> None:
        from rayfleet.image.interruption import Interrupted

        if self._stop is not None and self._stop.is_set():
            raise Interrupted

    def _block(self, stream: BinaryIO, size: int) -> bytes:
        try:
            block = stream.read(size)
        except RayfleetError:
            raise
        except OSError as error:
            raise self._unreadable(error.strerror or type(error).__name__) from error
        if not block:
            raise self._unreadable("it is shorter than it should be")
        return block

    def _unreadable(self, why: str) -> ToolFailed:
        return ToolFailed(f"cannot read the blob {self._blob.digest}", why=why)


class Upload:
    """One blob on its way to a repository."""

    def __init__(
        self,
        session: Session,
        repository: str,
        blob: Sendable,
        *,
        limits: Limits,
        on_sent: Callable[[int], None],
        stop: threading.Event | None,
    ) -> None:
        self._session = session
        self._repository = repository
        self._blob = blob
        self._limits = limits
        self._stop = stop
        self._scopes = (pushing(repository),)
        self._body = Body(blob, on_sent=on_sent, stop=stop)

    def run(self) -> None:
        """Send it, from the start again as often as the registry's Retries allow.

        Raises:
            ToolFailed: the registry refuses it, or the blob cannot be read.
            Unreachable: the registry does not answer, or fails.
            Interrupted: the operator has interrupted.
        """
        http = self._session.http
        with closing(self._body):
            try:
                persist(self._attempt, retries=http.retries, stop=self._stop)
            except Transient as failed:
                if failed.reply is None:
                    raise http.unreachable(http.base, failed.why) from None
                self._expect(failed.reply)

    def _attempt(self, number: int) -> None:
        # The connection may have been cut after the registry had it all.
        if number > 1 and has_blob(self._session, self._repository, self._blob.digest, self._stop):
            if self._body.sent < self._blob.size:
                self._body.take_back()
            return
        url = self._begin()
        with self._limits.turn(self._session.host, self._stop):
            reply = self._put(url)
        if reply.status == 404 or error_codes(reply) & BEGIN_AGAIN:
            raise Transient(f"HTTP {reply.status}", reply)
        self._expect(reply)
        require_digest(self._session, reply, self._blob.digest)

    def _begin(self) -> str:
        """Where to send the blob. Registries clear away what is begun and never ended."""
        reply, path = begin(self._session, self._repository, self._stop)
        url = upload_url(self._session, reply, path)
        return (
            f"{url}{'&' if urlsplit(url).query else '?'}{urlencode({'digest': self._blob.digest})}"
        )

    def _put(self, url: str) -> Reply:
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(self._blob.size),
        }
        for _ in range(REDIRECTS):
            reply = self._session.send_once(
                "PUT",
                url,
                self._scopes,
                headers=headers,
                body=self._body,
                patience=self._blob.size / STORED_PER_SECOND,
            )
            if reply.status not in {301, 302, 307, 308}:
                return reply
            url = self._session.http.url(reply.headers.get("Location", ""), seen_from=url)
        return reply

    def _expect(self, reply: Reply) -> None:
        what = f"take blob {self._blob.digest} of {self._repository}"
        self._session.expect(reply, what, {201}, repository=self._repository, action=Action.PUSH)


def has_blob(
    session: Session, repository: str, digest: str, stop: threading.Event | None = None
) -> bool:
    """True if the repository has the blob, whole.

    A registry that was out of space while it wrote a blob down (distribution 2.8) answers 500
    for that blob until it is sent again.
    """
    reply = session.request(
        "HEAD", f"/v2/{repository}/blobs/{digest}", (pulling(repository),), stop=stop
    )
    if reply.status in {404, 500}:
        return False
    session.expect(reply, f"look for {digest} in {repository}", {200}, repository=repository)
    require_digest(session, reply, digest)
    return True


def require_digest(session: Session, reply: Reply, digest: str) -> None:
    """Return if the registry speaks of ``digest``, or does not say.

    Raises:
        ToolFailed: it speaks of another one.
    """
    found = reply.headers.get(DIGEST_HEADER, digest)
    if found != digest:
        raise ToolFailed(
            f"registry {session.host} answers for another digest than was asked for",
            why=f"it says {clean(found)}, not {digest}",
        )


def mount_blob(session: Session, repository: str, digest: str, *, source: str) -> bool:
    """Have ``repository`` hold a blob of ``source``; False if the registry begins an upload
    instead, which is cancelled."""
    query = urlencode({"mount": digest, "from": source})
    path = f"/v2/{repository}/blobs/uploads/?{query}"
    reply = session.request("POST", path, (pushing(repository), pulling(source)))
    what = f"mount {digest} of {source} to {repository}"
    session.expect(reply, what, {201, 202}, repository=repository, action=Action.PUSH)
    if reply.status == 201:
        return True
    cancel(session, repository, reply, path)
    return False


def begin(
    session: Session, repository: str, stop: threading.Event | None = None
) -> tuple[Reply, str]:
    """Have a registry begin an upload; returns its answer and the path that was asked.

    Raises:
        ToolFailed: it refuses.
        Unreachable: it does not answer, or fails.
    """
    path = f"/v2/{repository}/blobs/uploads/"
    reply = session.request("POST", path, (pushing(repository),), stop=stop)
    what = f"take uploads to {repository}"
    session.expect(reply, what, {202}, repository=repository, action=Action.PUSH)
    return reply, path


def try_upload(session: Session, repository: str) -> None:
    """Begin an upload and cancel it.

    Raises:
        ToolFailed: the registry takes no uploads from us.
        Unreachable: it does not answer, or fails.
    """
    begun, path = begin(session, repository)
    cancel(session, repository, begun, path)


def cancel(session: Session, repository: str, begun: Reply, path: str) -> None:
    """End the upload that ``begun`` answers for; a registry may also clear it by itself."""
    with suppress(RayfleetError, Transient):
        # Registries count this as deleting.
        session.send_once("DELETE", upload_url(session, begun, path), (deleting(repository),))


def upload_url(session: Session, begun: Reply, path: str) -> str:
    """The Location of an upload, which may be anywhere and say anything."""
    location = begun.headers.get("Location", "")
    if not location or re.search(r"\s", location):
        raise ToolFailed(f"registry {session.host} does not say where to send a blob")
    return session.http.url(location, seen_from=f"{session.http.base}{path}")

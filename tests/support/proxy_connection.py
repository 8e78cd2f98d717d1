"""One connection of a client to a faulty proxy: requests go on as they are, or meet their fault."""

from __future__ import annotations

import http.client
import json
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import NoReturn, Protocol

from tests.support.faults import (
    ChangeByte,
    CutBody,
    ExpireLogins,
    Fault,
    GoDown,
    LoseAnswer,
    Refuse,
    Request,
    Reset,
    Slow,
    Stall,
    StallBody,
    WrongDigest,
)
from tests.support.proxy_logins import Logins

CHUNK = 16 * 1024
# RFC 9110, section 7.6.1: what concerns one connection only.
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "host"})


class Hangup(Exception):
    """The connection to the client ends here, with a reset."""


@dataclass(kw_only=True)
class Exchange:
    """One request and what became of it.

    ``status`` is what the client was told and ``registry_status`` what the registry said, each
    None if nothing. ``received`` and ``sent`` are bytes of the request's and the answer's body.
    """

    request: Request
    fault: Fault | None = None
    status: int | None = None
    registry_status: int | None = None
    received: int = 0
    sent: int = 0
    finished: bool = False


class Proxy(Protocol):
    """The proxy that a connection belongs to."""

    upstream: str
    logins: Logins | None

    @property
    def host(self) -> str:
        """Where clients find it."""

    def begin(self, method: str, target: str, size: int) -> Exchange:
        """Record a request and decide what befalls it."""

    def go_down(self) -> None:
        """Refuse connections and cut those that are open."""

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the proxy stops."""


class ClientConnection(BaseHTTPRequestHandler):
    """One connection of a client and, as long, one to the registry."""

    protocol_version = "HTTP/1.1"

    def __init__(
        self, connection: socket.socket, proxy: Proxy, upstream: http.client.HTTPConnection
    ) -> None:
        self.proxy = proxy
        self.upstream = upstream
        super().__init__(connection, ("127.0.0.1", 0), None)  # type: ignore[arg-type]

    def exchange(self) -> None:
        """Answer one request, or do what its fault says."""
        size = self.headers.get("Content-Length")
        chunked = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
        self.ours = self.proxy.begin(self.command, self.path, -1 if chunked else int(size or 0))
        try:
            self._befall(self.ours.fault)
        except (Hangup, OSError, http.client.HTTPException):
            self.close_connection = True
            linger = struct.pack("ii", 1, 0)  # close() then resets the connection
            with suppress(OSError):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        finally:
            self.ours.finished = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = exchange  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the record has it all."""

    def _befall(self, fault: Fault | None) -> None:
        proxy = self.proxy
        match fault:
            case Reset():
                raise Hangup
            case GoDown():
                proxy.go_down()
                raise Hangup
            case Refuse():
                self._drain()
                self._refuse(fault)
                return
            case Stall():
                self._drain()
                self._hold()
            case ExpireLogins() if proxy.logins is not None:
                proxy.logins.expire()
        if proxy.logins is None or self._let_in(proxy.logins):
            self._forward(fault)

    def _let_in(self, logins: Logins) -> bool:
        request, shown = self.ours.request, self.headers.get("Authorization", "")
        challenge: str | None = 'Basic realm="test"'
        if request.kind != "token":
            challenge = logins.challenge(request, shown, self.proxy.host)
        elif (token := logins.give(request, shown)) is not None:
            self._reply(200, {"token": token, "expires_in": 60})
            return False
        if challenge is None:
            return True
        self._drain()
        self._refuse(Refuse(401, code="UNAUTHORIZED"), challenge=challenge)
        return False

    def _forward(self, fault: Fault | None) -> None:
        has_body = self.ours.request.size != 0
        self._send_on(fault if has_body else None)
        answer = self.upstream.getresponse()
        self.ours.registry_status = answer.status
        if isinstance(fault, LoseAnswer):
            raise Hangup
        self._answer(answer, fault, spoiled=None if has_body else fault)

    def _send_on(self, fault: Fault | None) -> None:
        """The request to the registry."""
        upstream, chunked = self.upstream, self.ours.request.size < 0
        if upstream.sock is None:
            upstream.connect()
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        upstream.putheader("Host", self.proxy.upstream)
        for name, value in self._headers_on():
            upstream.putheader(name, value)
        upstream.endheaders()
        heard = True
        for chunk in self._spoiled(self._body(), fault):
            if heard:
                try:
                    upstream.send(_framed(chunk) if chunked else chunk)
                except (BrokenPipeError, ConnectionResetError):
                    heard = False  # the registry answers before it has read everything
        if chunked and heard:
            upstream.send(_framed(b""))

    def _headers_on(self) -> Iterator[tuple[str, str]]:
        logins = self.proxy.logins
        for name, value in self.headers.items():
            ours = name.lower() == "authorization" and logins is not None
            if name.lower() not in HOP_BY_HOP and not ours:
                yield name, value
        if logins is not None:
            yield "Authorization", logins.upstream
        if self.ours.request.size < 0:
            yield "Transfer-Encoding", "chunked"

    def _answer(
        self, answer: http.client.HTTPResponse, fault: Fault | None, *, spoiled: Fault | None
    ) -> None:
        """The registry's answer to the client."""
        self.send_response_only(answer.status, answer.reason)
        empty = self.command == "HEAD" or answer.status in {204, 304}
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, self._rewritten(name, value, fault))
        chunked = answer.length is None and not empty
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        if answer.will_close:
            self.send_header("Connection", "close")
        self.ours.status = answer.status
        self.end_headers()
        for chunk in self._spoiled(_chunks(answer), spoiled):
            self.ours.sent += len(chunk)
            self.wfile.write(_framed(chunk) if chunked else chunk)
        if chunked:
            self.wfile.write(_framed(b""))
        answer.close()

    def _rewritten(self, name: str, value: str, fault: Fault | None) -> str:
        if name.lower() == "location":
            return value.replace(f"http://{self.proxy.upstream}/", f"http://{self.proxy.host}/")
        if name.lower() == "docker-content-digest" and isinstance(fault, WrongDigest):
            return fault.digest
        return value

    def _spoiled(self, chunks: Iterator[bytes], fault: Fault | None) -> Iterator[bytes]:
        """The chunks of a body, and what befalls them."""
        done = 0
        for chunk in chunks:
            match fault:
                case CutBody(after) | StallBody(after) if done + len(chunk) > after:
                    if after > done:
                        yield chunk[: after - done]
                    if isinstance(fault, StallBody):
                        self._hold()
                    raise Hangup
                case ChangeByte(at) if done <= at < done + len(chunk):
                    changed = bytearray(chunk)
                    changed[at - done] ^= 0xFF
                    chunk = bytes(changed)
                case Slow(rate):
                    self.proxy.pause(len(chunk) / rate)
            done += len(chunk)
            yield chunk

    def _body(self) -> Iterator[bytes]:
        """The request's body, as it comes in."""
        if self.ours.request.size < 0:
            while length := int(self.rfile.readline().partition(b";")[0], 16):
                yield from self._read(length)
                self.rfile.readline()
            self.rfile.readline()
        else:
            yield from self._read(self.ours.request.size)

    def _read(self, length: int) -> Iterator[bytes]:
        while length:
            chunk = self.rfile.read1(min(length, CHUNK))
            if not chunk:
                raise Hangup
            length -= len(chunk)
            self.ours.received += len(chunk)
            yield chunk

    def _drain(self) -> None:
        for _ in self._body():
            pass

    def _hold(self) -> NoReturn:
        """Wait until the client has given up, or the proxy stops."""
        # What the client has not sent yet may hide from us that it is gone.
        self.ours.finished = True
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP)
        poll.poll()
        raise Hangup

    def _refuse(self, refusal: Refuse, *, challenge: str = "") -> None:
        errors = [{"code": refusal.code, "message": refusal.message}]
        headers = {"Retry-After": refusal.retry_after, "WWW-Authenticate": challenge}
        self._reply(refusal.status, {"errors": errors}, headers)

    def _reply(
        self, status: int, value: object, headers: dict[str, str | None] | None = None
    ) -> None:
        body = json.dumps(value).encode()
        self.ours.status = status
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in (headers or {}).items():
            if text:
                self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _framed(chunk: bytes) -> bytes:
    """A chunk of a body of unknown length; an empty one ends it (RFC 9112, section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(chunk), chunk)


def _chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while chunk := answer.read1(CHUNK):
        yield chunk

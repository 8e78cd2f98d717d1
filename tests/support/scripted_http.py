"""An HTTP server on loopback that gives the answers of a script, in order."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = 64 << 10
KEPT_BODY = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer; the last one of a script is given again and again.

    Of the request's body ``read`` bytes are taken before, None means all. ``how`` is what
    becomes of the connection: "keep", "close" after the answer, "cut" instead of the answer,
    "cut short" in the middle of the answer's body, or "stall" until the client has given up.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    read: int | None = None
    how: str = "keep"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as the server saw it; ``body`` is the first MiB, ``received`` counts all."""

    method: str
    path: str
    authorization: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    received: int = 0
    connection: int = 0


@dataclass(kw_only=True)
class ScriptedServer:
    """Where it listens and what it was asked. ``respond`` decides if it is set, not the script."""

    host: str = ""
    script: list[Answer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    respond: Callable[[Asked], Answer] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def answer(self, asked: Asked) -> Answer:
        """What the script has for a request."""
        with self._lock:
            if self.respond is not None:
                return self.respond(asked)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def sent(self, *methods: str) -> list[str]:
        """Method and path of each request, of any or of the given methods."""
        return [f"{e.method} {e.path}" for e in self.asked if not methods or e.method in methods]


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: ScriptedServer

    def answer(self) -> None:
        """Answer one request."""
        asked = Asked(
            method=self.command,
            path=self.path,
            authorization=self.headers.get("Authorization", ""),
            headers=dict(self.headers.items()),
            connection=self.client_address[1],
        )
        answer = self.state.answer(asked)
        body, received = self._read(answer.read)
        self.state.asked.append(Asked(**{**vars(asked), "body": body, "received": received}))
        if answer.how == "stall":
            poll = select.poll()
            poll.register(self.connection, select.POLLRDHUP)
            poll.poll()
        if answer.how in {"stall", "cut"}:
            self._reset()
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        short = answer.how == "cut short"
        if self.command != "HEAD":
            self.wfile.write(answer.body[: len(answer.body) // 2] if short else answer.body)
        if answer.how == "close":
            self.close_connection = True
        if short:
            self._reset()

    do_GET = do_HEAD = do_DELETE = do_POST = do_PUT = answer  # noqa: N815 (the base class's names)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _read(self, limit: int | None) -> tuple[bytes, int]:
        size = int(self.headers.get("Content-Length") or 0)
        left, kept, received = size if limit is None else min(size, limit), b"", 0
        while left and (chunk := self.rfile.read1(min(left, CHUNK))):
            left -= len(chunk)
            received += len(chunk)
            kept += chunk[: KEPT_BODY - len(kept)]
        return kept, received

    def _reset(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextmanager
def scripted_server(*, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """Run a server on a free port of 127.0.0.1 for the block; fill its ``script``."""
    state = ScriptedServer()
    handler = type("ScriptedHandler", (Handler,), {"state": state})
    server = QuietServer(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    with server.running() as state.host:
        yield state


class QuietServer(ThreadingHTTPServer):
    """Clients that go away are no news here."""

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve for the block; gives ``127.0.0.1:port``."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"127.0.0.1:{self.server_port}"
        finally:
            self.shutdown()
            self.server_close()
            thread.join()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""

"""A tiny HTTP proxy on loopback: it opens tunnels (CONNECT), all to one server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.support.scripted_http import QuietServer

CHUNK = 64 << 10


@dataclass(kw_only=True)
class Tunnels:
    """Where the proxy listens, what it leads to, and what it was asked.

    ``login`` is the Proxy-Authorization that it wants, if any. ``asked`` has the names that
    clients wanted to get to, ``logins`` what they showed.
    """

    target: str
    login: str = ""
    host: str = ""
    asked: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """One connection of a client, which becomes a tunnel."""

    protocol_version = "HTTP/1.1"
    state: Tunnels

    def do_CONNECT(self) -> None:
        """Open a tunnel."""
        shown = self.headers.get("Proxy-Authorization", "")
        self.state.asked.append(self.path)
        self.state.logins.append(shown)
        self.close_connection = True
        if self.state.login and shown != self.state.login:
            self.send_response(407)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        name, _, port = self.state.target.rpartition(":")
        with socket.create_connection((name, int(port)), timeout=10) as server:
            server.settimeout(None)
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=pump, args=(server, self.connection), daemon=True)
            back.start()
            pump(self.connection, server)
            back.join()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def pump(source: socket.socket, target: socket.socket) -> None:
    """Hand on bytes until either side is through."""
    with suppress(OSError):
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def tunnels(target: str, *, login: str = "") -> Iterator[Tunnels]:
    """Run the proxy on a free port of 127.0.0.1 for the block; all names lead to ``target``."""
    state = Tunnels(target=target, login=login)
    server = QuietServer(("127.0.0.1", 0), type("TunnelHandler", (Handler,), {"state": state}))
    with server.running() as state.host:
        yield state

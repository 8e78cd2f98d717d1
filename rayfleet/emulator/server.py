"""The emulator's HTTP server: loopback only."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from rayfleet.emulator.cloud import Cloud
from rayfleet.emulator.control import CONTROL, control
from rayfleet.emulator.faults import Fault
from rayfleet.emulator.refusals import Refused
from rayfleet.emulator.routes import DISCOVERY, Asked, carry_out, described, route
from rayfleet.emulator.settling import settle

TOKEN_PATH = "/token"  # noqa: S105 (where tokens are given out)
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request that was answered: ``status`` 0 means that the connection was cut. Bodies are
    not kept: there are secrets in them."""

    method: str
    resource: str
    status: int
    token: str = field(repr=False, default="")


class Cut(Exception):
    """The connection ends without an answer."""


@dataclass
class Server:
    """Answers for ``cloud`` on 127.0.0.1 while it is entered; ``port`` 0 takes a free one."""

    cloud: Cloud
    port: int = 0
    seen: deque[Seen] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def url(self) -> str:
        """Where it is: ``http://127.0.0.1:port``."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Server:
        """Listen."""
        server = self
        handler = type("Handler", (_Handler,), {"server_of": server})
        self._http = _Listener(("127.0.0.1", self.port), handler)
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening; what hangs is let go."""
        self.cloud.faults.clear()
        self._http.shutdown()
        self._http.cut_all()
        self._http.server_close()
        self._thread.join()
        with self.cloud.lock:
            self.cloud.save()

    def turn_to(self, cloud: Cloud) -> None:
        """Answer for ``cloud`` from now on; whoever still asks about the last one is cut off."""
        last, self.cloud, self.seen = self.cloud, cloud, deque(maxlen=REMEMBERED)
        last.faults.clear()
        self._http.cut_all()

    def answer(self, asked: Asked) -> dict[str, Any]:
        """What the APIs answer to ``asked``.

        Raises:
            Refused: an error.
            Cut: nothing at all.
        """
        if asked.path == TOKEN_PATH:
            return self._token()
        if asked.path.startswith(CONTROL):
            return control(self.cloud, asked.path.removeprefix(CONTROL), asked.raw)
        if asked.path == DISCOVERY:
            return described(asked.query.get("version", ""))
        cloud, seen = self.cloud, self.seen
        method, resource, status = "", asked.path, 500
        try:
            routed = route(asked)
            method, resource = routed.method.id, routed.resource
            with cloud.lock:
                fault = cloud.faults.of(method, resource)
            _before(cloud, fault)
            with cloud.lock:
                cloud.clock.tick()
                changed = settle(cloud)
                shown = carry_out(cloud, routed, asked.query, fault)
                text = json.loads(json.dumps(shown))  # nobody changes it while it is sent
                if changed or settle(cloud) or asked.verb != "GET":
                    cloud.save()
            if fault is not None and fault.cut:
                raise Cut
            status = 200
            return dict(text)
        except Refused as refused:
            status = refused.code
            raise
        except Cut:
            status = 0
            raise
        finally:
            seen.append(Seen(method=method, resource=resource, status=status, token=asked.token))

    def _token(self) -> dict[str, Any]:
        with self.cloud.lock:
            number = self.cloud.state.next("token")
        token = f"ya29.emulated-{number}"
        return {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}


def _before(cloud: Cloud, fault: Fault | None) -> None:
    """What goes wrong before anything is done."""
    if fault is None:
        return
    if fault.hang:
        cloud.faults.released.wait(fault.hang)
        raise Cut
    if fault.cut == "before":
        raise Cut
    if fault.status:
        message = fault.message or "The service is currently unavailable."
        raise Refused(fault.status, message, reason=fault.reason)


class _Listener(ThreadingHTTPServer):
    """Knows its connections, so that none outlives it."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of our business."""

    def cut_all(self) -> None:
        """End every connection."""
        for connection in list(self.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(BaseHTTPRequestHandler):
    server_of: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        asked = Asked(
            verb=self.command,
            path=parts.path,
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            raw=self.rfile.read(length),
            token=token if scheme == "Bearer" else "",
        )
        try:
            self._send(200, self.server_of.answer(asked))
        except Refused as refused:
            self._send(refused.code, refused.body())
        except Cut:
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve  # noqa: N815 (http.server's names)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(raw)))
        # Ray opens a connection for each request and leaves it to the garbage collector.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: ``seen`` has it."""

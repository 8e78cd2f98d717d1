"""Stand-ins for Ray's dashboard, and the page of dashboards beside the test, for tests."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.head import Head
from rayfleet.dashboard.guard import Guard
from rayfleet.dashboard.status import Place
from rayfleet.secret.credential import Credential
from rayfleet.secret.store import FileSecret
from tests.support.sshd import LocalSshd

T = TypeVar("T")
ASK_SECONDS = 30.0
INDEX = "<!doctype html><html><head><title>Ray Dashboard</title></head><body>up</body></html>"
RAYS_COOKIE = "ray-authentication-token"


@contextmanager
def in_a_loop(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter ``context`` in an event loop of its own, in a thread, for the block."""
    ready: list[T] = []
    failed: list[BaseException] = []
    begun = threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def live() -> None:
        async with context as value:
            ready.append(value)
            begun.set()
            await over.wait()

    def work() -> None:
        try:
            loop.run_until_complete(live())
        except BaseException as error:
            failed.append(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            begun.set()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    try:
        if ready:
            yield ready[0]
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(over.set)
        thread.join()
    if failed:
        raise failed[0]


@dataclass
class FakeRay:
    """As much of a cluster's dashboard as the page and the proxy can notice, at ``port``.

    It wants ``token``, if there is one. ``go`` lets /stream write its second half.
    """

    name: str
    token: str = ""
    port: int = 0
    workers: int = 1
    go: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str]] = field(default_factory=list)
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> FakeRay:
        app = web.Application(middlewares=[self._checked])
        app.router.add_get("/", self._index)
        app.router.add_get("/api/version", self._version)
        app.router.add_get("/api/v0/nodes", self._nodes)
        app.router.add_route("*", "/echo{rest:.*}", self._echo)
        app.router.add_get("/stream", self._stream)
        app.router.add_get("/cut", self._cut)
        app.router.add_get("/zipped", self._zipped)
        app.router.add_get("/away", self._away)
        app.router.add_get("/same", self._same)
        app.router.add_get("/socket", self._socket)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((request.method, request.raw_path))
        given = request.headers.get("Authorization")
        if self.token and given != f"Bearer {self.token}":
            return web.Response(status=403 if given else 401, text="refused")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(text=INDEX, content_type="text/html", headers={"ETag": '"1"'})

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"ray_version": "2.60.0"})

    async def _nodes(self, request: web.Request) -> web.Response:
        node = {
            "node_id": "n",
            "state": "ALIVE",
            "is_head_node": False,
            "labels": {"ray.io/node-group": "base"},
            "resources_total": {},
        }
        return web.json_response({"data": {"result": {"result": [node] * self.workers}}})

    async def _echo(self, request: web.Request) -> web.Response:
        digest, size = hashlib.sha256(), 0
        async for chunk in request.content.iter_any():
            digest.update(chunk)
            size += len(chunk)
        answer = web.json_response(
            {
                "cluster": self.name,
                "method": request.method,
                "path": request.raw_path,
                "headers": [[name.lower(), value] for name, value in request.headers.items()],
                "size": size,
                "sha256": digest.hexdigest(),
            }
        )
        answer.set_cookie(RAYS_COOKIE, f"of-{self.name}")
        return answer

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one\n")
        await asyncio.to_thread(self.go.wait, ASK_SECONDS)
        await answer.write(b"two\n")
        return answer

    async def _cut(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return answer

    async def _zipped(self, request: web.Request) -> web.Response:
        body = gzip.compress(b"plain")
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async def _away(self, request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "http://127.0.0.1:8265/there?a=1"})

    async def _same(self, request: web.Request) -> web.Response:
        return web.Response(status=304, headers={"ETag": '"1"'})

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("loud",))
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data[::-1])
            elif message.data == "bye":
                await socket.close(code=4001)
            else:
                await socket.send_str(f"{self.name}: {message.data.upper()}")
        return socket


def config_with(minimum: Mapping[str, int]) -> LaunchConfig:
    """A config of which only the ``minimum`` of workers counts."""
    return LaunchConfig(
        path=Path(), identity="", provider={}, image="", min_workers=minimum, hash=""
    )


def secret_with(folder: Path, token: str) -> FileSecret:
    """A new secret that says ``token``."""
    secret = FileSecret(folder)
    secret.add(token)
    return secret


@dataclass
class Entered:
    """A place of the page whose head is ``sshd``; it keeps one connection, as Heads does.

    Its token, if it has one, is the latest version of ``secret``.
    """

    name: str
    sshd: LocalSshd
    port: int
    secret: FileSecret | None = None
    opened: int = 0
    _head: Head | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def place(self, minimum: Mapping[str, int] = MappingProxyType({"base": 1})) -> Place:
        """The place, which shall have ``minimum`` workers."""
        return Place(
            cluster=self.name,
            region=self.name,
            zone=f"{self.name}-b",
            connect=self._connect,
            token=self.secret and Credential(self.secret, self.secret.folder / "cache" / "token"),
            config=lambda: config_with(minimum),
            port=self.port,
        )

    def close(self) -> None:
        """Close the connection."""
        if self._head is not None:
            self._head.close()

    def _connect(self) -> Head:
        with self._lock:
            if self._head is None or not self._head.alive:
                self.close()
                self._head = Head.open(self.sshd.address(self.name))
                self.opened += 1
            return self._head


@dataclass(frozen=True)
class Reply:
    """What a browser got."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


@dataclass
class Browser:
    """A client with the cookie of one run, and no other habit of a browser."""

    guard: Guard
    cookie: str = ""

    def enter(self) -> Reply:
        """Open the entry link and keep the cookie."""
        link = urlsplit(self.guard.entry)
        reply = self.get(self.guard.port, f"{link.path}?{link.query}")
        self.cookie = reply.headers["Set-Cookie"].partition(";")[0]
        return reply

    def get(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> Reply:
        """Ask for ``path`` and read the whole answer."""
        link, answer = self.begin(port, path, method=method, headers=headers, body=body)
        try:
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            link.close()

    def begin(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Ask for ``path`` and read the head of the answer only."""
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=ASK_SECONDS)
        sent = {"Cookie": self.cookie} if self.cookie else {}
        link.request(method, path, body=body, headers={**sent, **(headers or {})})
        return link, link.getresponse()

"""``invoke dashboard``: the page and one proxy per cluster, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from aiohttp import web

from rayfleet.console import Console
from rayfleet.dashboard import page
from rayfleet.dashboard.forward import Forward
from rayfleet.dashboard.guard import HOSTS, Guard, guarded
from rayfleet.dashboard.proxy import HEADER_BYTES, Proxy
from rayfleet.dashboard.status import LOOKS_AT_ONCE, Look, Place, Watcher, dialled
from rayfleet.errors import UsageError
from rayfleet.secret.credential import known

DOOR = "/enter"
TEMPORARY_LENGTH = 70  # the path of a Unix socket has at most 103 characters on macOS
CLOSE_SECONDS = 1.0  # for answers that are on their way when it ends


@dataclass(kw_only=True)
class Site:
    """One cluster: its watcher, the way to its head, and the local port of its dashboard."""

    watcher: Watcher
    forward: Forward
    listener: socket.socket
    proxy: Proxy

    @property
    def port(self) -> int:
        """The local port."""
        return _port(self.listener)

    async def index(self, request: web.Request) -> web.StreamResponse:
        """Ray's page, or the cause when it would have nothing to show but its own login."""
        if not self.watcher.look.failed:
            return await self.proxy.handle(request)
        self.watcher.hurry()
        return page.cause(self.watcher.look, "")


@dataclass(kw_only=True)
class Dashboards:
    """Serves the dashboards of ``places`` while its context is entered.

    ``fleet`` is a name for the page; ``port`` the page's, 0 for any that is free. ``say`` hears
    of clusters that come and go, from any thread.

    Raises:
        UsageError: ``port`` is taken.
    """

    fleet: str
    places: Sequence[Place]
    port: int = 0
    say: Callable[[str], None] = lambda text: None
    guard: Guard = field(init=False)
    sites: Mapping[str, Site] = field(init=False, default_factory=dict)
    _stack: AsyncExitStack = field(init=False, default_factory=AsyncExitStack, repr=False)

    async def __aenter__(self) -> Dashboards:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        listener = self._listen(self.port)
        self.guard = Guard(port=_port(listener))
        folder = _private_folder()
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        limit = threading.Semaphore(LOOKS_AT_ONCE)
        self.sites = {
            place.cluster: await self._site(place, folder / str(number), limit)
            for number, place in enumerate(self.places)
        }
        for site in self.sites.values():
            app = self._application(site.port)
            app.router.add_get("/", site.index)
            app.router.add_route("*", "/{path:.*}", site.proxy.handle)
            await self._serve(app, site.listener)
        app = self._application(self.guard.port, door=DOOR)
        app.router.add_get("/", self._overview)
        app.router.add_get("/clusters", self._clusters)
        app.router.add_get(DOOR, self._enter)
        await self._serve(app, listener)
        for site in self.sites.values():
            self._stack.callback(site.watcher.close)
            site.watcher.start()

    async def _site(self, place: Place, path: Path, limit: threading.Semaphore) -> Site:
        watcher = Watcher(place=place, changed=self._changed, limit=limit)
        forward = Forward(path, dialled(place))
        self._stack.callback(forward.close)

        def missing(said: str) -> web.Response:
            watcher.hurry()
            return page.cause(watcher.look, said)

        proxy = Proxy(place.cluster, path, partial(known, place.token), missing)
        self._stack.push_async_callback(proxy.close)
        return Site(watcher=watcher, forward=forward, listener=self._listen(0), proxy=proxy)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket()
        self._stack.callback(listener.close)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOSTS[0], port))
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"cannot listen on port {port}",
                why=getattr(error, "strerror", None) or str(error),
                next_step="invoke dashboard (without --port it takes a free one)",
            ) from error
        return listener

    def _application(self, port: int, *, door: str = "") -> web.Application:
        return web.Application(middlewares=[guarded(self.guard, port, page.refused, door=door)])

    async def _serve(self, app: web.Application, listener: socket.socket) -> None:
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=CLOSE_SECONDS,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.SockSite(runner, listener).start()

    def _looks(self) -> list[Look]:
        return [site.watcher.look for site in self.sites.values()]

    def _links(self, request: web.Request) -> Mapping[str, str]:
        # The guard has seen that it is one of ours.
        host = request.host.partition(":")[0]
        return {name: f"http://{host}:{site.port}/" for name, site in self.sites.items()}

    async def _overview(self, request: web.Request) -> web.Response:
        answer = page.overview(self.fleet, self._looks(), self._links(request))
        self.guard.let_in(answer)
        return answer

    async def _clusters(self, request: web.Request) -> web.Response:
        answer = web.Response(
            text=page.clusters(self._looks(), self._links(request)),
            content_type="text/html",
            headers=page.HEADERS,
        )
        self.guard.let_in(answer)
        return answer

    async def _enter(self, request: web.Request) -> web.Response:
        if not self.guard.opened_by(request.query.get("key", "")):
            return page.refused("this is not the entry link of this run")
        answer = page.entered()
        self.guard.let_in(answer)
        return answer

    def _changed(self, before: Look, now: Look) -> None:
        name = now.place.cluster
        if now.answers and now.seen is not None and not before.answers:
            self.say(f"{name}: Ray {now.seen.ray_version} answers")
        elif not now.answers and now.trouble != before.trouble:
            self.say(now.trouble if name in now.trouble else f"{name}: {now.trouble}")


def run(
    dashboards: Dashboards, console: Console, *, show: Callable[[str], None] = lambda link: None
) -> None:
    """Serve until Ctrl-C or SIGTERM. Prints the one address, the only line on stdout, and calls
    ``show`` with it.

    Raises:
        UsageError: the port is taken.
    """
    dashboards.say = console.say

    async def serve() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, ended.set)
        async with dashboards:
            console.data(dashboards.guard.entry)
            console.say("Ctrl-C ends it")
            if os.environ.get("SSH_CONNECTION"):
                console.say(f"from your own machine first: {_tunnels(dashboards)}")
            show(dashboards.guard.entry)
            await ended.wait()

    # What happens between the last await and the end.
    with suppress(KeyboardInterrupt):
        asyncio.run(serve())


def _tunnels(dashboards: Dashboards) -> str:
    ports = (dashboards.guard.port, *(site.port for site in dashboards.sites.values()))
    flags = " ".join(f"-L {port}:{HOSTS[0]}:{port}" for port in ports)
    return f"ssh -N {flags} {socket.gethostname()}"


def _private_folder() -> Path:
    """A new folder that only its owner may enter, with a path that is short enough for sockets."""
    short = len(tempfile.gettempdir()) <= TEMPORARY_LENGTH
    return Path(tempfile.mkdtemp(prefix="rayfleet-", dir=None if short else "/tmp"))  # noqa: S108


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])

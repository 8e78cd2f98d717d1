"""An HTTP proxy on loopback in front of a real registry: faithful, until a rule says otherwise."""

from __future__ import annotations

import http.client
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from rayfleet.waiting import wait_until
from tests.support.faults import Request, Schedule
from tests.support.proxy_connection import ClientConnection, Exchange
from tests.support.proxy_logins import Logins

STOP_SECONDS = 10.0
REGISTRY_SECONDS = 60.0
RECEIVE_BUFFER = 64 * 1024


class FaultyProxy:
    """A proxy in front of the registry at ``upstream`` (``127.0.0.1:port``).

    ``schedules`` are asked in order what befalls a request; the first fault counts.
    ``exchanges`` has every request in the order of arrival. Stalls last until the client gives
    up or the proxy stops. ``up`` is False while nobody listens.
    """

    def __init__(self, upstream: str, *schedules: Schedule, logins: Logins | None = None) -> None:
        self.upstream = upstream
        self.schedules: list[Schedule] = list(schedules)
        self.logins = logins
        self.exchanges: list[Exchange] = []
        self._stopping = threading.Event()
        self.port = 0
        self._lock = threading.RLock()
        self.up = False
        self._socket: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def host(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> FaultyProxy:
        self._bind()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.go_down()
        while self._threads:
            thread = self._threads[0]
            thread.join(STOP_SECONDS)
            assert not thread.is_alive(), f"{thread} of a proxy does not end"
            with self._lock:
                self._threads.remove(thread)
        assert self._socket is not None
        self._socket.close()

    def listen(self) -> None:
        """Take connections (again), on the same port."""
        assert self._socket is not None
        self.up = True
        self._socket.listen(64)
        self._start(self._accept, self._socket)

    def go_down(self) -> None:
        """Refuse connections and cut those that are open; the port stays ours."""
        with self._lock:
            assert self._socket is not None
            self.up = False
            down, self._socket = self._socket, None
            with suppress(OSError):
                down.shutdown(socket.SHUT_RDWR)  # wakes up accept()
            down.close()
            self._bind()
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Start over: no rules, an empty record. Waits for what is still going on."""
        self.settle()
        with self._lock:
            self.schedules.clear()
            self.exchanges.clear()

    def settle(self) -> None:
        """Return when no request is being worked on."""
        wait_until(
            lambda: all(each.finished for each in list(self.exchanges)),
            what="the proxy's requests to end",
            timeout=STOP_SECONDS,
            interval=0.01,
        )

    def seen(self, kind: str, *methods: str) -> list[Exchange]:
        """The exchanges of a kind, by any or by one of the given methods."""
        return [
            each
            for each in list(self.exchanges)
            if each.request.kind == kind and (not methods or each.request.method in methods)
        ]

    def accepted(self) -> Counter[str]:
        """How often the registry took each blob that was sent to it."""
        return Counter(
            each.request.reference
            for each in self.seen("upload", "PUT")
            if each.registry_status == 201
        )

    def uploaded(self) -> int:
        """Bytes of blobs that clients sent here."""
        return sum(each.received for each in self.seen("upload"))

    def faults(self) -> int:
        """How many requests a fault befell."""
        return sum(each.fault is not None for each in list(self.exchanges))

    def begin(self, method: str, target: str, size: int) -> Exchange:
        """Record a request and decide what befalls it."""
        with self._lock:
            request = Request.parse(len(self.exchanges) + 1, method, target, size)
            drawn = (schedule(request) for schedule in self.schedules)
            fault = next((each for each in drawn if each is not None), None)
            exchange = Exchange(request=request, fault=fault)
            self.exchanges.append(exchange)
        return exchange

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the proxy stops."""
        self._stopping.wait(seconds)

    @contextmanager
    def watched(self, connection: socket.socket) -> Iterator[None]:
        """End ``connection`` when the proxy goes down."""
        with self._lock:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _bind(self) -> None:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # So little that a body which is not read soon stops its sender.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        made.bind(("127.0.0.1", self.port))
        self.port = made.getsockname()[1]
        self._socket = made

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection), self.watched(connection), suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self.up:
                return
            with closing(http.client.HTTPConnection(self.upstream, timeout=REGISTRY_SECONDS)) as up:
                ClientConnection(connection, self, up)

    def _start(self, work: Callable[[socket.socket], None], argument: socket.socket) -> None:
        thread = threading.Thread(target=work, args=(argument,), daemon=True)
        with self._lock:
            self._threads.append(thread)
            thread.start()

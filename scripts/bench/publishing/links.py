"""The simulated wide-area links: started as processes, and proved to be what they claim."""

from __future__ import annotations

import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from publishing.processes import Background, background

ROUND_TRIP = 0.080  # seconds
RATE = 25e6  # bytes per second and region, upload
# What a check may measure: a busy machine is late, a link that is too good is a fault of ours.
ROUND_TRIPS = (0.078, 0.100)
RATES = (22e6, 26e6)
TRIPS = 5
PAYLOAD = 50_000_000
CHUNK = 1 << 16
SOCKET_SECONDS = 60.0
LENGTH = struct.Struct("!Q")
PROXY = Path(__file__).with_name("wan.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a link measured: seconds to connect and ask, seconds of a round trip, bytes/s."""

    first: float
    round_trip: float
    rate: float

    @property
    def good(self) -> bool:
        """True when the link is the one that was asked for."""
        return (
            ROUND_TRIPS[0] <= self.round_trip <= ROUND_TRIPS[1]
            and 2 * ROUND_TRIPS[0] <= self.first <= 2 * ROUND_TRIPS[1]
            and RATES[0] <= self.rate <= RATES[1]
        )


@contextmanager
def links(ports: Sequence[int]) -> Iterator[list[Background]]:
    """One link in front of each of the ``ports``, as processes that end with the block."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                background([sys.executable, str(PROXY), str(port), str(ROUND_TRIP), str(RATE)])
            )
            for port in ports
        ]


def check_links(count: int, say: Callable[[str], None]) -> list[Checked]:
    """Measure ``count`` links, all at the same time, as a fan-out loads them.

    Raises:
        SystemExit: one is not what it should be.
    """
    with ExitStack() as stack:
        sinks = [stack.enter_context(_sink()) for _ in range(count)]
        proxies = stack.enter_context(links(sinks))
        with ThreadPoolExecutor(count) as pool:
            measured = list(pool.map(_check, [proxy.port for proxy in proxies]))
    for number, each in enumerate(measured, 1):
        say(
            f"link {number}: connect and ask {each.first * 1000:.1f} ms, round trip"
            f" {each.round_trip * 1000:.1f} ms, upload {each.rate / 1e6:.1f} MB/s"
        )
    if not all(each.good for each in measured):
        sys.exit(
            f"the simulated links are not {ROUND_TRIP * 1000:.0f} ms and {RATE / 1e6:.0f} MB/s;"
            " the machine is too busy to measure on"
        )
    return measured


def _check(port: int) -> Checked:
    begin = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=SOCKET_SECONDS) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _ask(link, 0)
        first = time.perf_counter() - begin
        trips = [_timed(link, 0) for _ in range(TRIPS)]
        round_trip = statistics.median(trips)
        rate = PAYLOAD / (_timed(link, PAYLOAD) - round_trip)
    return Checked(first=first, round_trip=round_trip, rate=rate)


def _timed(link: socket.socket, size: int) -> float:
    begin = time.perf_counter()
    _ask(link, size)
    return time.perf_counter() - begin


def _ask(link: socket.socket, size: int) -> None:
    """Send a length and that many bytes, and read the one byte of the answer."""
    link.sendall(LENGTH.pack(size))
    zeros = bytes(CHUNK)
    for start in range(0, size, CHUNK):
        link.sendall(zeros[: min(CHUNK, size - start)])
    if link.recv(1) != b"k":
        raise ConnectionError("the link broke")


@contextmanager
def _sink() -> Iterator[int]:
    """A server for one connection that answers whatever `_ask` sends; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SOCKET_SECONDS)
        thread = threading.Thread(target=_swallow, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
    thread.join(SOCKET_SECONDS)


def _swallow(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    buffer = bytearray(CHUNK)
    with connection:
        while header := connection.recv(LENGTH.size, socket.MSG_WAITALL):
            left = LENGTH.unpack(header)[0]
            while left:
                left -= connection.recv_into(buffer, min(left, CHUNK))
            connection.sendall(b"k")

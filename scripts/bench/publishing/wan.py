"""A wide-area link in front of one registry: a TCP proxy with latency and a limited upload rate.

    python wan.py UPSTREAM_PORT ROUND_TRIP_SECONDS UPLOAD_BYTES_PER_SECOND

It prints the port that it listens on and runs until it is killed. One process is one region: all
its connections share the upload rate. Latency is that of a pipe: whatever goes in comes out half
a round trip later, however much is on its way. A connection costs one round trip to set up, as
TCP's handshake does; slow start, loss and TLS are not simulated.
"""

from __future__ import annotations

import asyncio
import math
import socket
import sys
from contextlib import suppress

CHUNK = 1 << 16
# Reads that may be on their way in one direction of one connection.
PIPE_CHUNKS = 4096
# What an idle link may let through at once: enough to make up for late wake-ups, no more.
BURST_SECONDS = 0.005
BACKLOG = 128


class Uplink:
    """A token bucket that all uploads of a region pass, in the order in which they came."""

    def __init__(self, rate: float) -> None:
        self._rate = rate  # bytes per second
        self._free = 0.0  # up to when the rate is spent

    def pass_through(self, size: int, now: float) -> float:
        """Take ``size`` bytes in; the moment, now or later, when the last of them has passed."""
        self._free = max(self._free, now - BURST_SECONDS) + size / self._rate
        return max(self._free, now)


class Region:
    """The link to one registry on 127.0.0.1. Times are seconds."""

    def __init__(self, upstream: int, *, round_trip: float, rate: float) -> None:
        self._upstream = upstream
        self._round_trip = round_trip
        self._uplink = Uplink(rate)

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections for good."""
        loop = asyncio.get_running_loop()
        running: set[asyncio.Task[None]] = set()
        while True:
            client, _ = await loop.sock_accept(listener)
            task = loop.create_task(self._connect(client))
            running.add(task)
            task.add_done_callback(running.discard)

    async def _connect(self, client: socket.socket) -> None:
        server = socket.socket()
        with client, server:
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(OSError):
                loop = asyncio.get_running_loop()
                opened = loop.time()
                await loop.sock_connect(server, ("127.0.0.1", self._upstream))
                # The client believes itself connected, but could not have sent anything before
                # the handshake was over.
                await sleep_until(opened + self._round_trip)
                both = (
                    self._relay(client, server, self._uplink),
                    self._relay(server, client, Uplink(math.inf)),
                )
                await asyncio.gather(*both)

    async def _relay(self, source: socket.socket, sink: socket.socket, link: Uplink) -> None:
        loop = asyncio.get_running_loop()
        pipe: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIPE_CHUNKS)
        delivery = loop.create_task(deliver(pipe, sink))
        try:
            data = b"-"
            while data:
                data = await loop.sock_recv(source, CHUNK)
                passed = link.pass_through(len(data), loop.time())
                await pipe.put((passed + self._round_trip / 2, data))
                await sleep_until(passed)
            await delivery
        except OSError:
            # One end broke off: so does the other, at once.
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            raise
        finally:
            delivery.cancel()


async def deliver(pipe: asyncio.Queue[tuple[float, bytes]], sink: socket.socket) -> None:
    """Send what comes out of ``pipe`` when it is due; nothing (``b""``) ends the direction."""
    loop = asyncio.get_running_loop()
    while True:
        due, data = await pipe.get()
        await sleep_until(due)
        if not data:
            sink.shutdown(socket.SHUT_WR)
            return
        await loop.sock_sendall(sink, data)


async def sleep_until(moment: float) -> None:
    """Return at ``moment`` of the loop's clock."""
    left = moment - asyncio.get_running_loop().time()
    if left > 0:
        await asyncio.sleep(left)


def main() -> None:
    """Serve one region until killed."""
    upstream, round_trip, rate = sys.argv[1:]
    region = Region(int(upstream), round_trip=float(round_trip), rate=float(rate))
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener:
        listener.setblocking(False)
        print(listener.getsockname()[1], flush=True)
        asyncio.run(region.serve(listener))


if __name__ == "__main__":
    main()

"""A port of a head, and HTTP to it, through its SSH connection and without a local port."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paramiko import Channel, Transport
    from urllib3 import HTTPConnectionPool

HTTP_CONNECTIONS = 4


def port_channel(transport: Transport, port: int, *, timeout: float) -> Channel:
    """A connection to 127.0.0.1:``port`` as seen from the head; ``timeout`` is seconds to open it.

    Failures are paramiko's own exceptions, EOFError or OSError.
    """
    return transport.open_channel(
        "direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0), timeout=timeout
    )


def http_pool(transport: Transport, port: int, *, timeout: float) -> HTTPConnectionPool:
    """An HTTP client for 127.0.0.1:``port`` as seen from the head; it opens no local port.

    ``timeout`` is seconds per connect and per read. Nothing is retried; failures are urllib3's
    own exceptions.
    """
    from paramiko.ssh_exception import SSHException
    from urllib3 import HTTPConnectionPool, Timeout
    from urllib3.connection import HTTPConnection
    from urllib3.exceptions import NewConnectionError

    class ChannelConnection(HTTPConnection):
        def _new_conn(self) -> ChannelSocket:  # type: ignore[override]
            try:
                channel = port_channel(transport, port, timeout=timeout)
            except (SSHException, EOFError, OSError) as error:
                raise NewConnectionError(self, f"port {port} of the head: {error}") from error
            return ChannelSocket(channel)

    class ChannelPool(HTTPConnectionPool):
        ConnectionCls = ChannelConnection

    return ChannelPool(
        "127.0.0.1",
        port,
        maxsize=HTTP_CONNECTIONS,
        block=True,
        timeout=Timeout(connect=timeout, read=timeout),
        retries=False,
    )


class ChannelSocket:
    """As much of a socket as http.client needs, over an SSH channel.

    Like a socket's, its ``close`` takes effect when the last file made of it is closed too:
    http.client closes the socket before it reads the body of a ``Connection: close`` answer,
    and paramiko's Channel would drop that body.
    """

    def __init__(self, channel: Channel) -> None:
        self.settimeout = channel.settimeout
        self.fileno = channel.fileno
        self.channel = channel
        self._users = 1

    def sendall(self, data: bytes) -> None:
        """Send all of ``data``.

        Raises:
            OSError: the connection was lost; paramiko has other names for that, which nobody
                who waits for a socket's errors would catch.
        """
        from paramiko.ssh_exception import SSHException

        try:
            self.channel.sendall(data)
        except (SSHException, EOFError) as error:
            raise ConnectionResetError("the connection was lost") from error

    def makefile(self, mode: str, *_args: object, **_kwargs: object) -> io.BufferedReader:
        """A buffered reader of the channel; only ``rb`` is supported."""
        if mode != "rb":
            raise ValueError(f"unsupported mode {mode!r}")
        self._users += 1
        return io.BufferedReader(_ChannelReader(self))

    def shutdown(self, how: int) -> None:
        """Like ``socket.shutdown``."""
        with suppress(EOFError):
            self.channel.shutdown(how)

    def close(self) -> None:
        """Let go of the channel; it closes when nobody reads it any more."""
        self._users -= 1
        if self._users == 0:
            with suppress(OSError, EOFError):
                self.channel.close()


class _ChannelReader(io.RawIOBase):
    def __init__(self, owner: ChannelSocket) -> None:
        self._owner = owner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._owner.channel.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._owner.close()
        super().close()

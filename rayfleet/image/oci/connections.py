"""Connections that hear an answer while they still send, and pools of them."""

from __future__ import annotations

import functools
import select
import socket
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rayfleet.errors import PrerequisiteMissing

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool, PoolManager

BLOCK = 256 << 10
REDIRECTS = 5

# All regions connect at once, and one context does for them.
_one_reader = threading.Lock()


class Attentive:
    """Mixed into urllib3's connections.

    A server may refuse a body before it has all of it: what it says counts then, and not that
    the rest could not be sent. urllib3 reads the answer after a BrokenPipeError. Behind TLS an
    answer cannot be told from the protocol's own messages, so there sending has to fail first.
    """

    sock: Any
    timeout: float | None
    write_timeout: ClassVar[float]
    _cut = False

    def connect(self) -> None:
        """Open the connection."""
        self._cut = False
        super().connect()  # type: ignore[misc]

    @property
    def is_connected(self) -> bool:
        """False as well for a connection with a request that was not sent to its end."""
        return not self._cut and super().is_connected  # type: ignore[misc]

    def send(self, data: bytes) -> None:
        """Send ``data``.

        Raises:
            BrokenPipeError: there may be an answer already.
            TimeoutError: nothing went out for ``write_timeout`` seconds.
        """
        if self.sock is None:
            super().send(data)  # type: ignore[misc]
            return
        try:
            if isinstance(self.sock, socket.socket) and not isinstance(self.sock, ssl.SSLSocket):
                _send_plain(self.sock, data, self.write_timeout)
            else:
                self._send_encrypted(data)
        except TimeoutError:
            self._cut = True
            if not _readable(self.sock):
                raise
            raise BrokenPipeError from None
        except OSError as error:
            self._cut = True
            raise BrokenPipeError from error

    def _send_encrypted(self, data: bytes) -> None:
        self.sock.settimeout(self.write_timeout)
        try:
            self.sock.sendall(data)
        finally:
            self.sock.settimeout(self.timeout)


def _send_plain(sock: socket.socket, data: bytes, timeout: float) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT)
    rest = memoryview(data)
    while rest:
        events = poll.poll(timeout * 1000)
        if not events:
            raise TimeoutError("the write timed out")
        if events[0][1] & ~select.POLLOUT:
            raise BrokenPipeError
        rest = rest[sock.send(rest) :]


def _readable(sock: Any) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def pool_manager(
    proxy: str | None,
    *,
    bundle: Path | None,
    connections: int,
    connect_timeout: float,
    read_timeout: float,
) -> PoolManager:
    """Pools of at most ``connections`` to each host; timeouts in seconds.

    ``read_timeout`` is for sending as well. Redirects are followed, and the password is
    dropped on the way to another host; nothing is tried again.
    """
    from urllib3 import PoolManager, ProxyManager, Retry, Timeout, make_headers
    from urllib3.util import parse_url

    options: dict[str, Any] = {
        "maxsize": connections,
        "block": True,
        "blocksize": BLOCK,
        "retries": Retry(total=None, connect=0, read=0, status=0, other=0, redirect=REDIRECTS),
        "timeout": Timeout(connect=connect_timeout, read=read_timeout),
    }
    if proxy is None:
        manager = PoolManager(**options)
    else:
        from urllib.parse import unquote

        login = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=unquote(login)) if login else None
        if proxy.startswith("https:"):
            options["proxy_ssl_context"] = _tls_context(bundle)
        manager = ProxyManager(proxy, proxy_headers=headers, **options)
    manager.pool_classes_by_scheme = _pool_classes(read_timeout, bundle)
    return manager


def _pool_classes(write: float, bundle: Path | None) -> dict[str, type[HTTPConnectionPool]]:
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
    from urllib3.connection import HTTPConnection, HTTPSConnection

    class Plain(Attentive, HTTPConnection):  # type: ignore[misc]
        write_timeout = write

    class Encrypted(Attentive, HTTPSConnection):  # type: ignore[misc]
        write_timeout = write

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(HTTPSConnectionPool):
        ConnectionCls = Encrypted

        def __init__(self, *arguments: Any, **options: Any) -> None:
            # Not before TLS is spoken: to read the bundle takes longer than a small publish.
            super().__init__(*arguments, ssl_context=_tls_context(bundle), **options)

    return {"http": PlainPool, "https": EncryptedPool}


def _tls_context(bundle: Path | None) -> ssl.SSLContext:
    """One context for all connections: urllib3 would read the whole bundle for each of them."""
    with _one_reader:
        return _read_bundle(bundle, bundle.stat().st_mtime_ns if bundle else 0)


@functools.cache
def _read_bundle(bundle: Path | None, _changed: int) -> ssl.SSLContext:
    """The context of ``bundle``; its modification time is there so that a new one is read."""
    from urllib3.util.ssl_ import create_urllib3_context

    context = create_urllib3_context()
    if bundle is None:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(bundle)
    except OSError as error:  # ssl.SSLError is one
        raise PrerequisiteMissing(
            f"cannot read the CA bundle {bundle}",
            why=error.strerror or str(error),
            next_step="name a good one: SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
        ) from error
    return context

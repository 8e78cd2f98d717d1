"""A local Unix socket that leads to a port of a head, over the head's SSH connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import RayfleetError

if TYPE_CHECKING:
    from paramiko import Channel

CHUNK_BYTES = 64 * 1024
BACKLOG = 64


class Forward:
    """Listens at ``path``; every connection gets a channel of its own from ``dial``.

    ``path`` must lie in a folder that nobody else may enter: who can open the socket is at the
    head's port. A connection for which ``dial`` raises a RayfleetError is closed at once. Both
    directions are carried by blocking threads, so that a slow side slows the other one down.
    """

    def __init__(self, path: Path, dial: Callable[[], Channel]) -> None:
        self.path = path
        self._dial = dial
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(path))
            self._listener.listen(BACKLOG)
        except OSError:
            self._listener.close()
            raise
        self._thread = threading.Thread(
            target=self._accept, name=f"forward-{path.name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Cut every connection and remove the socket; fine to call twice."""
        with self._lock:
            self._closed = True
            links = tuple(self._open)
        for link in links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        # Not every system wakes who waits for a connection when the socket is shut down.
        with suppress(OSError), socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.path))
        self._thread.join()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    link.close()
                    return
                self._open.add(link)
            threading.Thread(target=self._carry, args=(link,), daemon=True).start()

    def _carry(self, link: socket.socket) -> None:
        try:
            channel = self._dial()
        except RayfleetError:
            self._drop(link)
            return
        back = threading.Thread(target=_to_us, args=(channel, link), daemon=True)
        back.start()
        _to_head(link, channel)
        back.join()
        self._drop(link)

    def _drop(self, link: socket.socket) -> None:
        with self._lock:
            self._open.discard(link)
        link.close()


def _to_head(link: socket.socket, channel: Channel) -> None:
    from paramiko.ssh_exception import SSHException

    with suppress(OSError, EOFError, SSHException):
        while chunk := link.recv(CHUNK_BYTES):
            channel.sendall(chunk)
    with suppress(OSError, EOFError, SSHException):
        channel.close()


def _to_us(channel: Channel, link: socket.socket) -> None:
    with suppress(OSError):
        while chunk := channel.recv(CHUNK_BYTES):
            link.sendall(chunk)
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)

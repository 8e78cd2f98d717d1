"""A connection whose other side has to answer: OpenSSH's ServerAliveInterval, for paramiko.

The kernel gives up on a silent machine only where TCP is our own (TCP_USER_TIMEOUT): not behind a
proxy command or a jump host, and not where the machine's kernel lives and its sshd does not.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

ASKED = 2  # times before the other side is given up
_LONGEST_POLL = 1.0


class Answering:
    """The socket ``link``; it fails once its other side has been silent for ``patience`` seconds.

    Paramiko reads and writes with a timeout of 0.1 s, again and again. What it waited is summed
    up, because a clock goes on while our own process is stopped. ``ask`` asks for an answer, in
    the thread that reads; without it nothing is asked and nothing fails.
    """

    def __init__(self, link: Any, patience: float) -> None:
        self.ask: Callable[[], None] | None = None
        self._link = link
        self._patience = patience
        self._silent = self._stuck = 0.0
        self._asked = 0
        self._lost = False

    def recv(self, size: int) -> bytes:
        """Like ``socket.recv``.

        Raises:
            ConnectionAbortedError: nothing came although the other side was asked.
        """
        begun = time.monotonic()
        try:
            data: bytes = self._link.recv(size)
        except TimeoutError:
            self._silent += _waited(begun)
            self._wonder()
            raise
        self._silent, self._asked = 0.0, 0
        return data

    def send(self, data: bytes) -> int:
        """Like ``socket.send``.

        Raises:
            ConnectionAbortedError: nothing goes out any more.
        """
        begun = time.monotonic()
        try:
            sent: int = self._link.send(data)
        except TimeoutError:
            self._stuck += _waited(begun)
            if self._lost or self._stuck > self._patience:
                self._give_up()
            raise
        self._stuck = 0.0
        return sent

    def close(self) -> None:
        """Like ``socket.close``; the jump host that leads to the other side may be gone too."""
        with suppress(EOFError, OSError):
            self._link.close()

    def _wonder(self) -> None:
        if self.ask is None:
            return
        if self._silent > self._patience:
            self._give_up()
        if self._silent > self._patience * (self._asked + 1) / (ASKED + 1):
            self._asked += 1
            self.ask()

    def _give_up(self) -> None:
        self._lost = True
        why = f"it has not answered for {self._patience:g} s"
        raise ConnectionAbortedError(errno.ETIMEDOUT, why)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


def ask(transport: Any) -> None:
    """Send a request that has to be answered, with yes or no (RFC 4254, section 4)."""
    from paramiko import Message
    from paramiko.common import cMSG_GLOBAL_REQUEST

    # Not while keys are exchanged, when nothing else may be said. That begins in this same thread.
    if not transport.clear_to_send.is_set():
        return
    request = Message()
    request.add_byte(cMSG_GLOBAL_REQUEST)
    request.add_string("keepalive@openssh.com")
    request.add_boolean(True)
    # Its public global_request waits for the answer, which only the calling thread can read.
    transport._send_user_message(request)


def _waited(begun: float) -> float:
    return min(time.monotonic() - begun, _LONGEST_POLL)

"""What runs over one SSH connection: short commands, and streams of bytes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rayfleet.cluster.watched import watched
from rayfleet.errors import ToolFailed, Unreachable

if TYPE_CHECKING:
    from paramiko import Channel, Transport

CHUNK_BYTES = 256 * 1024
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
STDERR_KEPT_BYTES = 4096
STATUS_SECONDS = 5.0
REQUEST_SECONDS = 20.0
"""How long a server may take to answer a request to start something, however long that runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a remote command ended: its exit code (-1: by a signal) and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """True when the command exited with 0."""
        return self.code == 0


class ConnectionLost(Unreachable):
    """The connection went away under a running command."""


class Stream:
    """The output of a running command, as chunks of bytes in the order they were written.

    Nothing is read ahead of the consumer but SSH's own window (2 MiB), so a consumer that
    stalls stops the command. ``close`` may be called from any thread; it ends the iteration
    and the remote command.
    """

    def __init__(
        self, transport: Transport, node: str, command: str, given: bytes, *, timeout: float
    ) -> None:
        self.node = node
        self.channel = transport.open_session(timeout=timeout)
        self._closed = False
        self._stderr = b""
        line = f"exec {watched(command, len(given))}"
        start_command(self.channel, node, line, timeout=timeout)
        if given:
            self.channel.settimeout(timeout)
            self.channel.sendall(given)

    @property
    def code(self) -> int | None:
        """The exit code, -1 for a signal; None while the command runs.

        The code arrives a moment after the last byte; at the end it is waited for, 5 s at most.
        """
        if self.channel.eof_received:
            self.channel.status_event.wait(STATUS_SECONDS)
        return self.channel.exit_status if self.channel.exit_status_ready() else None

    @property
    def stderr(self) -> str:
        """The last 4 KiB that the command wrote to stderr."""
        return self._stderr.decode(errors="replace").strip()

    @property
    def was_cut(self) -> bool:
        """True when the stream ended neither by its command nor by ``close``."""
        return self.channel.closed and not self._closed and not self.channel.eof_received

    def __iter__(self) -> Iterator[bytes]:
        """Yield chunks of up to 256 KiB of stdout until the command ends or ``close`` is called.

        Raises:
            ConnectionLost: the connection broke first.
        """
        return self.chunks()

    def chunks(self, *, wake: float | None = None) -> Iterator[bytes]:
        """Like the iteration, and empty bytes when nothing has come for ``wake`` seconds.

        Raises:
            ConnectionLost: the connection broke first.
        """
        for is_error, chunk in self.both(wake=wake):
            if is_error:
                self._stderr = (self._stderr + chunk)[-STDERR_KEPT_BYTES:]
            else:
                yield chunk

    def both(self, *, wake: float | None = None) -> Iterator[tuple[bool, bytes]]:
        """Like :meth:`chunks`, with stderr: whether a chunk is of it, and the chunk.

        Raises:
            ConnectionLost: the connection broke first.
        """
        yield from _chunks(self.channel, self.node, wake=wake)
        if self.was_cut:
            raise _lost(self.node, self.channel)

    def close(self) -> None:
        """End the remote command and the iteration; fine to call twice."""
        self._closed = True
        with suppress(OSError, EOFError):
            self.channel.close()


class _Deadline(threading.Event):
    """An event for which nobody waits longer than until ``seconds`` from now.

    Raises:
        TimeoutError: from ``wait``.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._end = time.monotonic() + seconds

    def wait(self, timeout: float | None = None) -> bool:
        if not super().wait(_remaining(self._end) if timeout is None else timeout):
            raise TimeoutError
        return True


def start_command(channel: Channel, node: str, command: str, *, timeout: float) -> None:
    """Let the server start ``command``, within ``timeout`` seconds and :data:`REQUEST_SECONDS`.

    Raises:
        Unreachable: it did not answer. Failures are paramiko's own exceptions otherwise.
    """
    seconds = min(timeout, REQUEST_SECONDS)
    # For this event paramiko waits until the server has answered a request; for ever, of its own.
    channel.event = _Deadline(seconds)
    try:
        channel.exec_command(command)
    except TimeoutError:
        channel.close()
        raise Unreachable(
            f"{node}: its SSH server did not start a command within {seconds:g} s",
            why="it may be out of memory or processes",
            next_step=look(node),
        ) from None


def run_command(transport: Transport, node: str, command: str, *, timeout: float) -> CommandResult:
    """Run ``command`` with no input to its end, at most ``timeout`` seconds.

    Raises:
        Unreachable: it did not end in time, or the connection was lost.
        ToolFailed: it printed more than 16 MiB.
    """
    deadline = time.monotonic() + timeout
    outputs = (bytearray(), bytearray())
    channel = transport.open_session(timeout=timeout)
    try:
        start_command(channel, node, command, timeout=timeout)
        channel.shutdown_write()
        for is_error, chunk in _chunks(channel, node, deadline=deadline):
            outputs[is_error].extend(chunk)
            if len(outputs[is_error]) > MAX_OUTPUT_BYTES:
                raise ToolFailed(f"{node}: {_short(command)!r} printed more than 16 MiB")
        if not channel.status_event.wait(_remaining(deadline)):
            raise TimeoutError
        if channel.exit_status == -1 and not channel.eof_received:
            raise _lost(node, channel)
    except TimeoutError:
        raise Unreachable(
            f"{node}: {_short(command)!r} did not end within {timeout:.0f} s"
        ) from None
    finally:
        channel.close()
    stdout, stderr = (bytes(output).decode(errors="replace") for output in outputs)
    return CommandResult(code=channel.exit_status, stdout=stdout, stderr=stderr)


def cause(error: BaseException) -> str:
    """Why an SSH connection failed, in words; ``error`` is paramiko's or the system's."""
    from paramiko.ssh_exception import AuthenticationException, NoValidConnectionsError

    if isinstance(error, NoValidConnectionsError):
        return "; ".join(
            f"{address[0]} port {address[1]}: {getattr(failure, 'strerror', None) or failure}"
            for address, failure in error.errors.items()
        )
    if isinstance(error, AuthenticationException):
        return f"the login was refused: {error}"
    if "Error reading SSH protocol banner" in str(error) and error.__context__ is not None:
        return cause(error.__context__)
    # "No existing session" is what paramiko says when the key exchange takes too long.
    late = ("No existing session", "Timeout opening channel")
    if isinstance(error, TimeoutError) or any(text in str(error) for text in late):
        return "it did not answer in time"
    if isinstance(error, EOFError):
        return "it closed the connection"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _chunks(
    channel: Channel, node: str, *, deadline: float | None = None, wake: float | None = None
) -> Iterator[tuple[bool, bytes]]:
    """Yield (is it stderr, bytes) until both ended; empty bytes after ``wake`` seconds of nothing.

    Both buffers share one event. That is sound because only this thread clears it (by reading),
    and it looks at both after every read and before every wait.

    Raises:
        TimeoutError: ``deadline`` has passed.
        ConnectionLost: it broke while the other side was told that there is room again.
    """
    arrived = threading.Event()
    channel.in_buffer.set_event(arrived)
    channel.in_stderr_buffer.set_event(arrived)
    while True:
        ended = channel.eof_received or channel.closed
        if channel.recv_stderr_ready():
            yield True, _received(channel, channel.recv_stderr, node)
        elif channel.recv_ready():
            yield False, _received(channel, channel.recv, node)
        elif ended:
            return
        elif not arrived.wait(wake if deadline is None else _remaining(deadline)):
            if deadline is not None:
                raise TimeoutError
            yield False, b""


def _received(channel: Channel, read: Callable[[int], bytes], node: str) -> bytes:
    try:
        return read(CHUNK_BYTES)
    except (OSError, EOFError) as error:
        raise _lost(node, channel) from error


def _lost(node: str, channel: Channel) -> ConnectionLost:
    error = channel.get_transport().saved_exception
    return ConnectionLost(
        f"{node}: the connection was lost",
        why=cause(error) if error is not None else "",
        next_step=look(node),
    )


def look(node: str) -> str:
    """The command that shows how the cluster of ``node`` is."""
    return f"invoke status --cluster {node.partition('/')[0]}"


def _remaining(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0)


def _short(command: str) -> str:
    return command if len(command) <= 80 else command[:77] + "..."

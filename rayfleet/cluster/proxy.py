"""A program that carries an SSH connection on its stdin and stdout (OpenSSH's ProxyCommand)."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress

from rayfleet.errors import PrerequisiteMissing, UsageError

GRACE_SECONDS = 2.0
STDERR_KEPT_BYTES = 2000


class Proxy:
    """The running program; ``socket`` is our end of it.

    A real socket pair, because paramiko's own ProxyCommand spins at full speed until its
    timeout when the program ends early.
    """

    def __init__(self, command: str, tokens: Mapping[str, str]) -> None:
        """Start ``command``; ``tokens`` replaces ``%h`` and its like, argument by argument.

        No shell is involved, so a host name can add no command.

        Raises:
            UsageError: the command cannot be split into arguments.
            PrerequisiteMissing: the program is not installed.
        """
        self.argv = expanded(command, tokens)
        self._closing = threading.Lock()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the proxy)
        self.socket, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                self.argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                start_new_session=True,
            )
        except OSError as error:
            self.socket.close()
            self._stderr.close()
            raise PrerequisiteMissing(
                f"cannot run the proxy command {self.argv[0]}",
                why=error.strerror or str(error),
                next_step="invoke doctor",
            ) from error
        finally:
            theirs.close()

    def complaint(self) -> str:
        """How the program ended and the end of its stderr; empty while it runs silently."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=GRACE_SECONDS)
        said = self._said()
        code = self._process.returncode
        if code is None:
            return said
        return f"{self.argv[0]} exited with {code}" + (f": {said}" if said else "")

    def close(self) -> None:
        """End the program, and what it started; fine to call twice, and from two threads."""
        self.socket.close()
        with self._closing:
            # Told twice: by the end of its input, and by a signal for those that do not look.
            for sign in (signal.SIGTERM, signal.SIGKILL):
                if self._process.poll() is not None:
                    break
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, sign)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=GRACE_SECONDS)
            self._stderr.close()

    def _said(self) -> str:
        # pread: the program shares our file offset, and moving it would overwrite its output.
        fd = self._stderr.fileno()
        start = max(os.fstat(fd).st_size - STDERR_KEPT_BYTES, 0)
        return os.pread(fd, STDERR_KEPT_BYTES, start).decode(errors="replace").strip()


def expanded(command: str, tokens: Mapping[str, str]) -> list[str]:
    """``command`` as an argument list, ``%x`` replaced by ``tokens["x"]`` and ``%%`` by ``%``.

    Raises:
        UsageError: unbalanced quotes, an unknown token, or nothing to run.
    """
    try:
        words = [_replaced(word, tokens) for word in shlex.split(command)]
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"cannot read the proxy command {command!r}",
            why=f"unknown token %{error.args[0]}" if isinstance(error, KeyError) else str(error),
            next_step="mend ssh.proxy_command in the fleet file, then run: invoke fleet.lint",
        ) from error
    if not words:
        raise UsageError("the proxy command is empty")
    return words


def _replaced(word: str, tokens: Mapping[str, str]) -> str:
    head, *rest = word.split("%")
    out = [head]
    while rest:
        part = rest.pop(0)
        if part:
            out.append(tokens[part[0]] + part[1:])
        else:
            # "%%": the split left an empty part, and what follows is plain text.
            out.append("%" + (rest.pop(0) if rest else ""))
    return "".join(out)

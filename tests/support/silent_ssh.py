"""An SSH server that lets everybody in and then starts nothing, and a proxy that falls silent."""

from __future__ import annotations

import shlex
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from paramiko import Ed25519Key, ServerInterface, Transport
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from tests.support.sshd import LocalSshd

PROXY = """\
import os, pathlib, select, subprocess, sys, time
silent, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
sshd = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
ways = {0: sshd.stdin.fileno(), sshd.stdout.fileno(): 1}
while True:
    ready, _, _ = select.select([*ways], [], [], 0.02)
    while silent.exists():
        time.sleep(0.02)
    for one in ready:
        data = os.read(one, 65536)
        if not data:
            sys.exit(sshd.kill())
        while data:
            data = data[os.write(ways[one], data):]
"""


def silent_proxy(sshd: LocalSshd, mark: Path) -> str:
    """A proxy command that carries nothing any more, and stays, while the file ``mark`` exists."""
    program = mark.with_name("proxy.py")
    program.write_text(PROXY)
    return f"{shlex.join([sys.executable, str(program), str(mark)])} {sshd.inetd_command}"


@dataclass
class StartsNothing:
    """An SSH server on loopback with the keys of ``sshd``: like one that cannot fork, and does not
    say so, it lets everybody in, opens channels, and never answers a request to run something."""

    sshd: LocalSshd
    over: threading.Event = field(default_factory=threading.Event)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Begin to serve."""
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        """End it; what waits is let go."""
        self.over.set()
        self._listener.close()

    def _serve(self) -> None:
        over = self.over

        class Server(ServerInterface):
            def check_auth_publickey(self, username: str, key: object) -> int:
                return AUTH_SUCCESSFUL

            def get_allowed_auths(self, username: str) -> str:
                return "publickey"

            def check_channel_request(self, kind: str, chanid: int) -> int:
                return OPEN_SUCCEEDED

            def check_channel_exec_request(self, channel: object, command: bytes) -> bool:
                return over.wait() and False

        key = Ed25519Key(filename=str(self.sshd.folder / "host_key"))
        served: list[Transport] = []
        with suppress(OSError):
            while True:
                transport = Transport(self._listener.accept()[0])
                transport.add_server_key(key)
                transport.start_server(server=Server(), event=threading.Event())
                served.append(transport)
        for transport in served:
            transport.close()

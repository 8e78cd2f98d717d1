"""Debian's own sshd on loopback, as a child process, for tests."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rayfleet.cluster.head import HeadAddress
from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.waiting import wait_until

PROGRAM = "/usr/sbin/sshd"
START_SECONDS = 20.0
STOP_SECONDS = 10.0
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
MaxSessions 200
# A home without the start-up files of whoever runs the tests.
SetEnv HOME={folder}
"""


@dataclass(kw_only=True)
class LocalSshd:
    """One sshd on 127.0.0.1 with its own host key, which lets the current user in by key.

    ``known_hosts`` holds its key under ``alias``. Restarts keep the port and the keys;
    ``options`` are more lines of its configuration.
    """

    folder: Path
    alias: str = "test-head"
    port: int = 0
    options: list[str] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def known_hosts(self) -> Path:
        """Where the host key is recorded."""
        return self.folder / "known_hosts"

    @property
    def log(self) -> Path:
        """What sshd printed."""
        return self.folder / "sshd.log"

    @property
    def inetd_command(self) -> str:
        """A proxy command that is itself an sshd: the form the sandbox uses."""
        return shlex.join([PROGRAM, "-i", "-e", "-f", str(self.folder / "sshd_config")])

    def prepare(self) -> None:
        """Make keys, configuration and the record of the host key."""
        if not Path(PROGRAM).exists():
            raise RuntimeError(f"{PROGRAM} is missing; install it: apt-get install openssh-server")
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd refuses to start without it
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or _free_port()
        for name in ("host_key", "client_key"):
            make_key(self.folder / name)
        record_host_key(self.known_hosts, self.alias, (self.folder / "host_key.pub").read_text())
        config = CONFIG.format(port=self.port, folder=self.folder)
        (self.folder / "sshd_config").write_text(config + "".join(f"{o}\n" for o in self.options))

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.prepare()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        wait_until(
            self._answers,
            what=f"sshd on port {self.port}",
            timeout=START_SECONDS,
            interval=0.02,
            reason=self.log.read_text,
        )

    def stop(self) -> None:
        """End the listener and every session."""
        if self._process is None:
            return
        self.kill_sessions()
        self._process.terminate()
        self._process.wait(timeout=STOP_SECONDS)
        self.kill_sessions()
        self._process = None

    def sessions(self) -> tuple[int, ...]:
        """The process ids of the sessions' sshd processes, the listener's children."""
        if self._process is None:
            return ()
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return tuple(int(pid) for pid in path.read_text().split()) if path.exists() else ()

    def kill_sessions(self) -> int:
        """SIGKILL every session, as when the machine goes away; return how many there were."""
        pids = self.sessions()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def address(self, cluster: str = "us-east5", **changes: object) -> HeadAddress:
        """The address of this head; ``changes`` replace fields."""
        fields: dict[str, object] = {
            "cluster": cluster,
            "host": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "private_key": self.folder / "client_key",
            "known_hosts": self.known_hosts,
            "alias": self.alias,
        }
        return HeadAddress(**(fields | changes))  # type: ignore[arg-type]

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"sshd ended: {self.log.read_text()}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as link:
            return link.recv(4) == b"SSH-"
        return False


def make_key(path: Path) -> None:
    """Make an ed25519 key pair at ``path`` and ``path``.pub unless there is one."""
    if path.exists():
        return
    program = shutil.which("ssh-keygen")
    if program is None:
        raise RuntimeError("ssh-keygen is missing; install it: apt-get install openssh-client")
    subprocess.run([program, "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""Heads on loopback: an OpenSSH server each, all with the same paths and files of their own.

Each server has a mount namespace, in which its own folder lies where the logs of every head are.
There root's shell is /bin/sh and the home folder is empty, so that nobody's start-up files count.
Docker is there as on a VM of a real cloud, without a container of Ray's: rayfleet looks for one
before it reads, which is in its time. One cipher is allowed, so that all clients work alike. A PID
namespace lets everything on a head end with it, whatever a tool has left there.
"""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rayfleet.cluster.head import HeadAddress
from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.waiting import wait_until

SESSION = "session_2026-11-21_20-00-00_000000_1"
LOG = "monitor.log"
START_SECONDS = 20.0
STOP_SECONDS = 10.0

SSHD = """\
Port {port}
ListenAddress {host}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel ERROR
MaxStartups 1000
MaxSessions 1000
Ciphers aes128-gcm@openssh.com
"""

# What every OpenSSH client here is given: it asks nobody, and it checks the key of the host.
CLIENT = """\
Host 127.0.1.*
    Port {port}
    User {user}
    IdentityFile {folder}/client_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    LogLevel ERROR
"""

ENTER = """\
set -e
mount --bind "$1" "$2"
mount --bind "$3" /etc/passwd
exec "$4" -D -e -f "$5"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """``count`` heads, at 127.0.1.1 and up; ``folder`` has everything that they are made of."""

    folder: Path
    count: int
    port: int

    @property
    def hosts(self) -> tuple[str, ...]:
        """Their addresses."""
        return tuple(f"127.0.1.{number}" for number in range(1, self.count + 1))

    @property
    def names(self) -> tuple[str, ...]:
        """The clusters of which they are the heads."""
        return tuple(f"head-{number:02}" for number in range(1, self.count + 1))

    @property
    def home(self) -> Path:
        """The home folder of every client and, on the heads, of root."""
        return self.folder / "home"

    @property
    def ssh_config(self) -> Path:
        """For clients."""
        return self.home / ".ssh" / "config"

    @property
    def client_key(self) -> Path:
        """It opens every head."""
        return self.folder / "client_key"

    @property
    def known_hosts(self) -> Path:
        """The host key under the address and under the name of each head."""
        return self.folder / "known_hosts"

    @property
    def root(self) -> Path:
        """Ray's temporary folder, seen from a head."""
        return self.folder / "ray"

    @property
    def path(self) -> Path:
        """The log, seen from a head."""
        return self.root / "session_latest" / "logs" / LOG

    def log(self, name: str) -> Path:
        """The same log of the head ``name``, seen from here."""
        return self.folder / "nodes" / name / SESSION / "logs" / LOG

    def addresses(self) -> tuple[HeadAddress, ...]:
        """How rayfleet enters them."""
        return tuple(
            HeadAddress(
                cluster=name,
                host=host,
                port=self.port,
                user=getpass.getuser(),
                private_key=self.client_key,
                known_hosts=self.known_hosts,
                alias=name,
            )
            for name, host in zip(self.names, self.hosts, strict=True)
        )


@contextmanager
def heads_running(folder: Path, count: int) -> Iterator[Heads]:
    """Heads with empty logs, while the block runs."""
    heads = Heads(folder=folder, count=count, port=_free_port())
    _prepare(heads)
    servers: list[subprocess.Popen[bytes]] = []
    try:
        servers += [_start(heads, *each) for each in zip(heads.names, heads.hosts, strict=True)]
        for host, server in zip(heads.hosts, servers, strict=True):
            wait_until(
                lambda host=host, server=server: _answers(host, heads.port, server),
                what=f"sshd at {host}",
                timeout=START_SECONDS,
                interval=0.02,
                reason=(folder / "sshd.log").read_text,
            )
        yield heads
    finally:
        for server in servers:
            _stop(server)


def _prepare(heads: Heads) -> None:
    folder = heads.folder
    for each in (heads.home / ".ssh", heads.root, Path("/run/sshd")):
        each.mkdir(parents=True, exist_ok=True)
    for name in ("host_key", "client_key"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True)
    public = (folder / "host_key.pub").read_text()
    for name, host in zip(heads.names, heads.hosts, strict=True):
        record_host_key(heads.known_hosts, name, public)
        record_host_key(heads.known_hosts, f"[{host}]:{heads.port}", public)
        heads.log(name).parent.mkdir(parents=True)
        heads.log(name).touch()
        (folder / "nodes" / name / "session_latest").symlink_to(SESSION)
        config = SSHD.format(port=heads.port, host=host, folder=folder)
        (folder / f"sshd_{name}").write_text(config)
    user = getpass.getuser()
    heads.ssh_config.write_text(CLIENT.format(port=heads.port, user=user, folder=folder))
    lines = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    for fields in lines:
        if fields[0] == user:
            fields[5:7] = [str(heads.home), "/bin/sh"]
    (folder / "passwd").write_text("".join(":".join(fields) + "\n" for fields in lines))


def _start(heads: Heads, name: str, host: str) -> subprocess.Popen[bytes]:
    folder = heads.folder
    sshd = shutil.which("sshd")
    assert sshd is not None
    with (folder / "sshd.log").open("ab") as log:
        return subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "--"),
                *("unshare", "--mount", "--propagation", "private"),
                *("--pid", "--fork", "--kill-child", "--mount-proc", "--"),
                *("sh", "-c", ENTER, host, str(folder / "nodes" / name), str(heads.root)),
                *(str(folder / "passwd"), sshd, str(folder / f"sshd_{name}")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End a head, all its processes at once."""
    server.kill()
    server.wait(timeout=STOP_SECONDS)


def _answers(host: str, port: int, server: subprocess.Popen[bytes]) -> bool:
    if server.poll() is not None:
        raise SystemExit(f"the sshd at {host} ended with {server.returncode}")
    with suppress(OSError), socket.create_connection((host, port), 1) as link:
        return link.recv(4) == b"SSH-"
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))  # noqa: S104 (it must be free on all of loopback)
        return int(probe.getsockname()[1])

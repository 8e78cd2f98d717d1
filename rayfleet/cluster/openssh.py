"""OpenSSH's own programs on the way of rayfleet: the same address, keys and host keys.

What an address says stands in a configuration file that is made for one run and given with
``-F``; ssh hands it on to the ssh of a jump host, and rsync to its ssh. The operator's ssh_config
and the machine's come after it, so that what the address leaves open is theirs.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.cluster.known_hosts import lookup, record_host_key
from rayfleet.errors import UsageError

if TYPE_CHECKING:
    from rayfleet.cluster.head import HeadAddress

FAILED = 255
"""The exit code of ssh when it could not connect, or was cut off."""

MACHINE_WIDE = Path("/etc/ssh/ssh_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How ``ssh`` enters ``address`` with the configuration file ``config``."""

    address: HeadAddress
    config: Path

    def ssh(self, command: str = "", *, options: Sequence[str] = ()) -> list[str]:
        """The words of ``ssh``; ``command`` is a line for the login shell there, empty for a
        login. ``options`` go before the host."""
        words = [*self.program(), *options, "--", self.address.host]
        return [*words, command] if command else words

    def program(self) -> list[str]:
        """The words of ``ssh`` before its options and the host: what rsync takes as ``-e``."""
        return ["ssh", "-F", str(self.config)]

    def remote(self, path: str) -> str:
        """``path`` on the node, as rsync writes it."""
        host = self.address.host
        return f"[{host}]:{path}" if ":" in host else f"{host}:{path}"


@contextmanager
def entry(address: HeadAddress, *, ask: bool) -> Iterator[Entry]:
    """An :class:`Entry` for as long as the block lasts; ``ask`` lets ssh ask for a passphrase.

    Raises:
        UsageError: the proxy command cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="rayfleet-ssh-") as folder:
        config, recorded = Path(folder) / "config", Path(folder) / "known_hosts"
        if address.host_keys:
            record_host_key(recorded, address.alias, address.host_keys)
            address = replace(address, known_hosts=recorded)
        config.write_text(configuration(address, ask=ask))
        yield Entry(address=address, config=config)


def configuration(address: HeadAddress, *, ask: bool) -> str:
    """The configuration file for ``address``, in the format of ssh_config(5).

    In this format the first value of an option counts, and a list of files is read in full.

    Raises:
        UsageError: the proxy command cannot be read.
    """
    from rayfleet.cluster.head import KEEPALIVE_SECONDS, OPEN_SECONDS

    ours = [
        f"ConnectTimeout {OPEN_SECONDS:.0f}",
        f"ServerAliveInterval {KEEPALIVE_SECONDS}",
        "ServerAliveCountMax 3",
        *_host_keys(address),
    ]
    if address.user:
        ours.append(f"User {address.user}")
    if address.port != 22:
        ours.append(f"Port {address.port}")
    if address.private_key is not None:
        ours += [f"IdentityFile {_quoted(address.private_key.expanduser())}", "IdentitiesOnly yes"]
    if address.proxy_command:
        ours.append(f"ProxyCommand {_proxy_command(address.proxy_command)}")
    lines = [
        # Before all sections, so that they hold for jump hosts as well.
        "StrictHostKeyChecking yes",
        "UpdateHostKeys no",
        *([] if ask else ["BatchMode yes"]),
        f"Host {address.host}",
        *(f"  {line}" for line in ours),
        "Host *",
        # Not in ssh's own home but in ours, as Fabric does.
        f"  Include {_quoted(Path.home() / '.ssh' / 'config')}",
        f"  Include {_quoted(MACHINE_WIDE)}",
        # For jump hosts that nobody has said anything of.
        f"  UserKnownHostsFile {_quoted(Path.home() / '.ssh' / 'known_hosts')}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _host_keys(address: HeadAddress) -> list[str]:
    """The first place that knows the node is the only one that is asked, as for our own."""
    users = Path.home() / ".ssh" / "known_hosts"
    known = next((p for p in (address.known_hosts, users) if lookup(p, address.alias)), None)
    if known is None:
        return []  # by its own name, where the operator knows it
    return [
        f"HostKeyAlias {address.alias}",
        f"UserKnownHostsFile {_quoted(known)}",
        "GlobalKnownHostsFile none",
        # By its address the same machine may be known under another key.
        "CheckHostIP no",
    ]


def _proxy_command(command: str) -> str:
    # ssh gives the line to a shell. Quoted word by word it means there what it means to us.
    try:
        words = shlex.split(command)
    except ValueError as error:
        words, why = [], str(error)
    else:
        why = "it is empty"
    line = shlex.join(words)
    if not words or "\n" in line:
        raise UsageError(
            f"cannot read the proxy command {command!r}",
            why=why if not words else "it has a line break",
            next_step="mend ssh.proxy_command in the fleet file, then run: invoke fleet.lint",
        )
    return line


def _quoted(path: Path) -> str:
    return f'"{path}"'

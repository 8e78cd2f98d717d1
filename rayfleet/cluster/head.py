"""The only door to a head: SSH with host keys that are checked and never learned on the way.

Fabric reads the operator's ssh_config (HostName, Port, User, IdentityFile, ProxyJump,
ProxyCommand) and what an address says explicitly wins. Fabric itself trusts any host key; here
the keys of the head and of every jump host must be known: from the fleet's own known_hosts,
written when a cluster starts, else from ``~/.ssh/known_hosts``.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from rayfleet.cluster.channel import CommandResult, Stream, cause, look, run_command
from rayfleet.cluster.identity import credentials
from rayfleet.cluster.known_hosts import KnownKeysOnly, lookup, public_keys
from rayfleet.cluster.liveness import Answering, ask
from rayfleet.cluster.proxy import Proxy
from rayfleet.cluster.tunnel import http_pool, port_channel
from rayfleet.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from paramiko import Channel, Transport
    from urllib3 import HTTPConnectionPool

SSH_PORT = 22
KEEPALIVE_SECONDS = 15
PATIENCE_SECONDS = 3.0 * KEEPALIVE_SECONDS
OPEN_SECONDS = 20.0
_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadAddress:
    """Where the head of ``cluster``, or one of its workers, is and how it is entered.

    ``worker`` is what operators call the worker; empty for the head. ``alias`` names the node in
    the file ``known_hosts`` (OpenSSH's HostKeyAlias). ``port`` 22 and an empty ``user``
    leave the word to ssh_config. ``container`` is the one that Ray runs in there; empty: it runs
    on the node itself. ``host_keys`` are public keys, a line each, as the node's cloud has
    recorded them: where there are any, no file is asked. ``private_key`` None means: the
    operator's own keys and agent. ``proxy_command`` may hold ``%h %p %r %n``.
    """

    cluster: str
    host: str
    port: int = SSH_PORT
    user: str
    private_key: Path | None
    proxy_command: str = ""
    container: str = ""
    known_hosts: Path
    alias: str
    worker: str = ""
    host_keys: str = ""

    @property
    def name(self) -> str:
        """What operators read: ``us-east5``, or ``us-east5/worker-ab12``."""
        return f"{self.cluster}/{self.worker}" if self.worker else self.cluster

    @property
    def kind(self) -> str:
        """``head`` or ``worker``."""
        return "worker" if self.worker else "head"


class Head:
    """An open connection to one head. Safe to use from several threads."""

    def __init__(self, address: HeadAddress, link: _Link) -> None:
        self.address = address
        self._link = link

    @classmethod
    def open(
        cls,
        address: HeadAddress,
        *,
        timeout: float = OPEN_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> Head:
        """Connect and log in; ``timeout`` is seconds for each of connect, key exchange, login.

        Afterwards the connection counts as lost once the node has been silent for ``patience``
        seconds although it was asked.

        Raises:
            Unreachable: with the cause: refused, no answer, host key unknown or changed,
                login refused, the proxy command failed.
            UsageError: the private key or ssh_config cannot be read.
        """
        # Without a handler Python prints paramiko's warnings and tracebacks on stderr.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
        _load_ssh()
        link = _Link(address, timeout, patience)
        try:
            link.open()
        except BaseException:
            link.close()
            raise
        return cls(address, link)

    def run(self, command: str, *, timeout: float) -> CommandResult:
        """Run a short ``command`` in the login shell, without input, within ``timeout`` seconds.

        A non-zero exit is a result, not an error.

        Raises:
            Unreachable: it did not end in time, or the connection was lost.
            ToolFailed: it printed more than 16 MiB.
        """
        with self._mapped():
            return run_command(self._transport, self.address.name, command, timeout=timeout)

    def stream(self, command: str, *, given: bytes = b"", timeout: float = OPEN_SECONDS) -> Stream:
        """Start ``command`` and return its output as it comes; ``timeout`` is for the start.

        The command reads ``given`` on its stdin, which then stays open for as long as the stream
        does. The command, and its process group, end with the stream.

        Raises:
            Unreachable: it could not be started.
        """
        with self._mapped():
            return Stream(self._transport, self.address.name, command, given, timeout=timeout)

    def http(self, port: int, *, timeout: float = 30.0) -> HTTPConnectionPool:
        """An HTTP client for 127.0.0.1:``port`` on the head, through this connection.

        ``timeout`` is seconds per connect and per read. No local port is opened, nothing is
        retried, and failures are urllib3's own exceptions. It lives as long as this head.
        """
        return http_pool(self._transport, port, timeout=timeout)

    def port(self, port: int, *, timeout: float = 30.0) -> Channel:
        """A connection to 127.0.0.1:``port`` on the head; ``timeout`` is seconds to open it.

        Raises:
            Unreachable: nobody listens there, or the connection to the head was lost.
        """
        with self._mapped(f"port {port} there does not answer"):
            return port_channel(self._transport, port, timeout=timeout)

    @property
    def alive(self) -> bool:
        """Whether the connection is up, as far as is known without asking."""
        transport = self._link.transport
        return transport is not None and transport.is_active()

    @property
    def host_key(self) -> str:
        """The kind and the base64 of the host key that the machine has proved to own: another
        machine of the same name, or at the same address, has another one.

        Raises:
            Unreachable: the connection was lost.
        """
        with self._mapped():
            key = self._transport.get_remote_server_key()
        return f"{key.get_name()} {key.get_base64()}"

    def close(self) -> None:
        """End everything that runs over the connection; fine to call twice."""
        self._link.close()

    def __enter__(self) -> Head:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _transport(self) -> Transport:
        transport = self._link.transport
        if transport is None or not transport.is_active():
            name = self.address.name
            raise Unreachable(f"{name}: the connection was lost", next_step=look(name))
        return transport

    @contextmanager
    def _mapped(self, what: str = "no command could be run") -> Iterator[None]:
        from paramiko.ssh_exception import SSHException

        try:
            yield
        except (SSHException, EOFError, OSError) as error:
            name = self.address.name
            raise Unreachable(f"{name}: {what}", why=cause(error), next_step=look(name)) from error


def _load_ssh() -> None:
    """Import Fabric, and with it the whole of paramiko, in one thread.

    Its modules import each other in circles: threads that begin in different places find halves.
    """
    with _LOADING:
        import fabric  # noqa: F401


class _Link:
    """The Fabric connection of a head, the jump hosts before it and its proxy program."""

    def __init__(self, address: HeadAddress, timeout: float, patience: float) -> None:
        self._address = address
        self._timeout = timeout
        self._patience = patience
        self._hops: list[Any] = []
        self._proxies: list[Proxy] = []

    @property
    def transport(self) -> Transport | None:
        return self._hops[0].client.get_transport() if self._hops else None

    def open(self) -> None:
        from paramiko.ssh_exception import SSHException

        address = self._address
        try:
            self._prepare(self._fabric_connection(), address)
            self._hops[0].open()
        except (SSHException, EOFError, OSError) as error:
            raise Unreachable(
                f"{address.name}: cannot reach the {address.kind} {address.host}",
                why="; ".join([cause(error), *self._complaints()]),
                next_step=look(address.cluster),
            ) from error
        for hop in self._hops:
            transport = hop.client.get_transport()
            transport.sock.ask = partial(ask, transport)

    def close(self) -> None:
        for hop in self._hops:
            hop.client.close()
        for proxy in self._proxies:
            proxy.close()

    def _fabric_connection(self) -> Any:
        from fabric import Config, Connection
        from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

        address = self._address
        try:
            connection = Connection(
                address.host,
                user=address.user or None,
                port=address.port if address.port != SSH_PORT else None,
                # False is "none at all": the explicit proxy command replaces ssh_config's.
                gateway=False if address.proxy_command else None,
                config=Config(),
            )
        except (ConfigParseError, CouldNotCanonicalize, ValueError) as error:
            raise UsageError("cannot read your ssh_config", why=str(error)) from error
        named = connection.ssh_config.get("identityfile", ())
        connection.connect_kwargs = credentials(address.private_key, named)
        return connection

    def _prepare(self, connection: Any, address: HeadAddress | None) -> None:
        """Give ``connection`` and the jump hosts before it our timeouts and our policy."""
        self._hops.append(connection)
        policy = self._policy(connection, address.alias if address else "")
        connection.connect_timeout = self._timeout
        connection.client.set_missing_host_key_policy(policy)
        connection.connect_kwargs = {
            **connection.connect_kwargs,
            "banner_timeout": self._timeout,
            "auth_timeout": self._timeout,
            "channel_timeout": self._timeout,
            "transport_factory": self._transport_factory(policy),
        }
        gateway = connection.gateway
        if address and address.proxy_command:
            tokens = {
                "h": connection.host,
                "p": str(connection.port),
                "r": connection.user,
                "n": address.host,
            }
            connection.connect_kwargs["sock"] = self._proxied(address.proxy_command, tokens)
        elif isinstance(gateway, str):
            # From ssh_config, where paramiko has replaced the tokens already.
            connection.gateway = None
            connection.connect_kwargs["sock"] = self._proxied(gateway.replace("%", "%%"), {})
        elif gateway:
            self._prepare(gateway, None)

    def _policy(self, connection: Any, alias: str) -> KnownKeysOnly:
        host, port = str(connection.host).lower(), int(connection.port)
        name = host if port == SSH_PORT else f"[{host}]:{port}"
        users = Path.home() / ".ssh" / "known_hosts"
        ours = self._address.known_hosts
        files = ((ours, alias), (users, alias), (users, name))
        known = next((keys for path, known in files if (keys := lookup(path, known))), ())
        if alias and self._address.host_keys:
            known = public_keys(self._address.host_keys, self._address.name)
        return KnownKeysOnly(
            known,
            whose=self._address.name,
            host=host,
            recorded_in=ours,
            worker=alias if self._address.worker else "",
        )

    def _proxied(self, command: str, tokens: dict[str, str]) -> socket.socket:
        proxy = Proxy(command, tokens)
        self._proxies.append(proxy)
        return proxy.socket

    def _complaints(self) -> list[str]:
        return [said for proxy in self._proxies if (said := proxy.complaint())]

    def _transport_factory(self, policy: KnownKeysOnly) -> Callable[..., Transport]:
        from paramiko import Transport

        def make(sock: socket.socket, **options: Any) -> Transport:
            transport = Transport(cast(Any, Answering(sock, self._patience)), **options)
            transport.handshake_timeout = self._timeout
            security = transport.get_security_options()
            security.key_types = policy.preferred(tuple(security.key_types))
            # Those that need no second pass for a checksum: a fifth less time for each byte.
            ciphers = tuple(security.ciphers)
            security.ciphers = tuple(sorted(ciphers, key=lambda name: "gcm" not in name))
            return transport

        return make

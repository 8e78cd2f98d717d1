"""The registries of a run: one client each, one limit for all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from rayfleet.image.oci.client import RegistryClient
from rayfleet.image.oci.limits import Limits

if TYPE_CHECKING:
    from rayfleet.image.oci.credentials import Credentials, Login
    from rayfleet.image.oci.http import Retries


class Registries:
    """Makes clients when they are first asked for, and closes them with the block.

    ``login`` is how to log in to a host. Safe to use from several threads.
    """

    def __init__(
        self,
        login: Callable[[str], Login],
        *,
        retries: Retries | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._login = login
        self._retries = retries
        self._clients: dict[str, tuple[RegistryClient, RememberedLogin]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Nothing is connected yet."""
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for client, _login in self._clients.values():
                client.close()
            self._clients.clear()

    def client(self, destination: str) -> RegistryClient:
        """The client of the registry that ``host/path/of/repository`` is in."""
        return self._known(destination)[0]

    def log_in(self, destination: str) -> None:
        """Find the credentials of that registry, before it is asked anything.

        Raises:
            PrerequisiteMissing: they should be there and are not, or are unreadable.
        """
        self._known(destination)[1].find()

    def _known(self, destination: str) -> tuple[RegistryClient, RememberedLogin]:
        host = destination.partition("/")[0]
        with self._lock:
            if host not in self._clients:
                login = RememberedLogin(self._login(host))
                client = RegistryClient(host, login, retries=self._retries, limits=self.limits)
                self._clients[host] = client, login
            return self._clients[host]


class RememberedLogin:
    """A login whose first answer is kept: a credential helper takes its time."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._lock = threading.Lock()
        self._first: list[Credentials | None] = []

    def find(self) -> Credentials | None:
        """The first answer."""
        with self._lock:
            if not self._first:
                self._first.append(self._login(False))
            return self._first[0]

    def __call__(self, refused: bool) -> Credentials | None:
        """The first answer, or fresh credentials if that was refused."""
        return self._login(True) if refused else self.find()

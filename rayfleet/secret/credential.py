"""The token of one cluster, on the operator's side: found when needed, found anew when refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rayfleet.errors import RayfleetError
from rayfleet.files import ensure_private_folder, refusing, write_atomically
from rayfleet.secret.store import Secret

T = TypeVar("T")

REFUSALS = frozenset({401, 403})
"""What Ray answers without a token and to a wrong one."""
TRIED_VERSIONS = 2  # the latest, and the one before it while a rotation is under way


@dataclass
class Credential:
    """The token of one cluster. Safe to use from several threads.

    ``cache`` is a file of its own for this cluster, which ``secret`` is asked for only when
    there is none or the cluster refuses what it holds. ``said`` is what the operator gave by
    hand; then nothing else is tried.
    """

    secret: Secret
    cache: Path
    said: str = field(default="", repr=False)
    _held: str = field(default="", init=False, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    def known(self) -> str:
        """The token as far as this machine knows it, without a question to anyone; or empty.

        Waits for no other thread, which may be asking.
        """
        return self.said or self._held or self._cached()

    def current(self) -> str:
        """The token to try first; empty when there is none at all.

        Raises:
            RayfleetError: the secret cannot be read.
        """
        with self._lock:
            self._held = self.known() or next(self._stored(()), "")
            return self._held

    def another(self, tried: Collection[str]) -> str:
        """A token to try after those of ``tried``; empty when there is no other.

        Raises:
            RayfleetError: the secret cannot be read.
        """
        if self.said:
            return ""
        with self._lock:
            cached = self._cached()
            return cached if cached not in ("", *tried) else next(self._stored(tried), "")

    def accepted(self, token: str) -> None:
        """Keep ``token``, which the cluster took."""
        with self._lock:
            self._held = token
            if not self.said and self._cached() != token:
                ensure_private_folder(self.cache.parent.parent)
                ensure_private_folder(self.cache.parent)
                write_atomically(self.cache, token, mode=0o600)

    def _cached(self) -> str:
        try:
            with refusing(self.cache, action="read"):
                return self.cache.read_text().strip() if self.cache.exists() else ""
        except UnicodeDecodeError:
            return ""

    def _stored(self, tried: Collection[str]) -> Iterator[str]:
        for version in self.secret.enabled()[:TRIED_VERSIONS]:
            token = self.secret.read(version)
            if token not in tried:
                yield token


Token = Credential | str | None
"""What a client of a head is given: a word that stays, or None where the cluster wants none."""


def known(token: Token) -> str | None:
    """The token as far as this machine knows it, without a question to anyone."""
    return token.known() if isinstance(token, Credential) else token


def asked(
    token: Token,
    ask: Callable[[Mapping[str, str]], T],
    status: Callable[[T], int],
) -> T:
    """What ``ask`` returns, given the header with ``token``; asked again while the answer's
    ``status`` refuses the token and there is another one to try: at most three times.

    Raises:
        RayfleetError: there is no token yet, and the secret cannot be read.
    """
    if not isinstance(token, Credential):
        return ask(_header(token or ""))
    value, tried = token.current(), set[str]()
    while True:
        answer = ask(_header(value))
        if status(answer) not in REFUSALS:
            if value and status(answer) == 200:
                token.accepted(value)
            return answer
        tried.add(value)
        value = _next(token, tried)
        if not value:
            return answer


def _next(token: Credential, tried: Collection[str]) -> str:
    try:
        return token.another(tried)
    except RayfleetError:
        return ""  # the refusal is what matters


def _header(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}

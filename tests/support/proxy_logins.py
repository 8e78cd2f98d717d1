"""Logins that a faulty proxy asks for in its registry's place, and that can expire."""

from __future__ import annotations

import base64
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from tests.support.faults import Request


def basic(username: str, password: str) -> str:
    """The header of basic authentication."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


class Logins(Protocol):
    """Whom a proxy lets in. Safe to use from several threads."""

    @property
    def upstream(self) -> str:
        """The Authorization header that the registry itself wants."""

    def challenge(self, request: Request, authorization: str, host: str) -> str | None:
        """What to ask of a request that is not let in; None lets it in."""

    def give(self, request: Request, authorization: str) -> str | None:
        """A token for a request of kind ``token``; None if its password is wrong."""

    def expire(self) -> None:
        """Void every login that was good until now."""


@dataclass(kw_only=True)
class Passwords:
    """Basic authentication by a password that changes when it expires, as Google's tokens do.

    ``username`` and ``password`` are the registry's own; ``current`` is what opens the proxy.
    """

    username: str
    password: str = field(repr=False)
    current: str = field(default_factory=lambda: secrets.token_urlsafe(18), repr=False)

    @property
    def upstream(self) -> str:
        """The registry's own login."""
        return basic(self.username, self.password)

    def challenge(self, request: Request, authorization: str, host: str) -> str | None:
        """Ask for the password, unless it came along."""
        good = authorization == basic(self.username, self.current)
        return None if good else 'Basic realm="test"'

    def give(self, request: Request, authorization: str) -> str | None:
        """There are no tokens here."""
        return None

    def expire(self) -> None:
        """Change the password."""
        self.current = secrets.token_urlsafe(18)


@dataclass(kw_only=True)
class Tokens:
    """Bearer tokens (distribution, docs/spec/auth/token.md) for what their scopes say.

    Each is good for ``uses`` requests. ``given`` counts them.
    """

    username: str
    password: str = field(repr=False)
    uses: int = 1_000_000
    given: int = 0
    _left: dict[str, int] = field(default_factory=dict, repr=False)
    _scopes: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def upstream(self) -> str:
        """The registry's own login."""
        return basic(self.username, self.password)

    def challenge(self, request: Request, authorization: str, host: str) -> str | None:
        """Ask for a token of the request's scope, unless a good one came along."""
        token = authorization.removeprefix("Bearer ")
        name, action = f"repository:{request.repository}", _action(request.method)
        with self._lock:
            scopes = self._scopes.get(token, ())
            covered = not request.repository or _covered(scopes, name, action)
            if covered and self._left.get(token, 0) > 0:
                self._left[token] -= 1
                return None
        actions = "pull" if action == "pull" else f"pull,{action}"
        scope = f',scope="{name}:{actions}"' if request.repository else ""
        return f'Bearer realm="http://{host}/token",service="test"{scope}'

    def give(self, request: Request, authorization: str) -> str | None:
        """A new token, for the right password."""
        if authorization != self.upstream:
            return None
        token = secrets.token_urlsafe(24)
        with self._lock:
            self.given += 1
            self._left[token] = self.uses
            self._scopes[token] = tuple(parse_qs(urlsplit(request.target).query).get("scope", ()))
        return token

    def expire(self) -> None:
        """Void all tokens."""
        with self._lock:
            self._left.clear()


def _action(method: str) -> str:
    return {"GET": "pull", "HEAD": "pull", "DELETE": "delete"}.get(method, "push")


def _covered(scopes: Iterable[str], name: str, action: str) -> bool:
    granted = (each.rpartition(":") for scope in scopes for each in scope.split())
    return any(known == name and action in actions.split(",") for known, _, actions in granted)

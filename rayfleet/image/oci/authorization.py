"""Answers to a registry's challenges: basic authentication, and tokens of its token server."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from rayfleet.errors import ToolFailed
from rayfleet.image.oci.http import Http, is_loopback
from rayfleet.image.oci.patience import Reply
from rayfleet.image.oci.refusals import Asked, clean, refusal
from rayfleet.image.oci.rights import Action

if TYPE_CHECKING:
    from rayfleet.image.oci.credentials import Credentials, Login

Scopes = tuple[str, ...]

# What a token is good for if its server does not say, in seconds:
# https://distribution.github.io/distribution/spec/auth/token/#token-response-fields
DEFAULT_LIFETIME = 60.0
# The part of its life that a token is used for: the registry's clock may be ahead.
USED_LIFETIME = 0.9

_PARAMETER = re.compile(
    r'(?:(?P<scheme>[A-Za-z][\w-]*)\s+)?(?P<name>\w+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"'
    r'|(?P<plain>[^\s",]+))'
)


def pulling(repository: str) -> str:
    """The scope of reading a repository."""
    return f"repository:{repository}:pull"


def pushing(repository: str) -> str:
    """The scope of writing to a repository."""
    return f"repository:{repository}:pull,push"


def deleting(repository: str) -> str:
    """The scope of deleting from a repository."""
    return f"repository:{repository}:pull,push,delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What a registry asks for: a WWW-Authenticate header (RFC 9110, section 11.6.1)."""

    scheme: str
    parameters: Mapping[str, str]

    @classmethod
    def parse(cls, header: str) -> Challenge:
        """The best challenge of ``header``: for tokens, else a password; its scheme lower-case."""
        found: list[tuple[str, dict[str, str]]] = []
        for match in _PARAMETER.finditer(header):
            if match["scheme"] or not found:
                found.append(((match["scheme"] or "").lower(), {}))
            value = match["plain"] or re.sub(r"\\(.)", r"\1", match["quoted"] or "")
            found[-1][1][match["name"].lower()] = value
        if not found:
            found = [(word.lower(), {}) for word in header.split()[:1]] or [("", {})]
        found.sort(key=lambda each: {"bearer": 0, "basic": 1}.get(each[0], 2))
        return cls(scheme=found[0][0], parameters=found[0][1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token, when it ends by the monotonic clock, and for whom it was given."""

    value: str = field(repr=False)
    ends: float
    credentials: Credentials | None

    @property
    def header(self) -> str:
        """Its Authorization header."""
        return f"Bearer {self.value}"


class Authorizer:
    """The Authorization headers for one registry. Safe to use from several threads.

    After the first challenge every header is known before its request. Tokens are kept for
    each set of scopes; only one thread at a time asks for the same one.
    """

    def __init__(
        self, http: Http, login: Login, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._http = http
        self._login = login
        self._clock = clock
        self._lock = threading.Lock()
        self._login_lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._logged_in = False
        self._challenge: Challenge | None = None
        self._tokens: dict[Scopes, Token] = {}
        self._good: dict[Scopes, str] = {}
        self._flights: dict[Scopes, Future[Token]] = {}

    def asked(self, what: str, *, repository: str = "", action: Action = Action.PULL) -> Asked:
        """What the registry was asked, for the error if it refuses."""
        known, secrets = self._credentials, [token.value for token in list(self._tokens.values())]
        if known is not None:
            secrets += [known.password, (_basic(known) or "").partition(" ")[2]]
        return Asked(
            host=self._http.host,
            what=what,
            repository=repository,
            user=(known.account or known.username) if known is not None else "",
            action=action,
            secrets=tuple(each for each in secrets if each),
        )

    def header(self, scopes: Scopes) -> str | None:
        """The header for a request; None before the first challenge, and for nobody."""
        if self._challenge is None:
            return None
        if self._challenge.scheme == "bearer":
            return self._token(self._challenge, scopes, refused=None).header
        return _basic(self._current())

    def answer(
        self, challenge: Challenge, scopes: Scopes, *, refused: str | None, renew: bool
    ) -> str | None:
        """The header to try after ``refused`` was not good enough; None if there is no other.

        ``renew`` says that a new token is not enough: the credentials are to be fresh.
        """
        self._challenge = challenge
        if challenge.scheme == "bearer":
            if renew and not self._renew_behind(scopes, refused):
                return None
            return self._token(challenge, scopes, refused=refused).header
        if challenge.scheme != "basic":
            return None
        used = self._current()
        if refused is not None and _basic(used) == refused and not self._renew(used):
            return None
        header = _basic(self._current())
        return None if header == refused else header

    def note_good(self, scopes: Scopes, header: str | None) -> None:
        """A request with this header was let in."""
        if header is not None:
            self._good[scopes] = header

    def was_good(self, scopes: Scopes, header: str | None) -> bool:
        """True if a request with this header was let in: refused now, it has expired."""
        return header is None or self._good.get(scopes) == header

    def _current(self) -> Credentials | None:
        with self._login_lock:
            if not self._logged_in:
                self._credentials = self._login(False)
                self._logged_in = True
            return self._credentials

    def _renew(self, used: Credentials | None) -> bool:
        """Replace ``used``; False if there is nothing else to be had."""
        with self._login_lock:
            if self._credentials == used:
                self._credentials = self._login(True)
            return self._credentials != used

    def _renew_behind(self, scopes: Scopes, refused: str | None) -> bool:
        """Replace the credentials that the ``refused`` token was given for."""
        with self._lock:
            token = self._tokens.get(scopes)
        return token is None or token.header != refused or self._renew(token.credentials)

    def _token(self, challenge: Challenge, scopes: Scopes, *, refused: str | None) -> Token:
        with self._lock:
            token = self._tokens.get(scopes)
            if token is not None and token.ends > self._clock() and token.header != refused:
                return token
            flight = self._flights.get(scopes)
            if flight is None:
                mine: Future[Token] = Future()
                self._flights[scopes] = mine
        if flight is None:
            flight = mine
            try:
                token = self._fetch(challenge, scopes)
                with self._lock:
                    self._tokens[scopes] = token
                mine.set_result(token)
            except BaseException as error:  # for those who wait for it as well
                mine.set_exception(error)
            finally:
                with self._lock:
                    del self._flights[scopes]
        return flight.result()

    def _fetch(self, challenge: Challenge, scopes: Scopes) -> Token:
        """A new token (https://distribution.github.io/distribution/spec/auth/token/)."""
        url = self._token_url(challenge, scopes)
        used = self._current()
        asked_at = self._clock()
        reply = self._ask(url, used)
        if reply.status == 401 and self._renew(used):
            used, asked_at = self._current(), self._clock()
            reply = self._ask(url, used)
        if reply.status != 200:
            repository, action = _wanted(scopes)
            raise refusal(reply, self.asked("give a token", repository=repository, action=action))
        try:
            answer = json.loads(reply.data)
            value = str(answer.get("token") or answer["access_token"])
            lifetime = float(answer.get("expires_in") or DEFAULT_LIFETIME)
            if not value:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            # Not the answer itself, which may hold a token.
            raise ToolFailed(
                f"the token server of registry {self._http.host} gives no token",
                why="its answer is not what the specification says",
            ) from None
        return Token(value=value, ends=asked_at + USED_LIFETIME * lifetime, credentials=used)

    def _ask(self, url: str, credentials: Credentials | None) -> Reply:
        header = _basic(credentials)
        return self._http.request("GET", url, headers={"Authorization": header} if header else {})

    def _token_url(self, challenge: Challenge, scopes: Scopes) -> str:
        realm = challenge.parameters.get("realm", "")
        if not (realm.startswith("https://") or (realm and is_loopback(self._http.host))):
            raise ToolFailed(
                f"{self._http.host} wants its password sent to {clean(realm) or 'nowhere'}",
                why="only a token server behind TLS gets one",
            )
        query = [("service", challenge.parameters.get("service", ""))]
        wanted = scopes or tuple(challenge.parameters.get("scope", "").split())
        query += [("scope", scope) for scope in wanted]
        separator = "&" if "?" in realm else "?"
        return f"{realm}{separator}{urlencode([each for each in query if each[1]])}"


def _wanted(scopes: Scopes) -> tuple[str, Action]:
    """The repository of the first scope, and the furthest of its rights."""
    _, _, rest = next(iter(scopes), "").partition(":")
    repository, _, actions = rest.rpartition(":")
    known = [action for action in Action if action in actions.split(",")]
    return repository, known[-1] if known else Action.PULL


def _basic(credentials: Credentials | None) -> str | None:
    from urllib3 import make_headers

    if credentials is None:
        return None
    pair = f"{credentials.username}:{credentials.password}"
    return make_headers(basic_auth=pair)["authorization"]

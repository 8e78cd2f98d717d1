"""Who may use the local ports: the operator's browser, sent by our own page, and nobody else.

Every program and every user of this machine can open a port of 127.0.0.1, and so can every web
page that the operator has open. Three checks stand in the way:

- the Host must be ours (a page elsewhere can point its own name at 127.0.0.1, and would then
  be of the same origin as what it reads: DNS rebinding);
- a cookie must hold the secret of this run. Cookies know no ports, so its name has ours: two
  runs, or Ray itself, never overwrite it;
- other origins may open a page, but send, embed and read nothing. SameSite does not do that
  alone: all ports of 127.0.0.1 are one site.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

COOKIE_SECONDS = 24 * 3600  # renewed whenever the page refreshes itself
HOSTS = ("127.0.0.1", "localhost")
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The checks of one run; ``port`` is the page's, and all sites of the run share the cookie."""

    port: int
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(SECRET_BYTES), repr=False)

    @property
    def cookie(self) -> str:
        """The name of the cookie."""
        return f"rayfleet-{self.port}"

    @property
    def entry(self) -> str:
        """The address that lets a browser in."""
        return f"http://{HOSTS[0]}:{self.port}/enter?key={self.secret}"

    def opened_by(self, given: str) -> bool:
        """Whether ``given`` is the secret."""
        return hmac.compare_digest(given.encode(errors="replace"), self.secret.encode())

    def refusal(
        self,
        method: str,
        headers: Mapping[str, str],
        cookies: Mapping[str, str],
        *,
        port: int,
        entering: bool = False,
    ) -> str:
        """Why a request to ``port`` is refused; empty if it is not.

        ``entering`` is a request that brings the secret along, which needs no cookie.
        """
        host = headers.get("Host", "")
        if host not in {f"{name}:{port}" for name in HOSTS}:
            return "this address is not ours"
        if foreign(method, headers, f"http://{host}"):
            return "another page asked for this"
        if not entering and not self.opened_by(cookies.get(self.cookie, "")):
            return "the entry link is needed"
        return ""

    def let_in(self, response: web.StreamResponse) -> None:
        """Give the browser the cookie, or a new day with it."""
        response.set_cookie(
            self.cookie,
            self.secret,
            max_age=COOKIE_SECONDS,
            path="/",
            httponly=True,
            samesite="Strict",
        )


def foreign(method: str, headers: Mapping[str, str], origin: str) -> bool:
    """Whether a page of another origin made this request, other than by opening ours in a tab."""
    if headers.get("Origin", origin) != origin:
        return True
    if headers.get("Sec-Fetch-Site", "none") in {"none", "same-origin"}:
        return False
    navigation = headers.get("Sec-Fetch-Mode") == "navigate"
    tab = headers.get("Sec-Fetch-Dest") == "document"
    return not (navigation and tab and method in {"GET", "HEAD"})


def guarded(
    guard: Guard, port: int, refused: Callable[[str], web.Response], *, door: str = ""
) -> Middleware:
    """The middleware of the site at ``port``: nothing gets past it without the checks.

    ``refused`` makes the answer to a request that is not let in, of the reason; ``door`` is the
    path where the secret is exchanged for the cookie.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        why = guard.refusal(
            request.method,
            request.headers,
            request.cookies,
            port=port,
            entering=bool(door) and request.path == door,
        )
        return refused(why) if why else await handler(request)

    return middleware

"""Requests to a registry with the right Authorization, and its refusals as errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from rayfleet.image.oci.authorization import Authorizer, Challenge, Scopes
from rayfleet.image.oci.http import Http, authority
from rayfleet.image.oci.patience import Reply
from rayfleet.image.oci.refusals import refusal
from rayfleet.image.oci.rights import Action

if TYPE_CHECKING:
    from rayfleet.image.oci.credentials import Login

# Headers to try for one request: tokens may expire while others use them up.
ROUNDS = 6

Send = Callable[[dict[str, str]], Reply]


class Session:
    """A login at one registry; safe to use from several threads."""

    def __init__(self, http: Http, login: Login) -> None:
        self.http = http
        self._authorizer = Authorizer(http, login)

    @property
    def host(self) -> str:
        """The registry's name and port."""
        return self.http.host

    def request(
        self,
        method: str,
        target: str,
        scopes: Scopes = (),
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        stop: threading.Event | None = None,
    ) -> Reply:
        """Send a request that may be repeated; any status is returned.

        ``target`` is a path of the registry, or a URL of it. A HEAD that is refused is asked
        again as a GET, because the answer to a HEAD has no words.

        Raises:
            Unreachable: no answer after all attempts.
            ToolFailed: no token is to be had, or it is a URL of another host, which gets no login.
            Interrupted: ``stop`` was set.
        """
        url, sent = self.http.url(target), dict(headers or {})
        if not self.http.is_ours(url):
            raise self.http.lost(f"to {authority(url)}, which gets no login of it")

        def send(more: dict[str, str]) -> Reply:
            return self.http.once(method, url, headers={**sent, **more}, body=body)

        # The header is looked up for each attempt: a token may expire between two.
        reply = self.http.persist(lambda: self._authorized(send, scopes), url, stop=stop)
        if method == "HEAD" and reply.status in {400, 401, 403}:
            sent["Range"] = "bytes=0-0"  # the registry may have changed its mind
            told = self.request("GET", target, scopes, headers=sent, stop=stop)
            return told if told.status == reply.status else reply
        return reply

    def send_once(
        self,
        method: str,
        url: str,
        scopes: Scopes,
        *,
        headers: Mapping[str, str] | None = None,
        body: Iterable[bytes] | None = None,
        patience: float = 0,
    ) -> Reply:
        """Send a request to a whole URL; ``body`` may be iterated more than once.

        Another host than the registry gets no Authorization. The answer may take ``patience``
        seconds more than usual.

        Raises:
            Transient: no answer, or one that another attempt may not get.
            Unreachable: there is no way to get an answer.
            ToolFailed: no token is to be had.
        """

        def send(more: dict[str, str]) -> Reply:
            sent = {**(headers or {}), **more}
            return self.http.once(method, url, headers=sent, body=body, patience=patience)

        return self._authorized(send, scopes) if self.http.is_ours(url) else send({})

    def expect(
        self,
        reply: Reply,
        what: str,
        statuses: Collection[int],
        *,
        repository: str = "",
        action: Action = Action.PULL,
    ) -> None:
        """Return if the answer has one of ``statuses``; ``action`` is the right it takes.

        Raises:
            ToolFailed: the registry refuses.
            Unreachable: it fails.
        """
        if reply.status not in statuses:
            raise refusal(reply, self._authorizer.asked(what, repository=repository, action=action))

    def _authorized(self, send: Send, scopes: Scopes) -> Reply:
        """Send with the header that is known, and answer what challenges come back."""
        authorizer = self._authorizer
        header, refused = authorizer.header(scopes), 0
        reply = send(_authorization(header))
        for _ in range(1, ROUNDS):
            if reply.status != 401 or reply.host != authority(self.http.base):
                authorizer.note_good(scopes, header)
                break
            refused += not authorizer.was_good(scopes, header)
            challenge = Challenge.parse(reply.headers.get("WWW-Authenticate", ""))
            header = authorizer.answer(challenge, scopes, refused=header, renew=refused > 1)
            if header is None:
                break
            reply = send(_authorization(header))
        return reply


def _authorization(header: str | None) -> dict[str, str]:
    return {} if header is None else {"Authorization": header}

"""Plain HTTP to one head's Ray dashboard: deadlines, retries of reads, errors in one line.

Never through Ray's own client: it imports Ray, has no timeouts, and lets the operator's
RAY_ADDRESS or RAY_API_SERVER_ADDRESS win over the address that it was given.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, TypeVar

from rayfleet import __version__
from rayfleet.errors import RayfleetError, ToolFailed, Unreachable
from rayfleet.job.redaction import redacted
from rayfleet.secret.credential import Token, asked

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPConnectionPool

T = TypeVar("T")

CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
UPLOAD_SECONDS = 300.0
READ_ATTEMPTS = 5
RETRY_SECONDS = 45.0

_LONGEST_LINE = 20_000
_BUSY = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP status and the text that came with it."""

    status: int
    text: str

    @property
    def ok(self) -> bool:
        """True for 200, the only success that the dashboard knows."""
        return self.status == 200

    @property
    def reason(self) -> str:
        """What went wrong, in one line: the last line of a server's traceback."""
        return self.explained()

    def explained(self, secrets: Iterable[str] = ()) -> str:
        """:attr:`reason` with ``secrets`` masked: a server may quote what it was sent."""
        lines = (line.strip() for line in reversed(self.text.splitlines()))
        # Ray puts a full stop behind a traceback, on a line of its own.
        last = next((line for line in lines if any(map(str.isalnum, line))), "no explanation")
        # Masked before it is cut: half a secret is not recognised.
        return f"HTTP {self.status}: {redacted(last[:_LONGEST_LINE], secrets)[:500]}"

    def json(self) -> object:
        """The text as JSON.

        Raises:
            ToolFailed: it is not JSON, so that this is not Ray's dashboard.
        """
        try:
            return json.loads(self.text)
        except ValueError as error:
            raise ToolFailed(
                "the head answered with something other than JSON", why=self.reason
            ) from error


class Unauthorized(ToolFailed):
    """The head wants another token, or one at all."""


class Dashboard:
    """The HTTP API of one cluster's head.

    ``http`` leads to port 8265 of the head; ``token`` is Ray's authentication token.
    Every call raises :class:`Unreachable` when nothing answers in time and
    :class:`Unauthorized` on 401 and 403. ``attempts`` is how often a read is tried, and
    ``seconds`` how long an answer may take to begin (uploads have longer).
    """

    def __init__(
        self,
        http: HTTPConnectionPool,
        *,
        cluster: str,
        token: Token = None,
        attempts: int = READ_ATTEMPTS,
        seconds: float = READ_SECONDS,
    ) -> None:
        self.cluster = cluster
        self._http = http
        self._token = token
        self._attempts = attempts
        self._seconds = seconds

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cluster={self.cluster!r})"

    def get(self, path: str) -> Answer:
        """Read ``path``; tried again for up to 45 s when nothing answers."""
        return retried(lambda: self._send("GET", path), attempts=self._attempts)

    def post(self, path: str, document: Mapping[str, object]) -> Answer:
        """Send ``document`` as JSON, once."""
        return self._send("POST", path, body=json.dumps(document).encode())

    def put(self, path: str, stream: IO[bytes], *, size: int) -> Answer:
        """Upload ``size`` bytes of ``stream`` from its start; tried again, as it can be."""

        def upload() -> Answer:
            return self._send("PUT", path, body=stream, size=size, seconds=UPLOAD_SECONDS)

        return retried(upload, attempts=3)

    def delete(self, path: str) -> Answer:
        """Delete what is at ``path``, once."""
        return self._send("DELETE", path)

    def refusal(self, answer: Answer, doing: str, *, secrets: Iterable[str] = ()) -> RayfleetError:
        """The error for an ``answer`` that was not expected while ``doing`` something."""
        return ToolFailed(f"{self.cluster}: cannot {doing}", why=answer.explained(secrets))

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | IO[bytes] | None = None,
        size: int | None = None,
        seconds: float | None = None,
    ) -> Answer:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        def once(headers: Mapping[str, str]) -> BaseHTTPResponse:
            if body is not None and not isinstance(body, bytes):
                body.seek(0)
            return self._http.request(
                method,
                path,
                body=body,
                headers={**_headers(size), **headers},
                timeout=Timeout(connect=CONNECT_SECONDS, read=seconds or self._seconds),
                retries=False,
                redirect=False,
            )

        try:
            # Who is refused has changed nothing, so that it can be asked again.
            response = asked(self._token, once, lambda answer: answer.status)
        except (HTTPError, OSError) as error:
            raise self._unreachable(str(error)) from error
        answer = Answer(response.status, response.data.decode(errors="replace"))
        if answer.status in _BUSY:
            raise self._unreachable(answer.reason)
        if answer.status in {401, 403}:
            raise self._unauthorized(answer)
        return answer

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(
            f"{self.cluster}: the Ray dashboard does not answer",
            why=why,
            next_step=f"invoke status --cluster {self.cluster}",
        )

    def _unauthorized(self, answer: Answer) -> Unauthorized:
        given = "it wants a token" if answer.status == 401 else "the token is not the cluster's"
        return Unauthorized(
            f"{self.cluster}: the head refuses us",
            why=f"{given} (HTTP {answer.status})",
            next_step=f"invoke auth.check --cluster {self.cluster}",
        )


def _headers(size: int | None) -> dict[str, str]:
    # Browser-like headers make Ray refuse uploads and blank out values.
    headers = {"User-Agent": f"rayfleet/{__version__}", "Content-Type": "application/json"}
    if size is not None:
        headers |= {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(size),
        }
    return headers


def retried(
    call: Callable[[], T],
    *,
    attempts: int,
    on: type[Exception] = Unreachable,
    seconds: float = RETRY_SECONDS,
) -> T:
    """Call ``call`` until it does not raise ``on``, with backoff, and raise the last one."""
    from stamina import RetryingCaller

    # Without a handler Python prints stamina's notes on stderr.
    logging.getLogger("stamina").addHandler(logging.NullHandler())
    return RetryingCaller(attempts=attempts, timeout=seconds, wait_max=5.0)(on, call)

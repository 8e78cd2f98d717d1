"""Google's APIs: where they are, how long to be patient with them, and what they say.

Clients are those of google-api-python-client, with one connection per request: it is not safe
to share them between threads otherwise. A client is kept for the process: to make one costs 0.1 s
of reading documents and keys.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Mapping
from functools import cache, lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

from rayfleet.waiting import Clock, SystemClock

T = TypeVar("T")

TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses that may be others a moment later."""
RATE_LIMITS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})  # with 403
BUSY = "unable to queue the operation"  # with 409: something else is done to this TPU VM
ATTEMPTS = 5
FIRST_WAIT = 1.0  # seconds; it doubles
PATIENCE = 90.0  # seconds after which nothing is tried again
TIMEOUT = 60.0  # seconds without an answer
LONGEST = 400  # characters of what an API says
# gcloud's variables for APIs that are elsewhere, such as behind Private Service Connect:
# https://cloud.google.com/sdk/gcloud/reference/config/set#api_endpoint_overrides
OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_"
CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
MISSING_RESULTS = frozenset({"UNREACHABLE", "PARTIAL_SUCCESS", "LIST_OVERHEAD_QUOTA_EXCEED"})
"""The warnings with which a list of Compute Engine v1 says that it has not everything; its
discovery document has them all."""


class PartialAnswer(Exception):
    """A list came with status 200 and lacks something, which the message names."""


def service(name: str, version: str) -> Any:
    """A client of one API (``service("tpu", "v2")``), with Google's default credentials.

    Raises:
        google.auth.exceptions.DefaultCredentialsError: there are none.
    """
    return client(
        name,
        version,
        os.environ.get(OVERRIDE + name.upper(), ""),
        requestBuilder=_request,
        cache_discovery=False,
    )


def client(name: str, version: str, endpoint: str, **options: Hashable) -> Any:
    """What ``googleapiclient.discovery.build`` makes of this, once for each of Google's default
    credentials. Requests have to get a connection each through ``requestBuilder``. ``endpoint`` is
    the API's URL if it is not Google's own.

    Raises:
        google.auth.exceptions.DefaultCredentialsError: there are none.
    """
    return _client(name, version, endpoint, _credentials_file(), tuple(sorted(options.items())))


@lru_cache(maxsize=32)
def _client(
    name: str,
    version: str,
    endpoint: str,
    _credentials: tuple[str, int],
    options: tuple[tuple[str, Hashable], ...],
) -> Any:
    from googleapiclient import discovery  # type: ignore[import-untyped]

    place = {"api_endpoint": endpoint} if endpoint else None
    return _kept(discovery.build(name, version, client_options=place, **dict(options)))


def _kept(resource: Any) -> Any:
    """The same, with the resources below it kept too: each is made by compiling its methods."""
    for name, below in list(vars(resource).items()):
        if getattr(below, "__is_resource__", False):
            setattr(resource, name, cache(lambda make=below: _kept(make())))
    return resource


def _credentials_file() -> tuple[str, int]:
    """The file of Google's default credentials, and when it was written."""
    gclouds = Path(os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud")
    path = os.environ.get(CREDENTIALS) or str(gclouds / "application_default_credentials.json")
    try:
        return path, Path(path).stat().st_mtime_ns
    except OSError:
        return path, 0  # credentials of the machine's own


def patiently(question: Callable[[], T], clock: Clock | None = None) -> T:
    """What ``question`` returns, asked again a few times while what goes wrong may pass.

    Only for what may be done twice. The last error is raised as it is.
    """
    clock = clock or SystemClock()
    end = clock.monotonic() + PATIENCE
    for attempt in range(ATTEMPTS - 1):
        try:
            return question()
        except Exception as error:
            if not transient(error) or clock.monotonic() >= end:
                raise
        clock.sleep(FIRST_WAIT * 2**attempt)
    return question()


def pages(
    method: Any,
    key: str,
    asked: Mapping[str, str],
    *,
    send: Callable[[Any], Mapping[str, Any]] = lambda query: query.execute(),
) -> list[dict[str, Any]]:
    """What ``key`` has on all pages of ``method.list(**asked)``; ``send`` executes one request.

    Every list of this package is read here, so that a part is nowhere taken for the whole.

    Raises:
        PartialAnswer: the API says that something is missing.
    """
    found: list[dict[str, Any]] = []
    query = method.list(**asked)
    while query is not None:
        answer = send(query)
        _require_whole(answer)
        found += answer.get(key, [])
        query = method.list_next(query, answer)
    return found


def _require_whole(answer: Mapping[str, Any]) -> None:
    if places := answer.get("unreachable"):
        raise PartialAnswer(f"Google does not reach {', '.join(map(str, places))}")
    warning = answer.get("warning", {})
    if warning.get("code") in MISSING_RESULTS:
        said = " ".join(str(warning.get("message", "")).split())
        raise PartialAnswer(f"Google answered in part: {warning['code']}: {said}")


def transient(error: Exception) -> bool:
    """Whether the same request may succeed a moment later."""
    status = status_of(error)
    if status:
        reason = _field(error, "reason")
        return (
            (status in TRANSIENT and not over_quota(error))
            or (status == 403 and reason in RATE_LIMITS)
            or (status == 409 and BUSY in said(error))
        )
    if isinstance(error, ConnectionError | TimeoutError | HTTPException | PartialAnswer):
        return True
    # google.auth says it itself; httplib2's has no better sign.
    return bool(getattr(error, "retryable", False)) or type(error).__name__ in (
        "ServerNotFoundError",
        "TransportError",
    )


def over_quota(error: Exception) -> bool:
    """Whether more was asked for than the project may have."""
    return _field(error, "reason") == "quotaExceeded" or "Quota limit" in said(error)


def status_of(error: Exception) -> int:
    """The HTTP status that an API refused with; 0 when it did not answer at all."""
    return int(getattr(getattr(error, "resp", None), "status", 0) or 0)


def said(error: Exception) -> str:
    """What went wrong, in one line: the API's own words where it answered."""
    status, message = status_of(error), _field(error, "message")
    if status:
        return f"{status}: {' '.join(message.split())}"[:LONGEST]
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:LONGEST]


def failure(error: Mapping[str, Any]) -> str:
    """Why an operation failed: Compute Engine lists errors with words as codes, Cloud TPU has one
    with a number."""
    found = error.get("errors") or [error]
    return "; ".join(f"{each.get('code')}: {each.get('message')}" for each in found)


def _field(error: Exception, name: str) -> str:
    """A field of the error that an API answered with, whichever shape it has."""
    try:
        body = json.loads(getattr(error, "content", b"") or b"{}")["error"]
    except (ValueError, KeyError, TypeError):
        return str(getattr(error, "reason", "")) if name == "message" else ""
    if not isinstance(body, dict):
        return str(body)
    first = (body.get("errors") or [{}])[0]
    return str(body.get(name) or first.get(name) or "")


def _request(http: Any, *arguments: Any, **options: Any) -> Any:
    from googleapiclient.http import HttpRequest  # type: ignore[import-untyped]

    return HttpRequest(connection(http), *arguments, **options)


def connection(http: Any) -> Any:
    """A new connection with the credentials of ``http`` that does not wait for ever."""
    import google_auth_httplib2  # type: ignore[import-untyped]
    import httplib2  # type: ignore[import-untyped]

    return google_auth_httplib2.AuthorizedHttp(
        http.credentials, http=httplib2.Http(timeout=TIMEOUT)
    )

"""One cluster's dashboard at a local port: the token is added, and no cookie passes.

Ray keeps its token in a cookie whose name is the same for every cluster, and a browser sends it
to every port of a host, so that two dashboards at 127.0.0.1 throw each other out. Here the
browser never has a token and no cookie of Ray's; every request gets the cluster's token on
its way. Ray still sees that a browser asks, and lets it change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from rayfleet.dashboard.page import NAME_PATH, name_script, with_name
from rayfleet.errors import RayfleetError

UPSTREAM = "http://127.0.0.1:8265"  # where Ray believes that it is asked
CONNECTIONS = 32
CONNECT_SECONDS = 15.0
HEADER_BYTES = 64 * 1024
PAGE_BYTES = 64 * 1024
CHUNK_BYTES = 64 * 1024
_GONE = (aiohttp.ClientError, TimeoutError, ConnectionError)

# RFC 9110, 7.6.1: they are about one connection, not about the request.
HOP_BY_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)
KEPT_FROM_RAY = frozenset(("host", "cookie", "authorization", "x-ray-authorization"))
WEBSOCKET = ("sec-websocket-",)

Response: TypeAlias = web.StreamResponse


class Proxy:
    """Hands requests on to the dashboard behind the Unix socket ``path``.

    ``token`` gives the cluster's token, or nothing, for each request; ``missing`` makes the answer
    when the dashboard cannot be asked, of the cause. Belongs to one event loop.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        token: Callable[[], str | None],
        missing: Callable[[str], web.Response],
    ) -> None:
        self._name = name
        self._token = token
        self._missing = missing
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(path), limit=CONNECTIONS),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            auto_decompress=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )

    async def close(self) -> None:
        """Let go of the connections to the dashboard."""
        await self._session.close()

    async def handle(self, request: web.Request) -> Response:
        """Answer one request of the browser."""
        if request.path == NAME_PATH:
            return name_script(self._name)
        if not request.raw_path.startswith("/"):
            raise web.HTTPBadRequest
        try:
            headers = forwarded(request.headers.items(), self._token())
            url = URL(UPSTREAM + request.raw_path, encoded=True)
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._websocket(request, url, headers)
            return await self._plain(request, url, headers)
        except RayfleetError as error:
            return self._missing(str(error.what))
        except _GONE as error:
            return self._missing(str(error) or type(error).__name__)

    async def _plain(self, request: web.Request, url: URL, headers: CIMultiDict[str]) -> Response:
        body = request.content if request.body_exists else None
        async with self._session.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            if _is_index(request, answer):
                return web.Response(
                    body=with_name(await answer.read()),
                    headers=returned(answer.headers.items(), but=("content-length", "etag")),
                )
            response = web.StreamResponse(
                status=answer.status,
                reason=answer.reason,
                headers=returned(answer.headers.items()),
            )
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    await response.write(chunk)
            except _GONE:
                # The browser must not take the half for the whole.
                if request.transport is not None:
                    request.transport.abort()
                return response
            await response.write_eof()
            return response

    async def _websocket(
        self, request: web.Request, url: URL, headers: CIMultiDict[str]
    ) -> Response:
        wanted = request.headers.get("Sec-WebSocket-Protocol", "")
        protocols = tuple(each.strip() for each in wanted.split(",") if each.strip())
        plain = CIMultiDict(
            (name, value)
            for name, value in headers.items()
            if not name.lower().startswith(WEBSOCKET)
        )
        async with self._session.ws_connect(
            url, headers=plain, protocols=protocols, max_msg_size=0
        ) as theirs:
            chosen = (theirs.protocol,) if theirs.protocol else ()
            ours = web.WebSocketResponse(protocols=chosen, max_msg_size=0)
            await ours.prepare(request)
            ways = {
                asyncio.create_task(_relay(ours, theirs)),
                asyncio.create_task(_relay(theirs, ours)),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                await ours.close()
            return ours


Socket: TypeAlias = "web.WebSocketResponse | aiohttp.ClientWebSocketResponse[bool]"


async def _relay(source: Socket, target: Socket) -> None:
    """Hand messages on until ``source`` closes, and close ``target`` with the same code."""
    with suppress(*_GONE):
        async for message in source:
            if message.type is aiohttp.WSMsgType.TEXT:
                await target.send_str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                await target.send_bytes(message.data)
        await target.close(code=source.close_code or aiohttp.WSCloseCode.OK)


def forwarded(headers: Iterable[tuple[str, str]], token: str | None) -> CIMultiDict[str]:
    """The headers of the browser's request as the dashboard gets them."""
    kept = _end_to_end(headers, KEPT_FROM_RAY)
    if token:
        kept["Authorization"] = f"Bearer {token}"
    return kept


def returned(headers: Iterable[tuple[str, str]], but: Iterable[str] = ()) -> CIMultiDict[str]:
    """The headers of the dashboard's answer as the browser gets them, without those of ``but``."""
    kept = _end_to_end(headers, frozenset(("set-cookie", "set-cookie2", *but)))
    if kept.get("Location", "").startswith(UPSTREAM + "/"):
        kept["Location"] = kept["Location"].removeprefix(UPSTREAM)
    # No page of another port may frame it and lure clicks.
    kept.setdefault("X-Frame-Options", "SAMEORIGIN")
    return kept


def _end_to_end(headers: Iterable[tuple[str, str]], but: frozenset[str]) -> CIMultiDict[str]:
    pairs = list(headers)
    named = {
        word.strip().lower()
        for name, value in pairs
        if name.lower() == "connection"
        for word in value.split(",")
    }
    left = HOP_BY_HOP | named | but
    return CIMultiDict((name, value) for name, value in pairs if name.lower() not in left)


def _is_index(request: web.Request, answer: aiohttp.ClientResponse) -> bool:
    return (
        request.method == "GET"
        and request.path == "/"
        and answer.status == 200
        and answer.content_type == "text/html"
        and "Content-Encoding" not in answer.headers
        and 0 < (answer.content_length or 0) <= PAGE_BYTES
    )

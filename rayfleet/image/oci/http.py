"""HTTP to one registry: connections, TLS, the proxy, and retries."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from rayfleet import __version__
from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.image.oci.connections import pool_manager
from rayfleet.image.oci.patience import TRANSIENT_STATUS, Reply, Retries, Transient, persist

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

__all__ = ["Http", "Reply", "Retries", "is_loopback"]

# Beside uploads: the short requests of a region that are in flight at once, and some more.
SHORT_REQUESTS = 12
# The most that is read of an answer, in bytes: far more than any manifest or list of tags has.
LONGEST_REPLY = 32 << 20
# Docker Hub's API is not where its images are said to be.
API_HOSTS = dict.fromkeys(("docker.io", "index.docker.io"), "registry-1.docker.io")
USER_AGENT = f"rayfleet/{__version__}"


class Http:
    """Requests to the registry ``host`` and where it sends us. Safe to use from several threads.

    Connections are kept; ``uploads`` is how many of them may be busy with uploads.
    """

    def __init__(self, host: str, *, retries: Retries, uploads: int = 0) -> None:
        self.host = host
        self.base = f"{'http' if is_loopback(host) else 'https'}://{API_HOSTS.get(host, host)}"
        self.retries = retries
        self._connections = uploads + SHORT_REQUESTS
        self._pools: dict[str | None, PoolManager] = {}
        self._lock = threading.Lock()

    def url(self, target: str, *, seen_from: str = "") -> str:
        """The whole URL of ``target``: a path of the registry, or a URL that it gave.

        ``seen_from`` is the URL whose answer has a relative one. A registry behind TLS that
        takes itself for a plain one is understood.

        Raises:
            ToolFailed: it leads out of TLS, or is no URL.
        """
        try:
            url = urljoin(seen_from or f"{self.base}/", target).partition("#")[0]
            scheme, place = urlsplit(url).scheme, authority(url)
        except ValueError:
            raise self.lost("to something that is no URL") from None
        if place in {authority(self.base), self.host.lower()}:
            return f"{self.base}{url.partition('//')[2].partition(urlsplit(url).netloc)[2]}"
        if scheme == "https" or (scheme == "http" and is_loopback(self.host)):
            return url
        raise self.lost(f"to {scheme}://{place}, which is not behind TLS")

    def is_ours(self, url: str) -> bool:
        """True for URLs of the registry itself; others get no password of it."""
        return url.startswith(f"{self.base}/")

    def request(self, method: str, url: str, *, headers: Mapping[str, str]) -> Reply:
        """Send a request that may be repeated; a status that stays bad is returned.

        Raises:
            Unreachable: no answer after all attempts.
        """
        return self.persist(lambda: self.once(method, url, headers=headers), url)

    def persist(
        self, work: Callable[[], Reply], url: str, *, stop: threading.Event | None = None
    ) -> Reply:
        """Call ``work``, which asks for ``url``, until the reply is no transient one.

        Raises:
            Unreachable: no answer after all attempts.
            Interrupted: ``stop`` was set.
        """
        try:
            return persist(lambda _: work(), retries=self.retries, stop=stop)
        except Transient as failed:
            if failed.reply is not None:
                return failed.reply
            raise self.unreachable(url, failed.why) from None

    def once(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
        patience: float = 0,
    ) -> Reply:
        """Send one request. Redirects are followed unless ``body`` is a stream.

        The answer may take ``patience`` seconds more than usual.

        Raises:
            Transient: no answer, or one that another attempt may not get.
            Unreachable: there is no way to get an answer.
            ToolFailed: the answer does not end.
        """
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        try:
            reply = self._read(
                url,
                self._pool(url).request(
                    method,
                    url,
                    headers={"User-Agent": USER_AGENT, **(headers or {})},
                    body=body,
                    redirect=body is None or isinstance(body, bytes),
                    preload_content=False,
                    timeout=Timeout(
                        connect=self.retries.connect_timeout,
                        read=self.retries.read_timeout + patience,
                    ),
                ),
            )
        except HTTPError as error:
            # Without the chain: urllib3's own text has the URL, and that may be signed.
            why = reason_of(error)
            if _is_permanent(error):
                raise self.unreachable(url, why) from None
            raise Transient(why) from None
        if reply.status in TRANSIENT_STATUS:
            raise Transient(f"HTTP {reply.status}", reply)
        return reply

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        with self._lock:
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.clear()

    def unreachable(self, url: str, why: str) -> Unreachable:
        """The error for no answer from ``url``."""
        if self.is_ours(f"{url}/"):
            return Unreachable(f"registry {self.host} does not answer", why=why)
        return Unreachable(f"{authority(url)} does not answer for registry {self.host}", why=why)

    def _pool(self, url: str) -> PoolManager:
        from rayfleet.image.machine import ca_bundle

        proxy = proxy_of(url)
        with self._lock:
            if proxy not in self._pools:
                self._pools[proxy] = pool_manager(
                    proxy,
                    bundle=ca_bundle(os.environ),
                    connections=self._connections,
                    connect_timeout=self.retries.connect_timeout,
                    read_timeout=self.retries.read_timeout,
                )
            return self._pools[proxy]

    def _read(self, url: str, response: BaseHTTPResponse) -> Reply:
        try:
            data = response.read(LONGEST_REPLY + 1)
            if len(data) > LONGEST_REPLY:
                raise ToolFailed(
                    f"{authority(url)} sends an answer without an end",
                    why=f"more than {LONGEST_REPLY >> 20} MiB",
                )
        except BaseException:
            response.close()
            response.release_conn()
            raise
        history = response.retries.history if response.retries is not None else ()
        places = [authority(urljoin(url, step.redirect_location or "")) for step in history]
        return Reply(
            status=response.status,
            reason=response.reason or "",
            headers=response.headers,
            data=data,
            host=places[-1] if places else authority(url),
        )

    def lost(self, where: str) -> ToolFailed:
        """The error for an answer that leads ``where`` nothing of ours may go."""
        return ToolFailed(f"registry {self.host} sends us elsewhere", why=where)


def is_loopback(host: str) -> bool:
    """True for ``localhost`` and 127.0.0.0/8 (or ::1), with or without a port."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def authority(url: str) -> str:
    """Host and port of a URL, without what goes without saying.

    Raises:
        ValueError: it is no URL.
    """
    parts = urlsplit(url)
    port = parts.port
    name = parts.netloc.rpartition("@")[2].lower()
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return name.removesuffix(f":{port}") if port is not None and port == usual else name


def proxy_of(url: str) -> str | None:
    """The proxy that this machine's environment names for ``url``."""
    import urllib.request

    parts = urlsplit(url)
    if is_loopback(parts.netloc) or urllib.request.proxy_bypass(parts.netloc):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def _chain(error: BaseException) -> list[BaseException]:
    """An error of urllib3 and what is wrapped in it, the reason last."""
    candidates = (getattr(error, "reason", None), *error.args, error.__cause__)
    inner = next((each for each in candidates if isinstance(each, BaseException)), None)
    return [error] if inner is None else [error, *_chain(inner)]


def _is_permanent(error: BaseException) -> bool:
    """True for what TLS or the environment refuses; not for a connection that was cut."""
    from urllib3.exceptions import LocationValueError, SSLError

    chain = _chain(error)
    if isinstance(chain[-1], ssl.SSLEOFError):
        return False
    return any(isinstance(each, ssl.SSLError | SSLError | LocationValueError) for each in chain)


def reason_of(error: BaseException) -> str:
    """Why, without the names of pools and URLs that urllib3 puts before it."""
    from urllib3.exceptions import LocationValueError, ProxyError, ProxySchemeUnknown

    chain = _chain(error)
    last = chain[-1]
    text = str(getattr(last, "strerror", None) or last) or type(last).__name__
    text = re.sub(r"^\w+\(host=.*?\): ", "", text)
    if any(isinstance(each, LocationValueError) for each in chain):
        text = "its address cannot be used"  # which may hold a password
    by_proxy = any(isinstance(each, ProxyError | ProxySchemeUnknown) for each in chain)
    return f"the proxy: {text}" if by_proxy or "Tunnel" in text else text

"""What can go wrong between a client and a registry, and when: rules for a faulty proxy."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qs, unquote, urlsplit

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as a rule sees it.

    ``kind`` is what it is about: ping, token, tags, manifest, blob, start (of an upload),
    upload (the body of a blob), or other. ``reference`` is the tag or digest that it names.
    ``size`` is that of its body in bytes, -1 if the client did not say.
    """

    number: int
    method: str
    target: str
    kind: str
    repository: str
    reference: str
    size: int

    @classmethod
    def parse(cls, number: int, method: str, target: str, size: int) -> Request:
        """Read a request line."""
        url = urlsplit(target)
        kind, repository, reference = _about(url.path)
        named = parse_qs(url.query).get("digest")
        return cls(
            number=number,
            method=method,
            target=target,
            kind=kind,
            repository=repository,
            reference=named[0] if named else reference,
            size=size,
        )


def _about(path: str) -> tuple[str, str, str]:
    if path in {"/v2", "/v2/"}:
        return "ping", "", ""
    if path == "/token":
        return "token", "", ""
    shapes = {
        "start": r"/v2/(.+)/blobs/uploads/?",
        "upload": r"/v2/(.+)/blobs/uploads/[^/]+",
        "blob": r"/v2/(.+)/blobs/([^/]+)",
        "manifest": r"/v2/(.+)/manifests/([^/]+)",
        "tags": r"/v2/(.+)/tags/list",
    }
    for kind, shape in shapes.items():
        if found := re.fullmatch(shape, path):
            return kind, found[1], unquote(found[2]) if found.lastindex == 2 else ""
    return "other", "", ""


@dataclass(frozen=True)
class Refuse:
    """An error in the registry's place; the request does not get there."""

    status: int = 503
    retry_after: str | None = None
    code: str = "UNAVAILABLE"
    message: str = "the proxy was told to say so"


@dataclass(frozen=True)
class Reset:
    """The connection is reset before the request gets to the registry."""


@dataclass(frozen=True)
class LoseAnswer:
    """The registry does what it was asked; the connection is reset before it can say so."""


@dataclass(frozen=True)
class Stall:
    """The request is read and never answered."""


@dataclass(frozen=True)
class CutBody:
    """The connection is reset after so many bytes of a body: the request's if it has one."""

    after: int = 0


@dataclass(frozen=True)
class StallBody:
    """A body stops after so many bytes, and the connection stays: the request's if it has one."""

    after: int = 0


@dataclass(frozen=True)
class ChangeByte:
    """One byte of a body is another one: of the request's if it has one."""

    at: int = 0


@dataclass(frozen=True)
class Slow:
    """A body goes through at so many bytes a second: the request's if it has one."""

    bytes_per_second: float


@dataclass(frozen=True)
class WrongDigest:
    """The registry's answer carries this Docker-Content-Digest."""

    digest: str = f"sha256:{'0' * 64}"


@dataclass(frozen=True)
class ExpireLogins:
    """Every login that was good is void from this request on."""


@dataclass(frozen=True)
class GoDown:
    """Nobody listens any more, from this request on."""


Fault = (
    Refuse
    | Reset
    | LoseAnswer
    | Stall
    | CutBody
    | StallBody
    | ChangeByte
    | Slow
    | WrongDigest
    | ExpireLogins
    | GoDown
)


class Schedule(Protocol):
    """Decides about each request; the proxy asks for one at a time."""

    def __call__(self, request: Request) -> Fault | None:
        """The fault that befalls ``request``, if any."""


def on(kind: str, *methods: str) -> Callable[[Request], bool]:
    """Requests of a kind, by any or by one of the given methods."""
    return lambda request: request.kind == kind and (not methods or request.method in methods)


@dataclass(kw_only=True)
class Rule:
    """``fault`` for requests that ``when`` takes: not the first ``skip``, then ``times`` of them.

    ``times`` None means all the others.
    """

    fault: Fault
    when: Callable[[Request], bool] = lambda request: True
    skip: int = 0
    times: int | None = 1
    _seen: int = field(default=0, repr=False)

    def __call__(self, request: Request) -> Fault | None:
        if not self.when(request):
            return None
        self._seen += 1
        late = self.times is not None and self._seen > self.skip + self.times
        return None if self._seen <= self.skip or late else self.fault


@dataclass(kw_only=True)
class Share:
    """Faults for a share of all requests, drawn from ``seed``.

    What befalls a request depends on what it asks for and on how often that was asked before,
    not on the order in which threads ask: a seed is a schedule that a second run sees again.
    """

    portion: float
    seed: int
    faults: Sequence[Fault]
    _asked: Counter[tuple[str, ...]] = field(default_factory=Counter, repr=False)

    def __call__(self, request: Request) -> Fault | None:
        name = (request.method, request.kind, request.repository, request.reference)
        self._asked[name] += 1
        draw = random.Random(f"{self.seed} {name} {self._asked[name]}")  # noqa: S311
        return draw.choice(self.faults) if draw.random() < self.portion else None

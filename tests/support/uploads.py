"""Blobs to send, and who counts what was sent."""

from __future__ import annotations

import hashlib
import io
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from tests.support.scripted_http import Answer, Asked

CREATED = Answer(status=201, body=b"")
NOT_THERE = Answer(status=404, body=b'{"errors":[{"code":"BLOB_UNKNOWN","message":"no such"}]}')


@dataclass(frozen=True, kw_only=True)
class MemoryBlob:
    """A blob in memory; ``claimed`` is the size that it says it has."""

    data: bytes = field(repr=False)
    claimed: int | None = None

    @property
    def digest(self) -> str:
        """Its digest."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    @property
    def size(self) -> int:
        """Its bytes, or so it says."""
        return len(self.data) if self.claimed is None else self.claimed

    def open(self) -> BinaryIO:
        """A stream of it."""
        return io.BytesIO(self.data)


def random_blob(size: int, *, seed: int = 0) -> MemoryBlob:
    """A blob of ``size`` bytes that cannot be compressed."""
    return MemoryBlob(data=random.Random(seed).randbytes(size))  # noqa: S311


@dataclass
class Count:
    """What was counted as sent; safe to use from several threads."""

    total: int = 0
    most: int = 0
    taken_back: int = 0
    on_step: Callable[[int], None] = lambda total: None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, count: int) -> None:
        with self._lock:
            self.total += count
            self.most = max(self.most, self.total)
            self.taken_back += max(0, -count)
        self.on_step(self.total)


def begun(location: str = "/v2/p/r/blobs/uploads/one?_state=secret-state") -> Answer:
    """A registry's answer to the POST that starts an upload."""
    return Answer(status=202, body=b"", headers={"Location": location})


def uploading(*puts: Answer, there: Answer = NOT_THERE) -> Callable[[Asked], Answer]:
    """A registry that starts every upload and answers the PUTs in order, the last one again
    and again; ``there`` answers every HEAD."""
    left = list(puts)

    def respond(asked: Asked) -> Answer:
        if asked.method == "POST":
            return begun()
        if asked.method == "HEAD":
            return there
        return left.pop(0) if len(left) > 1 else left[0]

    return respond

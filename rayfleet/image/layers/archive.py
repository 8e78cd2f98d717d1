"""Read what ``docker save`` writes, as it comes: no copy of it, no seeking, little memory.

Three layouts are known:

- Docker before 25: ``<v1 id>/layer.tar`` (a symlink if the image has that layer twice),
  ``<image id>.json``, ``manifest.json`` last (moby image/tarexport/save.go).
- Docker 25 and later, and the containerd image store: an OCI layout with ``blobs/sha256/<digest>``
  and ``index.json``, plus ``manifest.json``; a layer may be compressed already
  (https://github.com/opencontainers/image-spec/blob/main/image-layout.md).
- podman: ``<diff id>.tar``, ``<image id>.json``, ``manifest.json`` (docker-archive of
  https://github.com/containers/image).

Only headers are parsed by the standard library's tarfile. Its streams take 1 s of CPU to hand
out 700 MB, a third of all that is done with them.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rayfleet.errors import ToolFailed

HEAD_SIZE = 512
# The most that is read of what comes before a header (long names and the like), in bytes.
MAX_EXTRA = 1 << 20

_BY_DIGEST = re.compile(r"(?:\./)?(?:blobs/sha256/([0-9a-f]{64})|([0-9a-f]{64})\.tar)")
_PAX, _LONG_NAME = tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME
_WITH_CONTENT = frozenset((*tarfile.REGULAR_TYPES, _LONG_NAME, tarfile.GNUTYPE_LONGLINK))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file in an archive: ``size`` bytes, the first of which are also in ``head``.

    ``chunks`` can be read until the next entry is asked for, and fails as :func:`entries` does.
    """

    name: str
    size: int
    head: bytes
    chunks: Iterator[bytes]

    @property
    def digest(self) -> str | None:
        """The digest of the content if the name says it (that of a plain layer is its diff id)."""
        found = _BY_DIGEST.fullmatch(self.name)
        return f"sha256:{found[1] or found[2]}" if found else None


def entries(chunks: Iterable[bytes]) -> Iterator[Entry]:
    """The files of an archive in their order; folders and links are left out.

    Raises:
        ToolFailed: it is no archive, or ends too early.
    """
    reader = _Reader(chunks)
    try:
        while (header := reader.header()) is not None:
            if header.isreg():
                yield Entry(
                    name=header.name,
                    size=header.size,
                    head=reader.head(),
                    chunks=reader.content(),
                )
    except (tarfile.TarError, ValueError) as error:
        raise _unreadable(str(error)) from error


def _unreadable(why: str) -> ToolFailed:
    return ToolFailed(
        "the engine's archive of the image cannot be read",
        why=why,
        next_step="run the same command again; docker save shows if the engine is at fault",
    )


class _Reader:
    """A position in the archive, and how much is left of the entry that it is in."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._chunk = b""
        self._at = 0
        self._left = 0
        self._padding = 0

    def header(self) -> tarfile.TarInfo | None:
        """Go to the next entry and return its header; None at the end of the archive."""
        extra: dict[str, str] = {}
        while True:
            for _ in self.content():
                pass
            self._exactly(self._padding)
            block = self._exactly(tarfile.BLOCKSIZE)
            if not any(block):
                return None
            header = tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
            if header.type == _LONG_NAME:
                self._enter(header.size)
                extra["path"] = self._extra().rstrip(b"\0").decode("utf-8", "surrogateescape")
            elif header.type == _PAX:
                self._enter(header.size)
                extra |= _pax(self._extra())
            else:
                header.size = int(extra.get("size", header.size))
                header.name = extra.get("path", header.name)
                has_content = (
                    header.type in _WITH_CONTENT or header.type not in tarfile.SUPPORTED_TYPES
                )
                self._enter(header.size if has_content else 0)
                if header.type not in (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE):
                    return header

    def head(self) -> bytes:
        """The first HEAD_SIZE bytes of the entry, or all; they stay to be read."""
        size = min(HEAD_SIZE, self._left)
        while len(self._chunk) - self._at < size:
            self._chunk, self._at = self._chunk[self._at :] + self._next(), 0
        return self._chunk[self._at : self._at + size]

    def content(self) -> Iterator[bytes]:
        """What is left of the entry."""
        while self._left:
            piece = self._some(self._left)
            self._left -= len(piece)
            yield piece

    def _enter(self, size: int) -> None:
        if size < 0:
            raise ValueError("an entry of negative size")
        self._left, self._padding = size, -size % tarfile.BLOCKSIZE

    def _extra(self) -> bytes:
        if self._left > MAX_EXTRA:
            raise ValueError("a header that is far too long")
        return b"".join(self.content())

    def _exactly(self, size: int) -> bytes:
        pieces = []
        while size:
            pieces.append(self._some(size))
            size -= len(pieces[-1])
        return b"".join(pieces)

    def _some(self, size: int) -> bytes:
        """Between 1 and ``size`` bytes."""
        if self._at == len(self._chunk):
            self._chunk, self._at = self._next(), 0
        piece = self._chunk[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def _next(self) -> bytes:
        for chunk in self._chunks:
            if chunk:
                return chunk
        raise _unreadable("it ends too early")


def _pax(raw: bytes) -> dict[str, str]:
    """Records such as ``"30 path=…\\n"``, where the number is the record's length (POSIX pax)."""
    records = {}
    while raw:
        length = int(raw[: raw.index(b" ")])
        key, _, value = raw[raw.index(b" ") + 1 : length - 1].partition(b"=")
        if length < 1 or len(raw) < length:
            raise ValueError("a damaged pax header")
        records[key.decode()] = value.decode("utf-8", "surrogateescape")
        raw = raw[length:]
    return records

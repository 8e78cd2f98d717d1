"""Compress layers so that the same layer always gives the same bytes, on every core at once.

gzip is made the way pigz makes it (https://zlib.net/pigz/): the input is cut into blocks of a
fixed size, each is deflated on its own with the 32 KiB before it as its dictionary and ended with
a sync flush, and all are one gzip member (RFC 1952). Where a block ends depends on nothing but
the layer, so neither the chunks that it arrives in nor the number of cores shows in the bytes.

On one core of the machine that this was measured on, a layer of Python packages: isal level 1
580 MB/s, zlib level 6 (what ``docker push`` does) 21 to 33 MB/s for 8 % fewer bytes.
"""

from __future__ import annotations

import io
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, BinaryIO

from rayfleet.fleet.model import Compression

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK = 512 << 10
DICTIONARY = 32 << 10
GZIP_LEVEL = 1
ZSTD_LEVEL = 3

# No flags, no time, no name, unknown system.
_GZIP_HEADER = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF))
# An empty last block with the fixed codes (RFC 1951, section 3.2.6).
_LAST_BLOCK = b"\x03\x00"
_RAW_DEFLATE = -15

_MAGIC = {b"\x1f\x8b\x08": Compression.GZIP, b"\x28\xb5\x2f\xfd": Compression.ZSTD}
# What a decompressor may set aside for looking back, in bytes; `zstd --ultra --long=27`.
_MAX_WINDOW = 1 << 27

MEDIA_TYPES = {
    Compression.GZIP: "application/vnd.oci.image.layer.v1.tar+gzip",
    Compression.ZSTD: "application/vnd.oci.image.layer.v1.tar+zstd",
}


def cut(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks of BLOCK bytes; only the last may be shorter."""
    rest = bytearray()
    for chunk in chunks:
        rest += chunk
        if len(rest) >= BLOCK:
            end = len(rest) - len(rest) % BLOCK
            with memoryview(rest) as view:
                blocks = [bytes(view[start : start + BLOCK]) for start in range(0, end, BLOCK)]
            yield from blocks
            del rest[:end]
    if rest:
        yield bytes(rest)


def compressed(
    blocks: Iterable[bytes], compression: Compression, *, helpers: Executor, ahead: int
) -> Iterator[bytes]:
    """What ``blocks`` (as :func:`cut` gives them) become; reads ``ahead`` blocks at most.

    gzip blocks are compressed by ``helpers``, zstd by the caller.
    """
    if compression is Compression.GZIP:
        return _gzip(blocks, helpers, ahead)
    return _zstd(blocks)


def compression_of(head: bytes) -> Compression | None:
    """How the bytes that start with ``head``, four of them, are compressed, if at all."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def decompressed(chunks: Iterable[bytes], compression: Compression) -> Iterator[bytes]:
    """What was compressed into ``chunks``, several members or frames as one.

    Raises:
        ValueError: the bytes are damaged.
    """
    source = as_file(chunks)
    return _gunzip(source) if compression is Compression.GZIP else _unzstd(source)


def as_file(chunks: Iterable[bytes]) -> io.BufferedReader:
    """A file that reads what ``chunks`` give."""
    return io.BufferedReader(_File(iter(chunks)), BLOCK)


class _File(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the start of ``buffer``; 0 at the end."""
        view = memoryview(buffer)
        piece = self._rest or next((chunk for chunk in self._chunks if chunk), b"")
        size = min(len(piece), len(view))
        view[:size] = piece[:size]
        self._rest = piece[size:]
        return size


def _gzip(blocks: Iterable[bytes], helpers: Executor, ahead: int) -> Iterator[bytes]:
    from isal import isal_zlib

    pending: deque[Future[bytes]] = deque()
    dictionary, checksum, size = b"", 0, 0
    yield _GZIP_HEADER
    try:
        for block in blocks:
            checksum = isal_zlib.crc32(block, checksum)
            size += len(block)
            pending.append(helpers.submit(_deflate, block, dictionary))
            dictionary = block[-DICTIONARY:]
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
    yield _LAST_BLOCK + struct.pack("<II", checksum, size & 0xFFFFFFFF)


def _deflate(block: bytes, dictionary: bytes) -> bytes:
    from isal import isal_zlib

    if dictionary:
        deflate = isal_zlib.compressobj(
            GZIP_LEVEL, isal_zlib.DEFLATED, _RAW_DEFLATE, zdict=dictionary
        )
    else:
        deflate = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, _RAW_DEFLATE)
    return bytes(deflate.compress(block) + deflate.flush(isal_zlib.Z_SYNC_FLUSH))


def _zstd(blocks: Iterable[bytes]) -> Iterator[bytes]:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj()
    for block in blocks:
        piece = compressor.compress(block)
        if piece:
            yield piece
    yield compressor.flush()


def _gunzip(source: BinaryIO) -> Iterator[bytes]:
    from isal import igzip, isal_zlib

    with igzip.IGzipFile(fileobj=source, mode="rb") as reader:  # type: ignore[no-untyped-call]
        try:
            while chunk := reader.read(BLOCK):
                yield chunk
        except (EOFError, OSError, isal_zlib.error) as error:  # type: ignore[misc]  # wrong stub
            raise ValueError(f"no sound gzip data: {error}") from error


def _unzstd(source: BinaryIO) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    with decompressor.stream_reader(source, read_size=BLOCK, read_across_frames=True) as reader:
        try:
            while chunk := reader.read(BLOCK):
                yield chunk
        except zstandard.ZstdError as error:
            raise ValueError(f"no sound zstd data: {error}") from error

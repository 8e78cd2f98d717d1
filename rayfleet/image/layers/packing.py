"""From the tar of a layer to a blob in the cache: hash, compress, hash, write."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor

from rayfleet.fleet.model import Compression
from rayfleet.image.layers.blobs import Blob, BlobCache
from rayfleet.image.layers.compression import compressed, cut, decompressed


class Packer:
    """Packs layers into ``cache``; several threads may do so at once.

    ``helpers`` compress, each layer running ``ahead`` blocks ahead of its file. ``check`` is
    called often and raises what should end the work; ``on_compressed`` gets counts of raw bytes.
    """

    def __init__(
        self,
        cache: BlobCache,
        compression: Compression,
        *,
        helpers: Executor,
        ahead: int,
        check: Callable[[], None],
        on_compressed: Callable[[int], None],
    ) -> None:
        self.compression = compression
        self._cache = cache
        self._helpers = helpers
        self._ahead = ahead
        self._check = check
        self._on_compressed = on_compressed
        self._lock = threading.Lock()
        self._compressed = 0

    @property
    def compressed(self) -> int:
        """The raw bytes that were compressed so far."""
        return self._compressed

    def pack(self, chunks: Iterable[bytes], wanted: Collection[str]) -> Blob | None:
        """Compress a tar; None, and nothing kept, if it is none of the diff ids ``wanted``.

        Raises:
            PrerequisiteMissing: the disk is full.
        """
        raw = Metered(cut(chunks), on_block=self._count)
        with self._cache.new_blob(self.compression) as new:
            for piece in compressed(
                raw, self.compression, helpers=self._helpers, ahead=self._ahead
            ):
                new.write(piece)
            if raw.digest not in wanted:
                return None
            return new.keep(raw.digest, raw_size=raw.size)

    def keep(self, chunks: Iterable[bytes], wanted: Collection[str]) -> Blob | None:
        """Take a layer that is compressed as we want it byte for byte; else as :meth:`pack`.

        Raises:
            ValueError: its bytes are damaged.
            PrerequisiteMissing: the disk is full.
        """
        with self._cache.new_blob(self.compression) as new:
            copied = _copied(chunks, new.write)
            raw = Metered(
                decompressed(copied, self.compression), on_block=lambda size: self._check()
            )
            for _ in raw:
                pass
            if raw.digest not in wanted:
                return None
            for _ in copied:
                pass  # what follows the last frame belongs to the blob
            return new.keep(raw.digest, raw_size=raw.size)

    def _count(self, size: int) -> None:
        self._check()
        with self._lock:
            self._compressed += size
        self._on_compressed(size)


class Metered:
    """Blocks on their way, with the digest and the size of what went by."""

    def __init__(self, blocks: Iterable[bytes], *, on_block: Callable[[int], None]) -> None:
        self._blocks = blocks
        self._on_block = on_block
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        """``sha256:…`` of what went by so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            self._on_block(len(block))
            self._hash.update(block)
            self.size += len(block)
            yield block


def _copied(chunks: Iterable[bytes], copy: Callable[[bytes], None]) -> Iterator[bytes]:
    for chunk in chunks:
        copy(chunk)
        yield chunk

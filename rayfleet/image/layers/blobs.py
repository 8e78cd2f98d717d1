"""The cache of compressed layers, so that no layer is compressed twice.

::

    blobs/sha256/<digest>             the bytes as a registry gets them
    blobs/layers/<gzip|zstd>/<hex>    record of a layer by its diff id: digest and sizes, as JSON
    blobs/configs/<hex>               the exact config of an image, by the image's ID
    blobs/partial/…                   what is being written

Many runs may use one cache. Each holds a shared lock (flock) on every blob that it uses and on
every file that it writes; who clears away tries an exclusive one first and leaves alone what it
does not get. A lock ends with its process, so nothing has to be remembered.

Blobs are not synced to the disk before they get their name: they can be made again at any time.
What a loss of power leaves of them is found by its size, or by its digest when it is sent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

from rayfleet.files import ensure_folder, refusing
from rayfleet.fleet.model import Compression
from rayfleet.image.layers.blob_file import CheckedFile, Draft, Seal, clear, hold, is_gone
from rayfleet.image.layers.compression import MEDIA_TYPES

DEFAULT_LIMIT = 20 << 30

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One compressed layer in the cache.

    ``digest`` and ``size`` (bytes) are those of the file ``path``, which is what a registry
    gets; ``diff_id`` and ``raw_size`` are those of the uncompressed tar. ``seal`` notes that
    the bytes were checked.
    """

    digest: str
    size: int
    diff_id: str
    media_type: str
    path: Path
    raw_size: int
    seal: Seal = field(default_factory=Seal, compare=False, repr=False)

    def open(self) -> BinaryIO:
        """The bytes, from the start. Reading fails if they are not those of ``digest``.

        Raises:
            ToolFailed: the file is damaged (here or on reading its end); it is deleted then.
        """
        return CheckedFile(self.path, digest=self.digest, size=self.size, seal=self.seal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the cache remembers of a layer."""

    digest: str
    size: int
    raw_size: int


class BlobCache:
    """The cache in ``folder``, at most ``limit`` bytes between runs: least recently used go.

    Used as a context manager. What this run has found or added stays until the block ends,
    whatever other runs do. Safe to use from several threads.
    """

    def __init__(self, folder: Path, *, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self._limit = limit
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, Seal]] = {}
        self._added = False

    def __enter__(self) -> Self:
        """Make the folder if need be and clear away what killed runs left.

        Raises:
            PrerequisiteMissing: the folder cannot be written.
        """
        for name in ("sha256", "configs", "partial", *(f"layers/{each}" for each in Compression)):
            ensure_folder(self.folder / name)
        with refusing(self.folder):
            for leftover in (self.folder / "partial").iterdir():
                clear(leftover)
            self._trim()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for held, _seal in self._held.values():
                os.close(held)
            self._held.clear()
        if self._added:
            with suppress(OSError):
                self._trim()

    def find(self, diff_id: str, compression: Compression) -> Blob | None:
        """The layer ``diff_id`` compressed in this way, if it is here and whole."""
        path = self._record_path(diff_id, compression)
        record = _read_record(path)
        if record is None:
            return None
        seal = None
        with suppress(OSError):
            seal = self._hold(record)
            if seal is None:
                path.unlink(missing_ok=True)
        if seal is None:
            return None
        return self._blob(record, diff_id, compression, seal)

    @contextmanager
    def new_blob(self, compression: Compression) -> Iterator[NewBlob]:
        """A blob to be written; it goes with the block unless it was kept.

        Raises:
            PrerequisiteMissing: the disk is full.
        """
        new = NewBlob(self, compression)
        try:
            yield new
        finally:
            new.close()

    def config(self, image_id: str) -> bytes | None:
        """The exact config of an image that was seen before."""
        path = self._config_path(image_id)
        try:
            digest, _, config = path.read_bytes().partition(b"\n")
        except OSError:
            return None
        if hashlib.sha256(config).hexdigest().encode() != digest:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        with suppress(OSError):
            os.utime(path)
        return config

    def keep_config(self, image_id: str, config: bytes) -> None:
        """Remember the config of ``image_id``.

        Raises:
            PrerequisiteMissing: the disk is full.
        """
        digest = hashlib.sha256(config).hexdigest().encode()
        self._write(self._config_path(image_id), digest + b"\n" + config)

    def add(self, draft: Draft, record: Record, diff_id: str, compression: Compression) -> Blob:
        """Take in a complete blob; NewBlob.keep calls this.

        Raises:
            PrerequisiteMissing: the folder cannot be written.
        """
        held = draft.place(self._blob_path(record.digest))
        seal = Seal(checked=True)
        with self._lock:
            self._added = True
            before = self._held.pop(record.digest, None)
            if before is not None:
                os.close(before[0])
            self._held[record.digest] = held, seal
        text = json.dumps(asdict(record), sort_keys=True)
        self._write(self._record_path(diff_id, compression), text.encode())
        return self._blob(record, diff_id, compression, seal)

    def _blob(self, record: Record, diff_id: str, compression: Compression, seal: Seal) -> Blob:
        return Blob(
            digest=record.digest,
            size=record.size,
            diff_id=diff_id,
            media_type=MEDIA_TYPES[compression],
            path=self._blob_path(record.digest),
            raw_size=record.raw_size,
            seal=seal,
        )

    def _hold(self, record: Record) -> Seal | None:
        """Hold the blob of ``record`` until the cache is closed; None if it is not as recorded."""
        with self._lock:
            there = self._held.get(record.digest)
            if there is not None:
                if not is_gone(there[0]):
                    return there[1]
                os.close(self._held.pop(record.digest)[0])
            path = self._blob_path(record.digest)
            held = hold(path)
            if held is None:
                return None
            if os.fstat(held).st_size != record.size:
                os.close(held)
                clear(path)
                return None
            with suppress(OSError):
                os.utime(held)
            seal = Seal()
            self._held[record.digest] = held, seal
            return seal

    def _write(self, path: Path, content: bytes) -> None:
        draft = Draft(self.folder / "partial")
        try:
            draft.write(content)
            draft.replace(path)
        finally:
            draft.discard()

    def _trim(self) -> None:
        """Clear away the least recently used of what is over the limit and not in use."""
        found = []
        for folder in ("sha256", "configs"):
            for path in (self.folder / folder).iterdir():
                with suppress(FileNotFoundError):
                    status = path.stat()
                    found.append((status.st_mtime_ns, status.st_size, path))
        excess = sum(size for _, size, _ in found) - self._limit
        if excess <= 0:
            return
        for _, size, path in sorted(found):
            if excess > 0 and clear(path):
                excess -= size
        self._forget_cleared()

    def _forget_cleared(self) -> None:
        for compression in Compression:
            for path in (self.folder / "layers" / compression).iterdir():
                record = _read_record(path)
                if record is None or not self._blob_path(record.digest).exists():
                    path.unlink(missing_ok=True)

    def _blob_path(self, digest: str) -> Path:
        return self.folder / "sha256" / _hex(digest)

    def _record_path(self, diff_id: str, compression: Compression) -> Path:
        return self.folder / "layers" / compression / _hex(diff_id)

    def _config_path(self, image_id: str) -> Path:
        return self.folder / "configs" / _hex(image_id)


class NewBlob:
    """A blob while it is written. ``digest`` is that of what was written so far."""

    def __init__(self, cache: BlobCache, compression: Compression) -> None:
        self._cache = cache
        self._compression = compression
        self._draft = Draft(cache.folder / "partial")
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, piece: bytes) -> None:
        """Append ``piece``.

        Raises:
            PrerequisiteMissing: the disk is full.
        """
        self._draft.write(piece)
        self._hash.update(piece)
        self._size += len(piece)

    def keep(self, diff_id: str, *, raw_size: int) -> Blob:
        """What was written is the whole layer ``diff_id``, of ``raw_size`` bytes uncompressed.

        Raises:
            PrerequisiteMissing: the folder cannot be written.
        """
        record = Record(
            digest=f"sha256:{self._hash.hexdigest()}", size=self._size, raw_size=raw_size
        )
        return self._cache.add(self._draft, record, diff_id, self._compression)

    def close(self) -> None:
        """Give up what was not kept."""
        self._draft.discard()


def _hex(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is no sha256 digest")
    return digest.removeprefix("sha256:")


def _read_record(path: Path) -> Record | None:
    """The record in ``path``, or None if there is none that makes sense."""
    try:
        found = json.loads(path.read_bytes())
        record = Record(
            digest=found["digest"], size=int(found["size"]), raw_size=int(found["raw_size"])
        )
        _hex(record.digest)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record

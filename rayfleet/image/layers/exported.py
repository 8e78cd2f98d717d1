"""Layers out of an export: what an entry of the archive is shows only as it goes by."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from rayfleet.image.layers.archive import Entry, entries
from rayfleet.image.layers.blobs import Blob
from rayfleet.image.layers.compression import compression_of, cut, decompressed
from rayfleet.image.layers.documents import SMALL, Documents
from rayfleet.image.layers.packing import Packer

if TYPE_CHECKING:
    from rayfleet.image.layers.collect import LocalImage

# Blocks that are read ahead.
AHEAD = 8
LOOK_SECONDS = 0.2
JOIN_SECONDS = 0.5


class Exported:
    """One reading of an image's archive.

    ``held`` are the layers that are there already: they are skipped where their name or their
    size tells them. With ``exact`` only the name does: two layers may be of one size.
    ``on_blob`` gets every other layer of the image. ``check`` raises what should end the work.
    """

    def __init__(
        self,
        image: LocalImage,
        packer: Packer,
        *,
        held: Iterable[Blob],
        exact: bool,
        on_blob: Callable[[Blob], None],
        check: Callable[[], None],
    ) -> None:
        self._image = image
        self._packer = packer
        self._held = {blob.diff_id: blob for blob in held}
        self._exact = exact
        self._on_blob = on_blob
        self._check = check
        self._documents = Documents()
        self.config: bytes | None = None
        # Why something that looked like a layer is none, for the message.
        self.complaint = ""

    def read(self, chunks: Iterator[bytes]) -> None:
        """Go through the archive until the image is complete, or to its end.

        Raises:
            ToolFailed: it is no archive, or ends too early.
        """
        with ReadAhead(chunks, check=self._check) as ahead:
            for entry in entries(iter(ahead)):
                self._check()
                self._see(entry)
                self.config = self._documents.exact_config(self._image)
                if self.config is not None and not self._lacking():
                    return
        self.config = self._documents.config(self._image)

    def _lacking(self) -> set[str]:
        return set(self._image.diff_ids) - self._held.keys()

    def _see(self, entry: Entry) -> None:
        if entry.size <= SMALL:
            raw = b"".join(entry.chunks)
            if compression_of(raw) is None and _digest(raw) not in self._lacking():
                self._documents.offer(entry.name, raw)
                return
            entry = replace(entry, chunks=iter((raw,)))
        if self._is_held(entry):
            return
        try:
            blob = self._packed(entry)
        except ValueError as error:
            self.complaint = f"{entry.name}: {error}"
            return
        if blob is not None:
            self._held[blob.diff_id] = blob
            self._on_blob(blob)

    def _is_held(self, entry: Entry) -> bool:
        """True for a layer that need not be read at all, as far as can be told."""
        held = self._held.values()
        if entry.digest is not None:
            return any(entry.digest in (blob.diff_id, blob.digest) for blob in held)
        return not self._exact and any(entry.size == blob.raw_size for blob in held)

    def _packed(self, entry: Entry) -> Blob | None:
        """The entry as a blob if it is a layer that is lacking."""
        compression = compression_of(entry.head)
        lacking = self._lacking()
        if compression is None:
            if entry.digest is not None and entry.digest not in lacking:
                return None  # a layer of another platform, an SBOM ...
            return self._packer.pack(entry.chunks, lacking)
        if compression is self._packer.compression:
            return self._packer.keep(entry.chunks, lacking)
        return self._packer.pack(decompressed(entry.chunks, compression), lacking)


class ReadAhead:
    """Chunks read by a thread of their own, some ahead of who takes them.

    An engine may be silent for minutes before the first byte (how long is for the engine's
    client to limit); the run can end all the same.
    """

    def __init__(self, chunks: Iterator[bytes], *, check: Callable[[], None]) -> None:
        self._chunks = chunks
        self._check = check
        self._queue: queue.Queue[bytes | BaseException | None] = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="export", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        # Longer only if the engine is silent; the thread then ends with its next word.
        self._thread.join(JOIN_SECONDS)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                item = self._queue.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                self._check()
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            # An engine's chunks are small: hand over fewer, larger ones.
            for chunk in cut(self._chunks):
                if not self._hand_over(chunk):
                    break
        except BaseException as error:  # raised again by who reads
            end = error
        finally:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()
        self._hand_over(end)

    def _hand_over(self, item: bytes | BaseException | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=LOOK_SECONDS)
            except queue.Full:
                continue
            return True
        return False


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"

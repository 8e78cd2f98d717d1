"""Layers and configs out of the folders of a classic Docker engine on this machine.

An engine with the driver overlay2 keeps every layer unpacked in ``overlay2/<cache id>/diff``,
and beside it a list of all that a tar has besides the files' content: tar-split
(https://github.com/vbatts/tar-split, JSON lines; moby layer/filestore.go, layer_store.go and
daemon/graphdriver/overlay2). Both together are the layer's tar, byte for byte; the engine
itself puts the two together to export or push it.

``docker save`` writes all layers of an image, each twice, for one that is wanted. To have the
engine push to a registry of ours and hang up after the wanted layers (an earlier plan) compresses
with the engine's slow gzip all that comes before them. Here only the layers that are lacking are
read, nothing is written, and the engine does nothing at all.

This is not an interface that Docker promises, so nothing here is believed: the caller compares
the digest of every layer, and what is missing or of another form is Unreadable: it is exported.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

from rayfleet.fleet.model import Compression
from rayfleet.image.layers.compression import as_file, decompressed

CHUNK = 512 << 10
# Longest line of tar-split that is read, in bytes; they are a few KB.
MAX_LINE = 32 << 20

_NAME = re.compile(r"[0-9a-z-]{1,128}")
_FILE_CONTENT, _LITERAL = 1, 2
# Not to follow links out of the layer, nor to wait for a FIFO to be opened by another.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY


class Unreadable(Exception):
    """The store does not have this, or not in the form that is known here."""


class LayerStore:
    """The layers ``diff_ids`` (lowest first) of the image ``image_id`` in an engine's ``root``."""

    def __init__(self, root: Path, *, image_id: str, diff_ids: Sequence[str]) -> None:
        self._layers = root / "image" / "overlay2" / "layerdb" / "sha256"
        self._configs = root / "image" / "overlay2" / "imagedb" / "content" / "sha256"
        self._trees = root / "overlay2"
        self._image_id = image_id
        self._chains = chain_ids(diff_ids)

    def config(self) -> bytes:
        """The exact config of the image.

        Raises:
            Unreadable: it is not there, or is not what the image ID says.
        """
        try:
            config = (self._configs / self._image_id.removeprefix("sha256:")).read_bytes()
        except (OSError, ValueError) as error:
            raise Unreadable(str(error)) from error
        if f"sha256:{hashlib.sha256(config).hexdigest()}" != self._image_id:
            raise Unreadable("the digest of the config is not the image ID")
        return config

    def size(self, diff_id: str) -> int:
        """The bytes of the files of a layer; 0 if the store does not say."""
        try:
            return int((self._folder(diff_id) / "size").read_text())
        except (OSError, ValueError):
            return 0

    def layer(self, diff_id: str) -> Iterator[bytes]:
        """The tar of a layer, in pieces of any size up to CHUNK or a line of tar-split.

        Raises:
            Unreadable: it cannot be put together, which may show after some pieces.
        """
        folder = self._folder(diff_id)
        try:
            cache_id = (folder / "cache-id").read_text().strip()
            if not _NAME.fullmatch(cache_id):
                raise Unreadable(f"{cache_id!r} is no name of a folder")
            with (
                Tree(self._trees / cache_id / "diff") as tree,
                (folder / "tar-split.json.gz").open("rb") as packed,
            ):
                listed = decompressed(iter(partial(packed.read, CHUNK), b""), Compression.GZIP)
                yield from _assembled(as_file(listed), tree)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unreadable(str(error)) from error

    def _folder(self, diff_id: str) -> Path:
        return self._layers / self._chains[diff_id].removeprefix("sha256:")


def chain_ids(diff_ids: Sequence[str]) -> dict[str, str]:
    """The chain ID of the first place where each layer stands.

    The ID of a layer and all below it: https://github.com/opencontainers/image-spec/blob/main/config.md
    """
    chains: dict[str, str] = {}
    chain = ""
    for diff_id in diff_ids:
        both = f"{chain} {diff_id}".encode()
        chain = f"sha256:{hashlib.sha256(both).hexdigest()}" if chain else diff_id
        chains.setdefault(diff_id, chain)
    return chains


def _assembled(lines: BinaryIO, tree: Tree) -> Iterator[bytes]:
    decode = json.JSONDecoder().decode
    while line := lines.readline(MAX_LINE):
        if not line.endswith(b"\n"):
            raise ValueError("a line without an end")
        entry = decode(line.decode())
        kind = entry["type"]
        if kind == _LITERAL:
            yield binascii.a2b_base64(entry["payload"] or "")
        elif kind != _FILE_CONTENT:
            raise ValueError(f"an entry of type {kind!r}")
        elif size := entry.get("size", 0):
            name = entry.get("name")
            raw = name.encode() if name else binascii.a2b_base64(entry["name_raw"])
            yield from tree.read(raw, size)


class Tree:
    """Files below a folder. No name leads out of it: links on the way are not followed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._top = -1
        self._folder = -1
        self._name: bytes | None = None

    def __enter__(self) -> Self:
        self._top = os.open(self._root, _FOLDER)
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        os.close(self._top)

    def read(self, name: bytes, size: int) -> Iterator[bytes]:
        """The first ``size`` bytes of the file ``name``.

        Raises:
            OSError: there is no such file.
            ValueError: it is shorter, or the name leads out.
        """
        folder, _, last = name.rpartition(b"/")
        if folder != self._name:
            self._enter(folder)
        if last in (b"", b".", b".."):
            raise ValueError(f"{name!r} is no file")
        file = os.open(last, _FILE, dir_fd=self._folder)
        try:
            while size:
                piece = os.read(file, min(size, CHUNK))
                if not piece:
                    raise ValueError(f"{name!r} is too short")
                size -= len(piece)
                yield piece
        finally:
            os.close(file)

    def _enter(self, name: bytes) -> None:
        """Make ``name`` the open folder; neighbours in a tar mostly share it."""
        self._leave()
        here = os.dup(self._top)
        for part in name.split(b"/"):
            if part in (b"", b"."):
                continue
            try:
                if part == b"..":
                    raise ValueError(f"{name!r} leads out of the layer")
                below = os.open(part, _FOLDER, dir_fd=here)
            finally:
                os.close(here)
            here = below
        self._folder, self._name = here, name

    def _leave(self) -> None:
        if self._name is not None:
            os.close(self._folder)
            self._name = None

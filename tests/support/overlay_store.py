"""The folders of a classic Docker engine with overlay2, made by hand from tars."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

from rayfleet.image.layers.store import chain_ids
from tests.support.archives import ArchiveEngine, MadeImage, digest_of, legacy_archive


class OverlayStore:
    """The folder ``root``, with ``image`` in it."""

    def __init__(self, root: Path, image: MadeImage) -> None:
        self.root = root
        self.image = image
        configs = root / "image" / "overlay2" / "imagedb" / "content" / "sha256"
        configs.mkdir(parents=True)
        self.config = configs / digest_of(image.config).removeprefix("sha256:")
        self.config.write_bytes(image.config)
        for layer in dict.fromkeys(image.layers):
            self._add(layer)

    def record(self, layer: bytes) -> Path:
        """The folder with what the engine notes of a layer."""
        chain = chain_ids(self.image.local.diff_ids)[digest_of(layer)]
        layers = self.root / "image" / "overlay2" / "layerdb" / "sha256"
        return layers / chain.removeprefix("sha256:")

    def tree(self, layer: bytes) -> Path:
        """The folder with the files of a layer."""
        return self.root / "overlay2" / (self.record(layer) / "cache-id").read_text() / "diff"

    def write_split(self, layer: bytes, *entries: dict[str, Any]) -> None:
        """Replace the list of what the tar of ``layer`` is made of."""
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (self.record(layer) / "tar-split.json.gz").write_bytes(gzip.compress(lines.encode()))

    def _add(self, layer: bytes) -> None:
        record = self.record(layer)
        record.mkdir(parents=True)
        (record / "cache-id").write_text(f"{record.name[:32]}-init")
        (record / "size").write_text(str(len(layer)))
        tree = self.tree(layer)
        tree.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            tar.extractall(tree, filter="tar")
        self.write_split(layer, *split(layer))


def split(layer: bytes) -> list[dict[str, Any]]:
    """What tar-split keeps of a tar."""
    entries: list[dict[str, Any]] = []
    at = 0
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        for member in tar:
            entries.append(literal(layer[at : member.offset_data]))
            at = member.offset_data + (member.size if member.isreg() else 0)
            name = os.fsencode(member.name)
            entries.append({"type": 1, "size": at - member.offset_data, **named(name)})
    entries.append(literal(layer[at:]))
    return [{**entry, "position": position} for position, entry in enumerate(entries)]


def literal(content: bytes) -> dict[str, Any]:
    return {"type": 2, "payload": base64.b64encode(content).decode()}


def named(name: bytes) -> dict[str, Any]:
    """As Go writes a name: JSON cannot hold one that is not UTF-8."""
    try:
        return {"name": name.decode()}
    except UnicodeDecodeError:
        return {"name_raw": base64.b64encode(name).decode()}


class LocalEngine(ArchiveEngine):
    """An engine on this machine whose folder can be read, and which can export too."""

    def __init__(self, store: OverlayStore) -> None:
        super().__init__(legacy_archive(store.image))
        self._root = store.root

    def store_root(self) -> Path | None:
        """Its folder."""
        return self._root

"""Small images for the machine's Docker engine, made of layers of random bytes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress

from docker import DockerClient
from docker.errors import ImageNotFound

KIB = 1024
CREATED = "2024-05-06T07:08:09.123456789Z"


def random_layer(size: int) -> bytes:
    """The tar of one layer: a file of ``size`` bytes that does not compress."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        entry = tarfile.TarInfo(f"data-{size}")
        entry.size = size
        tar.addfile(entry, io.BytesIO(os.urandom(size)))
    return content.getvalue()


def random_layers(*sizes: int) -> list[bytes]:
    """A layer for each of ``sizes``, and the first one once more at the end."""
    layers = [random_layer(size) for size in sizes]
    return [*layers, layers[0]]


@contextmanager
def loaded_image(layers: Sequence[bytes]) -> Iterator[str]:
    """An image of ``layers``, lowest first, under a name unlike any other's, for the block."""
    name = f"rayfleet-test/faults-{uuid.uuid4().hex[:12]}:original"
    with closing(DockerClient.from_env()) as client:
        client.images.load(_archive(name, layers))
        try:
            yield name
        finally:
            with suppress(ImageNotFound):  # a test has removed it
                client.images.remove(name, force=True)


def _archive(name: str, layers: Sequence[bytes]) -> bytes:
    """What ``docker load`` reads (moby, image/spec/v1.2.md)."""
    names = [hashlib.sha256(layer).hexdigest() for layer in layers]
    history = [{"created": CREATED, "created_by": f"step {step}"} for step in range(len(layers))]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": CREATED,
            "config": {"Env": ["A=b"], "Labels": {"test.name": name}},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in names]},
            "history": history,
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    tars = [f"{each}.tar" for each in names]
    entry = {"Config": config_name, "RepoTags": [name], "Layers": tars}
    files = dict(zip(tars, layers, strict=True))
    files |= {config_name: config, "manifest.json": json.dumps([entry]).encode()}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return content.getvalue()

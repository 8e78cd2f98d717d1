"""Layers of every kind, and images of them in the machine's Docker engine."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from docker import DockerClient
from docker.errors import ImageNotFound

DOCKERFILE = """\
FROM scratch AS other
COPY many /many
FROM scratch
COPY many /many
COPY --from=other /many/1/2 /copied
COPY once /once
ENV A=b
"""


def odd_layer() -> bytes:
    """Names and entries of many kinds, and a file larger than what is read at once."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, "./", kind=tarfile.DIRTYPE)
        add(tar, "./dotted", b"in the root of the layer")
        add(tar, "folder", kind=tarfile.DIRTYPE)
        add(tar, "folder/empty")
        add(tar, "folder/large", os.urandom(1_300_000))
        add(tar, "folder/hard", kind=tarfile.LNKTYPE, to="folder/large")
        add(tar, "folder/soft", kind=tarfile.SYMTYPE, to="/etc/passwd")
        add(tar, "folder/dangling", kind=tarfile.SYMTYPE, to="../nowhere")
        add(tar, "folder/fifo", kind=tarfile.FIFOTYPE)
        add(tar, "long/" * 50 + "name", b"at the end of a long way")
        add(tar, "l" * 200, b"a long name")
        add(tar, os.fsdecode(b"caf\xe9"), b"no UTF-8")
        add(tar, "caf\N{LATIN SMALL LETTER E WITH ACUTE}", b"UTF-8")
    return content.getvalue()


def whiteout_layer() -> bytes:
    """A layer that takes files of :func:`odd_layer` away."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        add(tar, ".wh.dotted")
        add(tar, "folder", kind=tarfile.DIRTYPE)
        add(tar, "folder/.wh..wh..opq")
        add(tar, "folder/anew", b"after the whiteout")
        add(tar, "null", kind=tarfile.CHRTYPE)
        entry = tarfile.TarInfo("capable")
        entry.pax_headers = {"SCHILY.xattr.user.test": "value", "mtime": "1700000000.123456789"}
        entry.mode = 0o4755
        tar.addfile(entry)
    return content.getvalue()


def sparse_layer(folder: Path) -> bytes:
    """A file of holes, as GNU tar packs it."""
    with (folder / "holes").open("wb") as holes:
        holes.seek(3_000_000)
        holes.write(b"end")
    argv = ["tar", "--create", "--sparse", "--format=posix", f"--directory={folder}", "holes"]
    return subprocess.run(argv, check=True, capture_output=True).stdout


def detour_layer() -> bytes:
    """A file whose name goes through a symlink; it lies elsewhere than its name says."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        add(tar, "real", kind=tarfile.DIRTYPE)
        add(tar, "way", kind=tarfile.SYMTYPE, to="real")
        add(tar, "way/file", b"through a symlink")
    return content.getvalue()


def add(
    tar: tarfile.TarFile, name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, to: str = ""
) -> None:
    """Append an entry of a fixed time and mode."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname = len(data), kind, to
    entry.mode = 0o755
    tar.addfile(entry, io.BytesIO(data))


@contextmanager
def built_image(folder: Path, *, files: int) -> Iterator[str]:
    """An image of the classic builder with ``files`` small files, for the block."""
    for number in range(files):
        path = folder / "many" / str(number % 7) / str(number % 5) / f"file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(number % 1500))
    (folder / "once").write_text("once\n")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    name = f"rayfleet-test/layers-{uuid.uuid4().hex[:12]}:built"
    with closing(DockerClient.from_env()) as client:
        try:
            client.images.build(path=str(folder), tag=name, rm=True, forcerm=True)
            yield name
        finally:
            with suppress(ImageNotFound):
                client.images.remove(name, force=True)


@contextmanager
def committed_image(base: str) -> Iterator[str]:
    """The image ``base`` with a layer that a container's commit has made, for the block."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        add(tar, "put", b"into a container")
    repository, tag = f"rayfleet-test/layers-{uuid.uuid4().hex[:12]}", "committed"
    with closing(DockerClient.from_env()) as client:
        container = client.containers.create(base, command=["none"])
        try:
            container.put_archive("/", content.getvalue())
            container.commit(repository, tag)
            yield f"{repository}:{tag}"
        finally:
            container.remove(force=True)
            with suppress(ImageNotFound):
                client.images.remove(f"{repository}:{tag}", force=True)

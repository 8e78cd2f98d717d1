"""An image that runs without network and without a base image: this machine's own shell."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from docker import DockerClient
from docker.errors import ImageNotFound

SHELL = Path("/bin/sh")
# A layer that comes twice, an empty one, and everything that a configuration may say.
DOCKERFILE = b"""\
FROM scratch
COPY rootfs/ /
COPY greeting /
ENV WHO=world
LABEL test.label="with blanks and \\"quotes\\" <&>"
COPY greeting /
COPY ballast /ballast
WORKDIR /lib
USER 1000:1000
EXPOSE 8265/tcp
ENTRYPOINT ["/bin/sh", "-c"]
CMD ["read line < ../greeting; echo $line $WHO"]
"""
SAYS = "hello world"


@contextmanager
def runnable_image() -> Iterator[str]:
    """An image built by the machine's engine, named unlike any other; it prints SAYS."""
    name = f"rayfleet-test/pulls-{uuid.uuid4().hex[:12]}:original"
    with closing(DockerClient.from_env()) as client:
        client.images.build(fileobj=_context(), custom_context=True, tag=name, rm=True)
        try:
            yield name
        finally:
            with suppress(ImageNotFound):
                client.images.remove(name, force=True)


def _context() -> io.BytesIO:
    files = {
        "Dockerfile": DOCKERFILE,
        "greeting": b"hello\n",
        # No two runs share a layer: a pull then has to fetch it.
        "ballast": os.urandom(300_000) + bytes(300_000),
    }
    files |= {f"rootfs{each}": each.read_bytes() for each in (SHELL, *_libraries())}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    content.seek(0)
    return content


def _libraries() -> list[Path]:
    listed = subprocess.run(["ldd", SHELL], capture_output=True, text=True, check=True).stdout
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", listed)]

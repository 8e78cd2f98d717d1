"""What the layers of the measured image hold: real files of this machine, and random data.

Sizes and mix follow a usual image of a cluster: a base system, data, a virtual environment and
the sources on top. Nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, count
from pathlib import Path
from typing import IO

MEGABYTE = 1_000_000
# Files of the base system are many and small; a few big programs would be another mix.
LARGEST_SYSTEM_FILE = 8 * MEGABYTE
RANDOM_FILE = 3 * MEGABYTE
STDLIB = Path(sysconfig.get_path("stdlib"))
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
SYSTEM = ((Path("/usr/bin"), 40), (Path("/usr/share"), 50), (Path("/usr/lib"), 77))

File = tuple[str, int, int, IO[bytes]]  # name in the image, mode, size, content


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer as an uncompressed tar. ``size`` is its bytes."""

    path: Path
    diff_id: str
    size: int


def write_layer(path: Path, kind: str, *, seed: str, scale: float) -> Layer:
    """Write the tar of a layer of one ``kind`` of `KINDS`.

    ``seed`` makes it unlike any other: one more file, and the time of all of them, as a build
    step that ran again has it. ``scale`` multiplies the size.
    """
    when = 1_700_000_000 + random.Random(seed).randrange(10_000_000)  # noqa: S311
    marker = seed.encode()
    files = chain(
        [(f"opt/{kind}.seed", 0o644, len(marker), BytesIO(marker))], KINDS[kind](seed, scale)
    )
    with tarfile.open(path, "w") as tar:
        for name, mode, size, content in files:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size, entry.mtime = mode, size, when
            with content:
                tar.addfile(entry, content)
    with path.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    return Layer(path=path, diff_id=f"sha256:{digest}", size=path.stat().st_size)


def _system(scale: float) -> Iterator[File]:
    for folder, megabytes in SYSTEM:
        limit = int(megabytes * MEGABYTE * scale)
        yield from _files([folder], folder.name, limit, lambda size: size <= LARGEST_SYSTEM_FILE)


def _data(seed: str, scale: float) -> Iterator[File]:
    """Random bytes as base64: a quarter of it can be compressed away."""
    source = random.Random(seed)  # noqa: S311
    left = int(81 * MEGABYTE * scale)
    for number in count():
        if left <= 0:
            return
        content = base64.b64encode(source.randbytes(min(left, RANDOM_FILE) * 3 // 4))
        left -= len(content)
        yield f"srv/data/{number:04}", 0o644, len(content), BytesIO(content)


def _packages(scale: float) -> Iterator[File]:
    # Ray first: it is what an image of a cluster is made of.
    folders = [SITE_PACKAGES / "ray", SITE_PACKAGES]
    yield from _files(folders, "opt/venv", int(302 * MEGABYTE * scale))


def _sources(scale: float) -> Iterator[File]:
    limit = int(5.2 * MEGABYTE * max(scale, 0.2))
    yield from _files([STDLIB], "srv/source", limit, suffix=".py")


KINDS: dict[str, Callable[[str, float], Iterator[File]]] = {
    "system": lambda seed, scale: _system(scale),
    "data": _data,
    "packages": lambda seed, scale: _packages(scale),
    "sources": lambda seed, scale: _sources(scale),
}


def _files(
    folders: list[Path],
    prefix: str,
    limit: int,
    wanted: Callable[[int], bool] = lambda size: size > 0,
    suffix: str = "",
) -> Iterator[File]:
    """Regular files below ``folders``, in order, until there are ``limit`` bytes of them; they
    come again, under other names, where there are too few."""
    left = limit
    for turn in count():
        before = left
        for number, folder in enumerate(folders):
            for path in _walk(folder, suffix):
                try:
                    content = path.open("rb")
                except OSError:
                    continue
                status = os.fstat(content.fileno())
                if not 0 < status.st_size <= left or not wanted(status.st_size):
                    content.close()
                    continue
                left -= status.st_size
                name = f"{prefix}/{turn}{number}/{path.relative_to(folder)}"
                yield name, status.st_mode & 0o777, status.st_size, content
                if left < limit // 100:
                    return
        if left == before:
            sys.exit(f"there are no files to make a layer of in {folders[-1]}")


def _walk(folder: Path, suffix: str) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if name.endswith(suffix) and path.is_file() and not path.is_symlink():
                yield path

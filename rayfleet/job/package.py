"""A job's working directory as the zip that Ray unpacks beside the entrypoint."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rayfleet.errors import UsageError
from rayfleet.job.checkout import listed_files

MAX_BYTES = 100 * 1024**2
"""Ray's dashboard answers 413 to a larger upload (DASHBOARD_CLIENT_MAX_SIZE, Ray 2.60).

Ray's documents say 512 MiB, the limit of one GCS message, which is never reached over HTTP.
"""

EXCLUDED = frozenset({".git", ".venv", "venv", "__pycache__"})
"""Folders that no job needs: Ray's own default excludes."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A zipped working directory.

    ``name`` is what Ray calls it, ``_ray_pkg_<hash>.zip``; the hash covers names, modes and
    contents, and nothing else. ``path`` is the zip on this machine, ``size`` its bytes and
    ``files`` how many it holds.
    """

    name: str
    path: Path
    size: int
    files: int


@contextmanager
def packaged(folder: Path, *, limit: int = MAX_BYTES) -> Iterator[Package]:
    """Zip ``folder`` into a temporary file that lasts as long as the block.

    Equal folders make equal zips: entries are sorted and have one fixed time. Modes are
    kept. In a git checkout, what .gitignore ignores is left out; links are replaced by what
    they lead to, since Ray unpacks none. ``limit`` is in bytes of the zip.

    Raises:
        UsageError: there is no such folder, no file in it, one cannot be read, or the zip
            is larger than ``limit``.
        ToolFailed: the folder is in a checkout that git does not read.
    """
    names = files_of(folder)
    with tempfile.TemporaryDirectory(prefix="rayfleet-") as temporary:
        path = Path(temporary) / "package.zip"
        digest = _write_zip(path, folder, names, limit)
        yield Package(
            name=f"_ray_pkg_{digest}.zip",
            path=path,
            size=path.stat().st_size,
            files=len(names),
        )


def files_of(folder: Path) -> tuple[str, ...]:
    """The files of ``folder`` that a job gets, relative to it, sorted.

    Raises:
        UsageError: there is no such folder, or no file in it.
    """
    if not folder.is_dir():
        raise UsageError(f"no working directory {folder}", why="it is not a folder")
    names = tuple(sorted(set(_walk(folder.resolve(), "", frozenset()))))
    if not names:
        raise UsageError(f"the working directory {folder} has no files")
    return names


def _walk(folder: Path, prefix: str, above: frozenset[Path]) -> Iterator[str]:
    """Names of files in ``folder`` (a real path), each behind ``prefix``.

    ``above`` holds the folders that lead here, so that a link to one of them ends the walk.
    """
    if folder in above:
        return
    # A folder that is ignored as a whole was meant nevertheless: its owner named it.
    for name in listed_files(folder) or _entries(folder):
        entry = folder / name
        if EXCLUDED.intersection(Path(name).parts):
            continue
        if entry.is_dir():
            yield from _walk(entry.resolve(), f"{prefix}{name.rstrip('/')}/", above | {folder})
        elif entry.is_file():
            yield f"{prefix}{name}"


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 (names are wanted)
    except OSError as error:
        raise _unreadable(folder, error) from error


def _write_zip(path: Path, folder: Path, names: tuple[str, ...], limit: int) -> str:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                _add(archive, folder / name, name, digest)
                if path.stat().st_size > limit:
                    break
        if path.stat().st_size > limit:
            raise _too_large(folder, names, limit)
    except (OSError, UnicodeError) as error:
        raise _unreadable(folder, error) from error
    return digest.hexdigest()[:32]


def _add(archive: zipfile.ZipFile, source: Path, name: str, digest: hashlib._Hash) -> None:
    with source.open("rb") as stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        info = zipfile.ZipInfo(name, _EPOCH)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system = 3  # Unix: the high half of external_attr is the mode
        info.external_attr = (stat.S_IFREG | mode) << 16
        content = hashlib.sha256()
        with archive.open(info, "w", force_zip64=True) as target:
            while chunk := stream.read(_CHUNK):
                content.update(chunk)
                target.write(chunk)
    digest.update(f"{name}\0{mode:o}\0{content.hexdigest()}\n".encode(errors="surrogateescape"))


def _too_large(folder: Path, names: tuple[str, ...], limit: int) -> UsageError:
    sizes = sorted(((folder / name).stat().st_size, name) for name in names)[-3:]
    largest = ", ".join(f"{name} ({_mib(size)})" for size, name in reversed(sizes))
    return UsageError(
        f"the working directory {folder} is too large for a job",
        why=f"Ray takes zips of up to {_mib(limit)}; the largest files are {largest}",
        next_step="ignore what the job does not need in .gitignore, or name a smaller folder",
    )


def _unreadable(path: Path, error: OSError | UnicodeError) -> UsageError:
    return UsageError(f"cannot package {path}", why=str(error))


def _mib(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"

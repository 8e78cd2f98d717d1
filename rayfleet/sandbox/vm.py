"""What a sandbox VM carries: labels, and files laid into it before it starts."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SANDBOX_LABEL = "rayfleet.sandbox"
CLUSTER_LABEL = "rayfleet.cluster"
KIND_LABEL = "rayfleet.kind"
TAG_PREFIX = "rayfleet.tag."

VM_COMMAND = "/usr/local/sbin/sandbox-vm"
TAGS_FILE = "/var/lib/rayfleet-tags.json"
TOKEN_FILE = "/home/ray/.ray/auth_token"  # noqa: S105 (a path)
HEAD_CREDENTIALS = "/home/ray/.rayfleet/registry.json"

RAY_UID = 1000  # docker/Dockerfile.cluster makes the user


@dataclass(frozen=True, slots=True)
class File:
    """One file for a VM: absolute ``path``, ``content``, ``mode``; owned by ray or root."""

    path: str
    content: bytes
    mode: int
    ray: bool = False


def labels_of(sandbox: str, cluster: str, tags: Mapping[str, str]) -> dict[str, str]:
    """The labels of a VM of ``cluster``: whose it is, and Ray's tags at its creation."""
    owner = {SANDBOX_LABEL: sandbox, CLUSTER_LABEL: cluster, KIND_LABEL: "vm"}
    return owner | {TAG_PREFIX + key: value for key, value in tags.items()}


def tar_of(files: Iterable[File], *, now: float) -> bytes:
    """A tar archive of ``files`` to be unpacked at ``/``; parents of ray's files are ray's.

    ``now`` (epoch seconds) becomes the time of each file, fractions included, so that a file
    that was replaced can be told by its time.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in files:
            uid = RAY_UID if file.ray else 0
            if file.ray:
                parent = tarfile.TarInfo(file.path.rpartition("/")[0].lstrip("/"))
                parent.type, parent.mode, parent.uid, parent.gid = tarfile.DIRTYPE, 0o700, uid, uid
                archive.addfile(parent)
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.size, entry.mode, entry.uid, entry.gid = len(file.content), file.mode, uid, uid
            entry.mtime = now
            archive.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()


def version_at(path: Path) -> Path:
    """The file of a token: ``path`` itself, or the newest version beside it if it is ``latest``."""
    if path.name != "latest":
        return path
    versions = (each for each in path.parent.glob("*") if each.name.isdecimal())
    return max(versions, key=lambda each: int(each.name), default=path)


def untar(data: bytes) -> bytes:
    """The content of the first regular file in a tar archive; empty when there is none."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for entry in archive:
            handle = archive.extractfile(entry) if entry.isfile() else None
            if handle is not None:
                return handle.read()
    return b""

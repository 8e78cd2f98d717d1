"""What a docker-registry holds, read from its storage folder.

The layout is that of distribution 2.x on its filesystem driver:
``docker/registry/v2/repositories/NAME/_manifests/{revisions,tags}`` hold links to digests,
``docker/registry/v2/blobs`` the bytes. A registry may write to it while we read.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rayfleet.errors import RayfleetError
from rayfleet.files import write_atomically
from rayfleet.registry.policy import Version

ROOT = Path("docker/registry/v2")


class RegistryStorage:
    """The storage folder ``root`` of one registry. Reads only."""

    def __init__(self, root: Path) -> None:
        self._repositories = root / ROOT / "repositories"
        self._blobs = root / ROOT / "blobs"

    def versions(self, project: str, repository: str) -> tuple[Version, ...]:
        """Every manifest below ``project/repository``, sorted by image and digest.

        ``uploaded`` is when the registry last wrote the manifest's link, which a new tag for
        an old digest does too: see :class:`FirstSeen`.
        """
        top = self._repositories / project / repository
        found = [
            version
            for folder in _image_folders(top)
            for version in self._of_image(folder, folder.relative_to(top).as_posix())
        ]
        return tuple(sorted(found, key=lambda each: (each.package, each.digest)))

    def _of_image(self, folder: Path, package: str) -> Iterator[Version]:
        tags = _tags(folder / "_manifests" / "tags")
        for link in (folder / "_manifests" / "revisions" / "sha256").glob("*/link"):
            try:
                written = link.stat().st_mtime
            except FileNotFoundError:
                continue  # deleted since it was listed
            digest = f"sha256:{link.parent.name}"
            version = Version(
                package=package,
                digest=digest,
                uploaded=datetime.fromtimestamp(written, UTC),
                tags=tuple(sorted(tags.get(digest, ()))),
            )
            yield self._with_manifest(version)

    def _with_manifest(self, version: Version) -> Version:
        digest = version.digest.removeprefix("sha256:")
        try:
            manifest = json.loads(
                (self._blobs / "sha256" / digest[:2] / digest / "data").read_bytes()
            )
        except (OSError, ValueError):
            return version
        if not isinstance(manifest, dict):
            return version
        parts = [manifest.get("config") or {}, *(manifest.get("layers") or [])]
        return replace(
            version,
            media_type=manifest.get("mediaType", ""),
            size_bytes=sum(part.get("size", 0) for part in parts),
            children=tuple(child["digest"] for child in manifest.get("manifests") or []),
        )


class FirstSeen:
    """When each digest first came, kept in ``path``.

    Artifact Registry counts a version's age from its first upload; a docker-registry writes
    the link anew whenever the manifest is put again, under a further tag for instance.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times: dict[str, float] = _read_times(path)

    def settle(self, place: str, versions: Sequence[Version]) -> tuple[Version, ...]:
        """``versions`` of ``place`` with their first upload; what is gone is forgotten."""
        keys = {f"{place}/{each.package}@{each.digest}": each for each in versions}
        kept = {key: at for key, at in self._times.items() if not key.startswith(f"{place}/")}
        settled = []
        for key, version in keys.items():
            at = min(
                self._times.get(key, version.uploaded.timestamp()), version.uploaded.timestamp()
            )
            kept[key] = at
            settled.append(replace(version, uploaded=datetime.fromtimestamp(at, UTC)))
        if kept != self._times:
            self._times = kept
            write_atomically(self._path, json.dumps(kept, indent=1))
        return tuple(settled)


def _image_folders(top: Path) -> Iterator[Path]:
    for folder, subfolders, _ in os.walk(top):
        if "_manifests" in subfolders:
            yield Path(folder)
        subfolders[:] = [name for name in subfolders if not name.startswith("_")]


def _tags(folder: Path) -> Mapping[str, list[str]]:
    tags: dict[str, list[str]] = defaultdict(list)
    for link in folder.glob("*/current/link"):
        try:
            tags[link.read_text().strip()].append(link.parent.parent.name)
        except FileNotFoundError:
            continue  # untagged since it was listed
    return tags


def _read_times(path: Path) -> dict[str, float]:
    try:
        return {str(key): float(at) for key, at in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise RayfleetError(
            f"{path} is damaged",
            why=str(error),
            next_step=f"rm {path}, then start the sandbox again: invoke sandbox.up",
        ) from error

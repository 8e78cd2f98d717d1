"""The measured image and its next versions, in the engine; removed again at the end."""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import TracebackType

from publishing.contents import Layer, write_layer
from rayfleet.process import must_run

LABEL = "dev.rayfleet.bench"
ENGINE_SECONDS = 600.0
ORDER = ("system", "data", "packages", "sources")  # lowest first
CREATED = "2024-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One version of the image in the engine."""

    name: str
    diff_ids: tuple[str, ...]
    size: int

    @property
    def tags(self) -> tuple[str, str, str]:
        """What it is published as: the moving tag, the day, and the commit."""
        return "latest", "20240101", self.name.rpartition(":")[2]


class Images:
    """A line of versions: `first`, then `top` and `middle` of it; all are removed at the end.

    No content is like that of another run, so that nothing is in the engine's memory of what
    it pushed already.
    """

    def __init__(self, folder: Path, *, scale: float, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._scale = scale
        self._say = say
        self._token = secrets.token_hex(4)
        self._count = 0
        self._layers: dict[str, Layer] = {}

    def __enter__(self) -> Images:
        self._folder.mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        listed = subprocess.run(
            ["docker", "image", "ls", "-q", "--no-trunc", "--filter", f"label={self._label}"],
            capture_output=True,
            check=True,
            text=True,
            timeout=ENGINE_SECONDS,
        )
        ids = sorted(set(listed.stdout.split()))
        if ids:
            command = ["docker", "image", "rm", "--force", *ids]
            must_run(command, timeout=ENGINE_SECONDS, what="docker image rm")

    def first(self) -> Image:
        """A new image."""
        return self._make(ORDER)

    def top(self) -> Image:
        """The next version, of which only the uppermost layer is new."""
        return self._make(ORDER[-1:])

    def middle(self) -> Image:
        """The next version, of which the second layer is new and those above are rebuilt."""
        return self._make(ORDER[1:])

    @property
    def _label(self) -> str:
        return f"{LABEL}={self._token}"

    def _make(self, kinds: Sequence[str]) -> Image:
        self._count += 1
        for kind in kinds:
            self._layers[kind] = write_layer(
                self._folder / f"{kind}.tar",
                kind,
                seed=f"{self._token} {kind} {self._count}",
                scale=self._scale,
            )
        layers = [self._layers[kind] for kind in ORDER]
        name = f"rayfleet-bench-{self._token}:{secrets.token_hex(4)}"
        self._load(name, layers)
        image = Image(
            name=name,
            diff_ids=tuple(layer.diff_id for layer in layers),
            size=sum(layer.size for layer in layers),
        )
        sizes = " + ".join(f"{layer.size / 1e6:.1f}" for layer in layers)
        self._say(f"made {name}: {sizes} MB; new: {', '.join(kinds)}")
        return image

    def _load(self, name: str, layers: Sequence[Layer]) -> None:
        """Hand the engine an archive as `docker save` wrote it for ten years: all engines and
        stores read it."""
        archive = self._folder / "image.tar"
        config = self._config(layers)
        with tarfile.open(archive, "w") as tar:
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(tar, config_name, config)
            names = []
            for layer in layers:
                names.append(f"{layer.diff_id.partition(':')[2]}/layer.tar")
                tar.add(layer.path, names[-1])
            listing = [{"Config": config_name, "RepoTags": [name], "Layers": names}]
            _add(tar, "manifest.json", json.dumps(listing).encode())
        command = ["docker", "load", "--quiet", "--input", str(archive)]
        must_run(command, timeout=ENGINE_SECONDS, what="docker load")
        archive.unlink()

    def _config(self, layers: Sequence[Layer]) -> bytes:
        label, _, value = self._label.partition("=")
        config = {
            "architecture": "amd64",
            "os": "linux",
            "created": CREATED,
            "config": {"Cmd": ["/bin/true"], "Labels": {label: value}},
            "history": [{"created": CREATED, "created_by": f"COPY {kind}"} for kind in ORDER],
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        }
        return json.dumps(config).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, BytesIO(content))

"""A process that collects an image's layers, to be run beside others or killed.

Arguments: the cache's folder, the image, ``store`` or ``export``. Prints a JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from rayfleet.errors import RayfleetError
from rayfleet.fleet.model import Compression
from rayfleet.image.engine import ImageEngine
from rayfleet.image.layers.blobs import BlobCache
from rayfleet.image.layers.collect import Collected, LocalImage, collect

SECONDS = 120.0


class RemoteEngine(ImageEngine):
    """The engine as one that is not on this machine."""

    def store_root(self) -> Path | None:
        """It is not to be seen from here."""
        return None


@dataclass(frozen=True, kw_only=True)
class Found:
    """What such a process printed."""

    digests: list[str]
    compressed: int
    source: str


def collector(folder: Path, image: str, source: str) -> subprocess.Popen[str]:
    """Start one."""
    argv = [sys.executable, "-m", __name__, str(folder), image, source]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> Found:
    """Wait for one that must succeed."""
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    return Found(**json.loads(output))


def collect_now(
    image: LocalImage,
    engine: ImageEngine,
    folder: Path,
    compression: Compression = Compression.GZIP,
) -> Collected:
    """Collect ``image`` into the cache ``folder``."""
    with BlobCache(folder) as cache:
        return collect(image, engine, cache=cache, compression=compression, stop=threading.Event())


def main(folder: str, name: str, source: str) -> None:
    """Be one."""
    engine = RemoteEngine() if source == "export" else ImageEngine()
    try:
        collected = collect_now(engine.look_up(name), engine, Path(folder))
    except RayfleetError as error:
        sys.exit(error.text())
    digests = [blob.digest for blob in collected.blobs]
    print(  # noqa: T201
        json.dumps(
            {
                "digests": digests,
                "compressed": collected.compressed,
                "source": collected.source,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

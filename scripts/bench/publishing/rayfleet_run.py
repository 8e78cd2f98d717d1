"""Publish with rayfleet, and say how long it took and what was done.

A program of its own, given the file of a job: see `methods.py`.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from pathlib import Path

# What rayfleet imports when it needs it; the time of imports is reported beside that of the
# publish, with the whole process.
LAZY = (
    "docker",
    "filelock",
    "isal.igzip",
    "urllib3",
    "zstandard",
    "rich.console",
    "rich.progress",
    "rayfleet.image.publish.publisher",
)


def main() -> None:
    """Publish, and write the figures of the run."""
    job = json.loads(Path(sys.argv[1]).read_text())
    from rayfleet.console import Console
    from rayfleet.image.publish.standalone import publish_image

    for name in LAZY:
        importlib.import_module(name)
    imported = set(sys.modules)
    begin = time.perf_counter()
    publication = publish_image(
        job["image"],
        job["destinations"],
        job["tags"],
        state=Path(job["state"]),
        login=lambda host: None,
        console=Console(out=sys.stderr),
    )
    seconds = time.perf_counter() - begin
    publication.require(next_step="read what the regions answered")
    result = {
        "seconds": seconds,
        "phases": dict(publication.seconds),
        "source": publication.source,
        "digest": publication.digest,
        "compressed": publication.compressed,
        "sent": {each.region: each.sent for each in publication.regions},
        "peak_kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "imported_meanwhile": sorted(set(sys.modules) - imported),
    }
    Path(job["result"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()

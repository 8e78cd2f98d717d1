"""Publish with rayfleet, without a fleet and a pin, and say what was done.

A program of its own, given the file of a job: see `methods.py`.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path


def main() -> None:
    """Publish, and write the figures of the run."""
    job = json.loads(Path(sys.argv[1]).read_text())
    from rayfleet.console import Console
    from rayfleet.image.publish.standalone import publish_image

    publication = publish_image(
        job["image"],
        job["destinations"],
        job["tags"],
        state=Path(job["state"]),
        login=lambda host: None,
        console=Console(out=sys.stderr),
    )
    publication.require(next_step="read what the regions answered")
    result = {
        "phases": dict(publication.seconds),
        "source": publication.source,
        "digest": publication.digest,
        "compressed": publication.compressed,
        "sent": {each.region: each.sent for each in publication.regions},
        "peak_kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    Path(job["result"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()

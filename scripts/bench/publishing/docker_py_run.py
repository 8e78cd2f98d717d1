"""Publish with docker-py, one thread per registry.

A program of its own, given the file of a job: see `methods.py`.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from docker import DockerClient

API_SECONDS = 1200


def main() -> None:
    """Publish."""
    job = json.loads(Path(sys.argv[1]).read_text())
    client = DockerClient.from_env(timeout=API_SECONDS)
    with ThreadPoolExecutor(len(job["destinations"])) as pool:
        for done in [
            pool.submit(publish, client, job["image"], repository, job["tags"])
            for repository in job["destinations"].values()
        ]:
            done.result()
    client.close()


def publish(client: DockerClient, image: str, repository: str, tags: list[str]) -> None:
    """Tag and push, one tag after the other."""
    for tag in tags:
        client.api.tag(image, repository, tag)
    for tag in tags:
        pushed = False
        line: dict[str, Any]
        # docker-py does not raise when a push fails; the stream has to be read.
        for line in client.api.push(repository, tag=tag, stream=True, decode=True):
            if "error" in line:
                sys.exit(f"{repository}:{tag}: {line['error']}")
            pushed = pushed or "Digest" in (line.get("aux") or {})
        if not pushed:
            sys.exit(f"{repository}:{tag}: no digest came back")


if __name__ == "__main__":
    main()

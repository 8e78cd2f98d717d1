"""Do with rayfleet what `invoke tail-logs` and `invoke exec` do, for heads whose addresses are
given. A program of its own, given its job as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from rayfleet.cluster.head import HeadAddress
from rayfleet.cluster.heads import HEAD, Heads, Target

CONNECT_SECONDS = 60.0
REQUEST = {
    "since": None,
    "until": None,
    "include": [],
    "exclude": [],
    "level": None,
    "poll_seconds": 0.5,
    "chunk_bytes": 256 * 1024,
}


def main() -> None:
    """Tail, or run a command everywhere."""
    job = json.loads(sys.argv[1])
    {"tail": tail, "connect": connect}[job["mode"]](job)


def address(job: dict[str, Any], name: str) -> HeadAddress:
    """Where the head ``name`` is."""
    return HeadAddress(
        cluster=name,
        host=job["heads"][name],
        port=job["port"],
        user="root",
        private_key=Path(job["key"]),
        container="ray_docker",
        known_hosts=Path(job["known_hosts"]),
        alias=name,
    )


def targets_of(job: dict[str, Any]) -> list[Target]:
    """All heads."""
    return [Target(cluster=name, region="", node=HEAD, name=name) for name in job["heads"]]


class Given(Heads):
    """Heads whose addresses are known."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]  # no cloud is asked
        self._job = job

    def address(self, target: Target) -> HeadAddress:
        """Where ``target`` is."""
        return address(self._job, target.cluster)


def connect(job: dict[str, Any]) -> None:
    """Run the command on every head."""
    from rayfleet.cluster.execute import execute

    with Given(job) as heads:
        targets = targets_of(job)
        outcomes = execute(
            heads, targets, lambda _: job["command"], timeout=CONNECT_SECONDS, limit=len(targets)
        )
    for outcome in outcomes:
        if not outcome.ok:
            sys.exit(f"{outcome.target.name}: {outcome.ending}")
        sys.stdout.write(f"{outcome.target.name}: {outcome.stdout.decode()}")


def tail(job: dict[str, Any]) -> None:
    """Write the logs of every head."""
    from rayfleet.console import Console
    from rayfleet.log.follow import Follower
    from rayfleet.log.output.style import style_of
    from rayfleet.log.output.text import TextSink

    out = sys.stdout.buffer
    targets = targets_of(job)
    names = {(target.cluster, target.node): target.name for target in targets}
    heads = Given(job)
    follower = Follower(
        targets=targets,
        request={
            **REQUEST,
            "root": job["root"],
            "patterns": [{"glob": job["log"], "role": "autoscaler"}],
            "follow": job["follow"],
            "tail": job["tail"],
        },
        connect=heads.open,
        sink=TextSink(out, names, style_of(out, os.environ)),
        say=Console(out=sys.stderr).say,
    )
    with heads:
        follower.run()


if __name__ == "__main__":
    main()

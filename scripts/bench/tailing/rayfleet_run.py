"""Do with rayfleet what `invoke tail-logs` and `invoke exec` do, for heads whose addresses are
given. A program of its own, given its job as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rayfleet.cluster.head import HeadAddress, gather
from rayfleet.errors import RayfleetError

CONNECT_SECONDS = 60.0


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
        known_hosts=Path(job["known_hosts"]),
        alias=name,
    )


def connect(job: dict[str, Any]) -> None:
    """Run the command on every head."""
    results = gather(
        [address(job, name) for name in job["heads"]],
        lambda head: head.run(job["command"], timeout=CONNECT_SECONDS),
        limit=len(job["heads"]),
        timeout=CONNECT_SECONDS,
    )
    for name, result in results.items():
        if isinstance(result, RayfleetError):
            sys.exit(f"{name}: {result.text()}")
        sys.stdout.write(f"{name}: {result.stdout}")


def tail(job: dict[str, Any]) -> None:
    """Write the logs of every head."""
    raise NotImplementedError


if __name__ == "__main__":
    main()

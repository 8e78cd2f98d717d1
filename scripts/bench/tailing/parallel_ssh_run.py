"""Run a command on every host with parallel-ssh and print what comes, prefixed.

A program of its own for the Python that has parallel-ssh, given its job as JSON. The library
hands out lines. One greenlet per host prints them, so that no host waits for another one.
"""

from __future__ import annotations

import json
import sys

from gevent import joinall, spawn
from pssh.clients import ParallelSSHClient


def main() -> None:
    """Run it; the exit code is 1 when it failed somewhere."""
    job = json.loads(sys.argv[1])
    hosts = job["hosts"]
    client = ParallelSSHClient(
        hosts, user="root", pkey=job["key"], port=job["port"], pool_size=len(hosts)
    )
    outputs = client.run_command(job["command"])
    out = sys.stdout

    def show(output: object) -> None:
        for line in output.stdout:
            out.write(f"{output.host}: {line}\n")

    joinall([spawn(show, output) for output in outputs], raise_error=True)
    client.join(outputs)
    out.flush()
    sys.exit(any(output.exit_code for output in outputs))


if __name__ == "__main__":
    main()

"""A staged restart against Ray's own launcher, and many clusters against one after the other.

    .venv/bin/python scripts/bench/rollout.py [--json] [--rounds 3] [--only real|simulated]

One cluster of a sandbox is restarted by hand with `ray down -y && ray up -y`, and its twin with
`invoke restart`, in turns. Both have three running jobs and two that wait. By hand they are lost,
and nobody waits for a worker; with rayfleet the workers have joined and every job runs again when
the command returns; waves do not bake. Then three clusters in three regions are restarted at
once, one after the other, and by hand in three shells side by side. After every restart of ours
each job is looked for, and each of its starts is counted.

A fleet of 1,000 clusters is planned, and driven on the fakes that rayfleet ships, by a process
that is killed in the middle and by another one that goes on.

It makes a sandbox of its own and takes it down: a Docker engine (as root it is installed), 4 GB,
twelve minutes of a quiet machine. Other work makes the times of both sides longer; the column
`others`, processors that were busy before a measurement, should be near 0.3, which the idle
clusters take. Exit code 1: a bar was missed, or a job was lost or doubled. With --json the last
line is one JSON object: {"ratios": {...}, "bars": {...}, "figures": {...}}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from rolling.report import Report
from rolling.rounds import Rounds
from rolling.sandbox import Sandbox
from rolling.thousand import simulate
from terminal import end_cleanly, say

from rayfleet.errors import RayfleetError

REAL, SIMULATED = "real", "simulated"


def main() -> None:
    """Measure, print the table, and JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rounds", type=int, default=3, help="of one cluster (default: 3)")
    parser.add_argument("--only", choices=(REAL, SIMULATED), help="one of the two fleets")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds is 1 at least")
    end_cleanly()
    try:
        with tempfile.TemporaryDirectory(prefix="rfbench-", dir="/tmp") as scratch:
            found = measured(Path(scratch), options)
    except RayfleetError as error:
        sys.exit(str(error))
    print(*found.lines(), sep="\n")
    for line in found.missed:
        print(f"missed: {line}")
    if options.json:
        print(json.dumps(found.as_json()))
    sys.exit(1 if found.missed else 0)


def measured(scratch: Path, options: argparse.Namespace) -> Report:
    """All that was asked for."""
    say(f"load {os.getloadavg()[0]:.1f}")
    thousand = simulate(scratch / "thousand", say) if options.only != REAL else {}
    sandbox = Sandbox(folder=scratch / "sandbox")
    rounds = Rounds(sandbox=sandbox, say=say)
    if options.only != SIMULATED:
        try:
            say("starting a sandbox with three clusters")
            sandbox.up()
            rounds.measure(options.rounds, max(1, options.rounds - 1))
        finally:
            sandbox.down()
    return Report(runs=rounds.runs, thousand=thousand, faults=rounds.faults)


if __name__ == "__main__":
    main()

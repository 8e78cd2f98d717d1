"""The logs of a fleet on one terminal: rayfleet against the tools that operators use.

    .venv/bin/python scripts/bench/logs.py [--json] [--rounds 3] [--only SECTION] [--quick]

Sections, all against OpenSSH servers on loopback, one per head:

  throughput  8 heads, 100,000 lines of 120 bytes each, prefixed, to a file in memory: rayfleet,
              pssh, pdsh, clush, parallel-ssh, and a loop of `ssh ... tail | sed`. Every line of
              the output is looked for in the logs, and every line of the logs in the output.
  memory      what ours holds after 1 and after 10 million lines
  latency     10 heads that write 50 lines a second each: from the write to our stdout
  connect     one command on 40 heads, cold, host keys checked (parallel-ssh cannot): rayfleet,
              pssh, pdsh, clush, pyinfra, parallel-ssh

Times are of whole processes, from the start of Python on, and bars are for the tasks: the rows
`invoke`, which read the fleet and ask a cloud for the addresses. In the rows beside them rayfleet
is given the addresses, as the other tools are. All use the same cipher. It installs what it
compares with (pssh, pdsh, clustershell by apt-get; parallel-ssh and pyinfra into a scratch folder),
needs root and seven minutes. Heads and clients share the processors, so other work makes all times
longer: the column `others`, processors that were busy before a measurement, should be near 0.
Exit code 1: a bar was missed. With --json the last line is
one JSON object: {"ratios": {...}, "bars": {...}, "floors": {...}, "figures": {...}}.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tailing.connecting import measure_connecting
from tailing.fleet import make_operator
from tailing.following import measure_latency, measure_memory
from tailing.heads import heads_running
from tailing.machine import prepare
from tailing.methods import CONNECTING, FOLLOWING, WHOLE_LOG, Bench, Method
from tailing.report import Report
from tailing.throughput import measure_throughput
from terminal import end_cleanly, say

from rayfleet.errors import RayfleetError

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ("throughput", "memory", "latency", "connect")
MEMORY = Path("/dev/shm")  # noqa: S108 (where disks do not count)
SCRATCH_BYTES = 1_000_000_000
TAILED, FOLLOWED, CONNECTED = 8, 10, 40
LINES, MANY_LINES = 100_000, 10_000_000
LINES_PER_SECOND, FOLLOW_SECONDS = 50, 20.0
QUICK = 20  # how much less --quick does


def main() -> None:
    """Measure, print the table, and JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rounds", type=int, default=3, help="of what is quick (default: 3)")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="a section; repeat it")
    parser.add_argument("--method", action="append", help="only this one; repeat it")
    parser.add_argument(
        "--quick", action="store_true", help="few lines, to try the script; no bar is held"
    )
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds is 1 at least")
    end_cleanly()
    try:
        with tempfile.TemporaryDirectory(prefix="rfbench-", dir=scratch_folder()) as scratch:
            found = measured(Path(scratch), options)
    except RayfleetError as error:
        sys.exit(str(error))
    judged = not options.quick
    print(*found.table(), sep="\n")
    for line in found.missed:
        print(f"missed: {line}" if judged else f"not judged (--quick): {line}")
    if options.json:
        print(json.dumps(found.as_json()))
    sys.exit(1 if found.missed and judged else 0)


def scratch_folder() -> Path | None:
    """In memory if there is room, else where temporary files are."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > SCRATCH_BYTES
    return MEMORY if roomy else None


def measured(scratch: Path, options: argparse.Namespace) -> Report:
    """The sections that were asked for."""
    peers = prepare(scratch, say)
    compileall.compile_dir(ROOT / "rayfleet", quiet=1)  # Invoke writes no bytecode
    say(f"{peers.versions}; load {os.getloadavg()[0]:.1f}")
    less = QUICK if options.quick else 1
    found = Report(heads=TAILED, lines=LINES // less)
    sections = options.only or SECTIONS
    if "throughput" in sections or "memory" in sections:
        with heads_running(scratch / "tailed", TAILED) as heads:
            bench = Bench(heads=heads, peers=peers, operator=make_operator(heads))
            if "throughput" in sections:
                found.throughput = measure_throughput(
                    bench,
                    lines=found.lines,
                    rounds=options.rounds,
                    scratch=scratch,
                    say=say,
                    methods=chosen(WHOLE_LOG, options),
                )
            if "memory" in sections:
                found.memory = measure_memory(
                    bench, lines=MANY_LINES // less, scratch=scratch, say=say
                )
    if "latency" in sections:
        with heads_running(scratch / "followed", FOLLOWED) as heads:
            bench = Bench(heads=heads, peers=peers, operator=make_operator(heads))
            found.latency = measure_latency(
                bench,
                seconds=FOLLOW_SECONDS / min(less, 10),
                per_second=LINES_PER_SECOND,
                scratch=scratch,
                say=say,
                methods=chosen(FOLLOWING, options),
            )
    if "connect" in sections:
        with heads_running(scratch / "connected", CONNECTED) as heads:
            found.connecting = measure_connecting(
                Bench(heads=heads, peers=peers, operator=make_operator(heads)),
                rounds=options.rounds,
                scratch=scratch,
                say=say,
                methods=chosen(CONNECTING, options),
            )
    return found


def chosen(methods: tuple[Method, ...], options: argparse.Namespace) -> tuple[Method, ...]:
    """The methods that were asked for, all by default."""
    return tuple(one for one in methods if not options.method or one.key in options.method)


if __name__ == "__main__":
    main()

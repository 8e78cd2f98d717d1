"""A hundred jobs over the loss of a head: rayfleet's job vault against Ray's own CLI and SDK.

    .venv/bin/python scripts/bench/jobs.py [--json] [--jobs 100]

A real Ray head has the jobs: four run, all others wait for a slice, each with a working
directory, variables, metadata and needs of its own. Its jobs are saved with `invoke
jobs.backup`, with `ray list jobs --detail`, and with the list of Ray's SDK, the latter two with a
copy of the directories that the head has unpacked. Then the head is lost; a new one gets the jobs
from `invoke jobs.restore`, another from `ray job submit --no-wait` per job, a third from one
process with one client of the SDK and threads. Times are of whole commands. At the end every field
that a job was given is compared with what Ray's own store has, and every start of every job was
counted.

The peers are told the resources by hand, which their lists do not have: without them all jobs
would start on the head at once. They do not count as brought back.

Other work on the machine flatters rayfleet, whose restore paces itself by the clock: the column
`others`, processors that were busy before a measurement, should be near 0.

It needs root (a head is a namespace of its own) and six minutes of a quiet machine. Exit code
1: a bar was missed, or rayfleet lost something. With --json the last line is one JSON object:
{"ratios": {...}, "bars": {...}, "fields": {...}, "jobs": {...}, "figures": {...}}.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from preserving.fleet import make_operator
from preserving.machine import Machine, environment, require_machine
from preserving.methods import RAY, Method, RayCli, Rayfleet, RaySdk
from preserving.report import Report, Trial
from preserving.workload import RUNNING, Workload, make_workload
from terminal import end_cleanly, say

from rayfleet.errors import RayfleetError

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Measure, print the table, and JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--jobs", type=int, default=100, help="how many (default: 100)")
    options = parser.parse_args()
    if options.jobs < RUNNING:
        parser.error(f"--jobs is {RUNNING} at least")
    require_machine()
    end_cleanly()
    try:
        # Short on purpose: the path of a socket has at most 107 characters.
        with tempfile.TemporaryDirectory(prefix="rfbench-", dir="/tmp") as scratch:
            found = measured(Path(scratch), options.jobs)
    except RayfleetError as error:
        sys.exit(str(error))
    print(*found.lines(), sep="\n")
    for line in found.missed:
        print(f"missed: {line}")
    if options.json:
        print(json.dumps(found.as_json()))
    sys.exit(1 if found.missed else 0)


def measured(scratch: Path, count: int) -> Report:
    """All methods on heads with the same jobs."""
    machine = Machine(folder=scratch / "head")
    operator = make_operator(scratch / "operator", machine)
    workload = make_workload(scratch, count)
    methods: tuple[Method, ...] = (
        Rayfleet(operator=operator),
        RayCli(machine=machine, folder=scratch / "copies"),
        RaySdk(machine=machine, folder=scratch / "copies-sdk"),
    )
    trials = [Trial(key=one.key, title=one.title, invented=one.invented) for one in methods]
    warm(operator.environment)
    try:
        say(f"load {os.getloadavg()[0]:.1f}; a head with {count} jobs")
        machine.start()
        machine.ask("submit", str(workload.write(scratch / "jobs.json")))
        machine.ask("running", *workload.running)
        before = machine.ask("facts")
        for method, trial in zip(methods, trials, strict=True):
            trial.told["backup"] = method.backup(trial.backup)
            say(f"{method.key}: saved in {trial.backup.seconds:.1f} s")
        workload.started()
        for method, trial in zip(methods, trials, strict=True):
            machine.lose()
            workload.started()
            machine.start()
            give_back(machine, workload, method, trial)
    finally:
        machine.lose()
    ours, *peers = trials
    return Report(before=before, running=workload.running, ours=ours, peers=tuple(peers))


def give_back(machine: Machine, workload: Workload, method: Method, trial: Trial) -> None:
    """Restore onto the head that is there now, and look at what it has then."""
    trial.told["restore"] = method.restore(trial.restore)
    say(f"{method.key}: given back in {trial.restore.seconds:.1f} s")
    machine.ask("running", *workload.running)
    trial.after = machine.ask("facts")
    trial.starts = workload.started()


def warm(env: dict[str, str]) -> None:
    """Compile ours (Invoke writes no bytecode), and have both programs in the page cache."""
    compileall.compile_dir(ROOT / "rayfleet", quiet=1)
    commands = ([RAY, "job", "submit", "--help"], [f"{Path(RAY).with_name('invoke')}", "--list"])
    for command, its in zip(commands, (environment(), env), strict=True):
        subprocess.run(command, cwd=ROOT, env=its, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()

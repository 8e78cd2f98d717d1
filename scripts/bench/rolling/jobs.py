"""The jobs of a measured cluster: some run, some wait, and each start leaves a line.

They are submitted and read from inside the head's container, with nothing of rayfleet.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rolling.sandbox import Sandbox

PYTHON = "/opt/ray/bin/python"
RUNNING, WAITING = 3, 2
SECONDS = 240.0

# With "submit" it brings a package and the jobs; with "look" only waits until they are as they
# should be, and tells how often each was started.
INSIDE = """
import io, json, os, sys, time, urllib.request, zipfile

verb, running, waiting, runs = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4]
HOME = "http://127.0.0.1:8265"
with open("/home/ray/.ray/auth_token") as kept:
    TOKEN = kept.read().strip()


def send(method, path, body, kind):
    headers = {"Content-Type": kind, "Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(HOME + path, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def submit(name, **needs):
    entrypoint = f"python run.py {name} {runs}"
    env = {"working_dir": "gcs://_ray_pkg_bench.zip", "env_vars": {"RUN_NAME": name}}
    job = {"submission_id": name, "entrypoint": entrypoint, "runtime_env": env,
           "metadata": {"owner": "bench"}, **needs}
    send("POST", "/api/jobs/", json.dumps(job).encode(), "application/json")


def states():
    jobs = json.loads(send("GET", "/api/jobs/", None, "application/json"))
    return {job["submission_id"]: job["status"] for job in jobs if job["submission_id"]}


if verb == "submit":
    os.makedirs(os.path.dirname(runs), exist_ok=True)
    open(runs, "w").close()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("run.py", '''
import sys, time
with open(sys.argv[2], "a") as runs:
    runs.write(sys.argv[1] + "\\\\n")
time.sleep(1e6)
''')
        zipped.writestr("weights.bin", os.urandom(1_000_000))
    send("PUT", "/api/packages/gcs/_ray_pkg_bench.zip", packed.getvalue(),
         "application/octet-stream")
    for number in range(running):
        submit(f"running-{number}")
    for number in range(waiting):
        submit(f"waiting-{number}", entrypoint_num_cpus=64)

wanted = {f"running-{n}": "RUNNING" for n in range(running)}
wanted |= {f"waiting-{n}": "PENDING" for n in range(waiting)}
deadline = time.monotonic() + 200
while (seen := states()) != wanted and verb == "submit" and time.monotonic() < deadline:
    time.sleep(0.5)
with open(runs) as lines:
    print(json.dumps({"seen": seen, "wanted": wanted, "lines": lines.read().split()}))
"""


@dataclass(kw_only=True)
class Jobs:
    """The jobs of one cluster. ``lives`` counts how often each should have started by now."""

    sandbox: Sandbox
    cluster: str
    lives: int = 0

    def submit(self) -> None:
        """Submit them to a head that has none, and wait until they run."""
        self._ask("submit")
        self.lives = 1

    def faults(self) -> list[str]:
        """What is not as it must be after one more restart: jobs lost, and jobs doubled."""
        self.lives += 1
        told = self._ask("look")
        wanted, seen = told["wanted"], told["seen"]
        starts = Counter(told["lines"])
        found = [
            f"{self.cluster}: {name} is {seen.get(name, 'lost')}, not {state}"
            for name, state in wanted.items()
            if seen.get(name) != state
        ]
        for name, state in wanted.items():
            times = self.lives if state == "RUNNING" else 0
            if starts[name] != times:
                found.append(f"{self.cluster}: {name} started {starts[name]} times, not {times}")
        return found

    def _ask(self, verb: str) -> Mapping[str, Any]:
        runs = f"/bucket/bench/{self.cluster}"
        done = subprocess.run(
            [
                *("docker", "exec", "-i", "-u", "ray", self.sandbox.head(self.cluster)),
                *(PYTHON, "-", verb, str(RUNNING), str(WAITING), runs),
            ],
            input=INSIDE,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        told: dict[str, Any] = json.loads(done.stdout)
        return told

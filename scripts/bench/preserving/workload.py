"""The jobs that a cluster has when its head is lost: a few run, all others wait for slices."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUNNING = 4
"""How many jobs run, each with a working directory of its own that others have too: more would
drown a small machine, because each start costs Ray more than a second of one core."""

MODULES = 40  # files of a working directory
PROGRAM = """\
import sys, time
from pathlib import Path

with Path(sys.argv[2]).open("a") as runs:
    runs.write(sys.argv[1] + "\\n")
time.sleep(1e6)
"""
NEEDS: dict[str, Any] = {
    "entrypoint_num_cpus": 0.5,
    "entrypoint_num_gpus": 1,
    "entrypoint_memory": 64 * 1024**2,
    "entrypoint_resources": {"tpu_slice": 1},
    "entrypoint_label_selector": {"pool": "train"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``jobs`` are arguments of Ray's submit_job; every start of one appends a line to ``runs``."""

    jobs: tuple[dict[str, Any], ...]
    runs: Path

    @property
    def running(self) -> tuple[str, ...]:
        """The ids of the jobs that find all they need."""
        return tuple(job["submission_id"] for job in self.jobs[:RUNNING])

    def write(self, path: Path) -> Path:
        """The jobs as a file for inside.py."""
        path.write_text(json.dumps(self.jobs))
        return path

    def started(self) -> Counter[str]:
        """How often each job was started since the last time; the count begins anew."""
        text = self.runs.read_text() if self.runs.exists() else ""
        self.runs.unlink(missing_ok=True)
        return Counter(text.split())


def make_workload(folder: Path, count: int) -> Workload:
    """``count`` jobs with all that a job can have, and their working directories in ``folder``."""
    runs = folder / "runs"
    folders = [_working_dir(folder / f"project-{number}", number) for number in range(RUNNING)]
    jobs = tuple(_job(number, folders, runs) for number in range(count))
    return Workload(jobs=jobs, runs=runs)


def _job(number: int, folders: Sequence[Path], runs: Path) -> dict[str, Any]:
    name = f"train-{number:03}"
    command = f"python run.py {name} {runs}"
    return {
        "submission_id": name,
        "entrypoint": f"echo $RUN_NAME && {command}" if number % 4 == 1 else command,
        "metadata": {"owner": f"user{number % 7}", "commit": secrets.token_hex(20)},
        "runtime_env": {
            "working_dir": str(folders[number % RUNNING]),
            "env_vars": {"RUN_NAME": name, "WANDB_API_KEY": secrets.token_hex(20)},
        },
        **(NEEDS if number >= RUNNING else {}),
    }


def _working_dir(folder: Path, number: int) -> Path:
    package = folder / "project"
    package.mkdir(parents=True)
    (folder / "run.py").write_text(PROGRAM)
    for module in range(MODULES):
        text = f"# project {number}, module {module}\n" + secrets.token_hex(2000)
        (package / f"module_{module}.py").write_text(text)
    return folder

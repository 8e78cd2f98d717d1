"""The ways to keep the jobs of a cluster over the loss of its head."""

from __future__ import annotations

import json
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from publishing.processes import busy_seconds

from preserving.fleet import CLUSTER, Operator
from preserving.machine import DASHBOARD, Machine, environment
from preserving.workload import NEEDS

RAY = str(Path(sys.executable).with_name("ray"))
COMMAND_SECONDS = 900.0
QUIET_SECONDS = 1.0
PACKAGES = "session_latest/runtime_resources/working_dir_files"
# The fields that Ray's lists do not have, and that the peers are told.
INVENTED = frozenset(name.removeprefix("entrypoint_") for name in NEEDS)
SDK_PROGRAM = Path(__file__).with_name("sdk_run.py")
SDK_THREADS = 8


@dataclass(kw_only=True)
class Stopwatch:
    """Wall and processor seconds of the operator's side, the children included.

    ``others`` is how many processors were busy in the second before, when nothing was asked of
    the head.
    """

    seconds: float = 0.0
    cpu: float = 0.0
    others: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure what the block does."""
        busy = busy_seconds()
        time.sleep(QUIET_SECONDS)
        self.others = (busy_seconds() - busy) / QUIET_SECONDS
        cpu, began = _cpu(), time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began
            self.cpu += _cpu() - cpu


class Method(Protocol):
    """One way: ``invented`` are the fields that it cannot know and was told nevertheless."""

    key: str
    title: str
    invented: frozenset[str]

    def backup(self, watch: Stopwatch) -> Mapping[str, Any]:
        """Save the jobs of the head; what to report besides the time."""

    def restore(self, watch: Stopwatch) -> Mapping[str, Any]:
        """Give them to the head that is there now."""


@dataclass(kw_only=True)
class RayCli:
    """List with details, copy the working directories from the head, submit one by one.

    The list has no resources. Without them every job would start on the head at once and drown
    it, and the times would be of that; so they are given to the submits by hand, and do not
    count as brought back.
    """

    machine: Machine
    folder: Path
    key: str = "ray_cli"
    title: str = "ray list jobs, ray job submit"
    invented: frozenset[str] = INVENTED
    _jobs: list[dict[str, Any]] = field(default_factory=list)

    def backup(self, watch: Stopwatch) -> Mapping[str, Any]:
        """One listing, and a copy of what the head has unpacked."""
        listing = [RAY, "list", "jobs", "--detail", "--format", "json", "--limit", "10000"]
        with watch.running():
            jobs = json.loads(self._ray([*listing, "--address", DASHBOARD]).strip())
            shutil.copytree(self.machine.ray / PACKAGES, self.folder)
        self._jobs = sorted(
            (job for job in jobs if job["status"] in ("PENDING", "RUNNING")),
            key=lambda job: int(job["start_time"]),
        )
        return {"listed": len(self._jobs)}

    def restore(self, watch: Stopwatch) -> Mapping[str, Any]:
        """The loop."""
        refused = 0
        with watch.running():
            for job in self._jobs:
                try:
                    self._ray(self._submit(job))
                except subprocess.CalledProcessError as error:
                    refused += 1
                    print(error.stderr[-500:], file=sys.stderr)
        return {"refused": refused}

    def _submit(self, job: Mapping[str, Any]) -> list[str]:
        env = dict(job["runtime_env"])
        package = Path(env.pop("working_dir").removeprefix("gcs://")).stem
        words = shlex.split(job["entrypoint"])
        # The command quotes each word that it is given, so that a line for a shell must be one.
        plain = shlex.join(words) == job["entrypoint"]
        needs = NEEDS if job["status"] == "PENDING" else {}
        return [
            *(RAY, "job", "submit", "--no-wait", "--address", DASHBOARD),
            *("--submission-id", job["submission_id"]),
            *("--metadata-json", json.dumps(job["metadata"])),
            *("--runtime-env-json", json.dumps(env)),
            *("--working-dir", str(self.folder / package)),
            *(word for name, value in needs.items() for word in _option(name, value)),
            *("--", *(words if plain else ["sh", "-c", job["entrypoint"]])),
        ]

    def _ray(self, command: Sequence[str]) -> str:
        return _beside(self.machine, command)


@dataclass(kw_only=True)
class RaySdk:
    """One ``JobSubmissionClient`` in one process with threads: the strongest peer there is.

    As the loop it is told the resources, which count for nothing; see `sdk_run.py`.
    """

    machine: Machine
    folder: Path
    key: str = "ray_sdk"
    title: str = f"Ray's SDK, one process, {SDK_THREADS} threads"
    invented: frozenset[str] = INVENTED

    def backup(self, watch: Stopwatch) -> Mapping[str, Any]:
        """The list as the SDK has it, and a copy of what the head has unpacked."""
        with watch.running():
            return self._run("backup", str(self.machine.ray / PACKAGES))

    def restore(self, watch: Stopwatch) -> Mapping[str, Any]:
        """All jobs by threads."""
        with watch.running():
            return self._run("restore", json.dumps(NEEDS), str(SDK_THREADS))

    def _run(self, verb: str, *words: str) -> Mapping[str, Any]:
        command = [sys.executable, str(SDK_PROGRAM), verb, str(self.folder), *words]
        told: dict[str, Any] = json.loads(_beside(self.machine, command).splitlines()[-1])
        return told


@dataclass(kw_only=True)
class Rayfleet:
    """``invoke jobs.backup`` and ``invoke jobs.restore``, from the start of Python to its end."""

    operator: Operator
    key: str = "rayfleet"
    title: str = "invoke jobs.backup, jobs.restore"
    invented: frozenset[str] = frozenset()

    def backup(self, watch: Stopwatch) -> Mapping[str, Any]:
        """One command."""
        with watch.running():
            told, phases = self._invoke("jobs.backup")
        return {"complete": told["complete"], "phases": phases}

    def restore(self, watch: Stopwatch) -> Mapping[str, Any]:
        """One command."""
        with watch.running():
            told, phases = self._invoke("jobs.restore")
        outcomes = [job["outcome"] for job in told["jobs"]]
        return {"outcomes": {each: outcomes.count(each) for each in outcomes}, "phases": phases}

    def _invoke(self, task: str) -> tuple[Any, dict[str, float]]:
        """What the task printed, and when the lines of its narration came."""
        command = [*self.operator.invoke, task, "--cluster", CLUSTER, "--json"]
        with tempfile.TemporaryFile("w+") as out:
            began = time.perf_counter()
            process = subprocess.Popen(
                command,
                cwd=Path(__file__).resolve().parents[3],
                env=self.operator.environment,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stderr is not None
            limit = threading.Timer(COMMAND_SECONDS, process.kill)
            limit.start()
            try:
                said = [(time.perf_counter() - began, line.strip()) for line in process.stderr]
                code = process.wait()
                seconds = time.perf_counter() - began
            finally:
                limit.cancel()
                process.kill()
                process.wait()
                process.stderr.close()
            if code != 0:
                lines = "\n".join(line for _, line in said[-20:])
                sys.exit(f"invoke {task} ended with {code}:\n{lines}")
            out.seek(0)
            return json.load(out), _phases(said, seconds)


PHASES: Mapping[str, Callable[[str], bool]] = {
    # What ends with the last line of its kind.
    "first look": lambda line: "not ended" in line,
    "packages saved": lambda line: ": saved gcs://" in line,
    "written": lambda line: line.endswith(": written"),
    "verified": lambda line: line.endswith(": verified"),
    "packages put": lambda line: ": package gcs://" in line,
    "packages proved": lambda line: line.endswith(": packages proved"),
    "submitted": lambda line: ": restored " in line,
}


def _phases(said: Sequence[tuple[float, str]], end: float) -> dict[str, float]:
    """Seconds from the end of one phase to that of the next."""
    found, before = {}, 0.0
    for name, ends in PHASES.items():
        at = max((at for at, line in said if ends(line)), default=None)
        if at is not None:
            found[name] = round(at - before, 3)
            before = at
    return {**found, "the rest": round(end - before, 3)}


def _beside(machine: Machine, command: Sequence[str]) -> str:
    """The output of a program that finds the head at 127.0.0.1."""
    done = subprocess.run(
        [*machine.door, *command],
        env=environment() | {"RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=True,
    )
    return done.stdout


def _option(name: str, value: object) -> tuple[str, str]:
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    return f"--{name.replace('_', '-')}", text


def _cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )

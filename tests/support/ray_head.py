"""A real Ray head on this machine, as child processes, for tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from rayfleet.job.client import JobClient
from rayfleet.waiting import wait_until

START_SECONDS = 180.0
STARTS = 4
STOP_SECONDS = 60.0
# A small object store: nothing here moves objects, and shared memory may be scarce.
STORE_BYTES = 80 * 1024**2


@dataclass(kw_only=True)
class LocalRayHead:
    """A head with one CPU, in a session of its own; never ended by name, as ``ray stop`` would.

    ``port`` is the dashboard's. ``token`` turns Ray's token authentication on. ``settings`` are
    more of its environment. It can be started again after ``kill``, at the same ports.
    """

    token: str = ""
    port: int = 0
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="rf", dir="/tmp")))
    settings: dict[str, str] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict, repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __enter__(self) -> LocalRayHead:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start Ray and wait until its dashboard answers."""
        self._ports = self._ports or _free_ports()
        self.port = self._ports["dashboard-port"]
        for left in range(STARTS - 1, -1, -1):
            if self._started(last=not left):
                return
            self.kill()

    def _started(self, *, last: bool) -> bool:
        """Start it once; False if it gave up, as Ray does after 30 s on a busy machine."""
        log = self.folder / "head.log"
        with log.open("ab") as output:
            begun = log.stat().st_size
            self._process = subprocess.Popen(
                [
                    *(self._python(), "-m", "ray.scripts.scripts"),
                    *("start", "--head", "--block", "--disable-usage-stats"),
                    *("--num-cpus", "1", "--object-store-memory", str(STORE_BYTES)),
                    # Short, because the path of a Unix socket has at most 107 characters.
                    *("--temp-dir", str(self.folder), "--node-ip-address", "127.0.0.1"),
                    *("--dashboard-host", "127.0.0.1"),
                    *(
                        word
                        for name, port in self._ports.items()
                        for word in (f"--{name}", str(port))
                    ),
                ],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = self._process

        def outcome() -> str:
            if process.poll() is not None and not last:
                return "gave up"
            # The dashboard answers before the node is there.
            said = log.read_bytes()[begun:]
            return "up" if b"Ray runtime started" in said and self._answers() else ""

        found = wait_until(
            outcome,
            what="the Ray dashboard",
            timeout=START_SECONDS,
            interval=0.2,
            reason=lambda: log.read_text(errors="replace")[-2000:],
        )
        return found == "up"

    def http(self) -> urllib3.HTTPConnectionPool:
        """An HTTP client for the dashboard."""
        return urllib3.HTTPConnectionPool("127.0.0.1", self.port)

    def jobs(self) -> JobClient:
        """A client of the jobs."""
        return JobClient(self.http(), cluster="local", token=self.token or None)

    def kill(self) -> None:
        """End every process of the head, as the loss of its machine does."""
        if self._process is not None:
            for pid in _sessions_below(self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(timeout=STOP_SECONDS)
            self._process = None

    def pids(self, part: str) -> tuple[int, ...]:
        """The processes of this head whose command line has ``part``."""
        found = []
        for pid in _sessions_below(self._process.pid) if self._process else ():
            with suppress(OSError):
                if part.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return tuple(found)

    def stop(self) -> None:
        """End every process of the head and remove its files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            answer = self.http().request(
                "GET", "/api/version", headers=headers, timeout=2.0, retries=False
            )
            return answer.status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _python(self) -> str:
        # Ray splits the command of its workers at blanks, so that a checkout in a folder with a
        # blank in its name could start none.
        venv = self.folder / "venv"
        if not venv.is_symlink():
            venv.symlink_to(sys.prefix)
        return str(venv / "bin" / "python")

    def _environment(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        env["PATH"] = f"{Path(sys.executable).parent}:{env.get('PATH', os.defpath)}"
        env |= self.settings
        if not self.token:
            return env | {"RAY_AUTH_MODE": "disabled"}
        return env | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}


def _free_ports() -> dict[str, int]:
    names = (
        "port",
        "dashboard-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "ray-client-server-port",
        "metrics-export-port",
        "runtime-env-agent-port",
    )
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in names]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in zip(names, sockets, strict=True)}


def _sessions_below(leader: int) -> list[int]:
    """The processes of the leader's session, and of every session that it leads to.

    The entrypoint of each job has a session of its own, and workers have groups of their own.
    """
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            # "pid (name) state ppid pgrp session ...", and a name may hold anything.
            values = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)], sessions[int(entry.name)] = int(values[1]), int(values[3])
    ours = {leader}
    while True:
        found = ours | {pid for pid in parents if parents[pid] in ours or sessions[pid] in ours}
        if found == ours:
            return sorted(found)
        ours = found

"""The head: a real Ray in a PID and network namespace of its own, which is a machine to it.

Losing it is one signal, ports are Ray's own defaults, and no other Ray of this machine is near.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfleet.waiting import wait_until

INSIDE = Path(__file__).with_name("inside.py")
DASHBOARD = "http://127.0.0.1:8265"
PROGRAMS = ("setpriv", "unshare", "nsenter", "ip", "ssh-keygen", "sshd")
START_SECONDS = 90.0
ASK_SECONDS = 180.0
STOP_SECONDS = 20.0
# Nothing here moves objects, and shared memory may be scarce.
STORE_BYTES = 80 * 1024**2


def require_machine() -> None:
    """Look whether this machine can have heads.

    Raises:
        SystemExit: it cannot; the message says what to do.
    """
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.geteuid() != 0:
        sys.exit("a head needs namespaces of its own\n  next: run it as root")
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        sys.exit(
            f"not installed: {', '.join(lacking)}\n"
            "  next: apt-get install -y util-linux iproute2 openssh-server openssh-client"
        )


@dataclass(kw_only=True)
class Machine:
    """One head at a time; ``folder`` has what a head writes, and the file with its process id."""

    folder: Path
    _leader: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid_file(self) -> Path:
        """Names the first process of the head, seen from here."""
        return self.folder / "pid"

    @property
    def ray(self) -> Path:
        """Ray's temporary folder."""
        return self.folder / "ray"

    @property
    def door(self) -> list[str]:
        """What comes before a command that shall find the head at 127.0.0.1, as over a tunnel."""
        return ["nsenter", "--target", self.pid_file.read_text(), "--net", "--"]

    def start(self) -> None:
        """Start a head that has nothing, and wait until it takes jobs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ray = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--disable-usage-stats", "--num-cpus", "2", "--temp-dir", str(self.ray)),
            *("--object-store-memory", str(STORE_BYTES)),
            *("--node-ip-address", "127.0.0.1", "--dashboard-host", "127.0.0.1"),
        ]
        with (self.folder / "head.log").open("wb") as log:
            self._leader = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", "--"),
                    *("unshare", "--pid", "--net", "--mount-proc", "--fork", "--kill-child", "--"),
                    *("sh", "-c", 'ip link set lo up && exec "$@"', "head", *ray),
                ],
                env=environment() | {"RAY_AUTH_MODE": "disabled"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid_file.write_text(str(wait_until(self._first, what="the head", timeout=10.0)))
        self.ask("ready")

    def lose(self) -> None:
        """End every process of the head at once, and forget what was on its disk."""
        if self._leader is None:
            return
        # It ignores SIGTERM; the first process in the namespace dies with it, and all with that.
        with suppress(ProcessLookupError):
            os.kill(self._leader.pid, signal.SIGKILL)
        self._leader.wait(timeout=STOP_SECONDS)
        inside = Path("/proc", self.pid_file.read_text())
        wait_until(lambda: not inside.exists(), what="the end of the head", timeout=STOP_SECONDS)
        self._leader = None
        shutil.rmtree(self.ray, ignore_errors=True)

    def ask(self, *words: str) -> Any:
        """What inside.py says of the head when it is given ``words``."""
        done = subprocess.run(
            [*self.door, sys.executable, str(INSIDE), *words],
            env=environment() | {"RAY_AUTH_MODE": "disabled"},
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            log = (self.folder / "head.log").read_text(errors="replace")
            sys.exit(f"inside.py {words[0]} failed:\n{done.stderr[-2000:]}\nthe head:{log[-1500:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def _first(self) -> int | None:
        assert self._leader is not None
        pid = self._leader.pid
        if self._leader.poll() is not None:
            sys.exit(f"the head did not start:\n{(self.folder / 'head.log').read_text()}")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None


def environment() -> dict[str, str]:
    """Ours, without what leads a Ray elsewhere, and with the programs of this Python on PATH."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    return ours | {"PATH": f"{Path(sys.executable).parent}:{ours.get('PATH', os.defpath)}"}

"""Servers that run beside a measurement, and the processor time of any process."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rayfleet.waiting import wait_until

START_SECONDS = 20.0
STOP_SECONDS = 10.0
TICKS = os.sysconf("SC_CLK_TCK")
PID_FILE = Path("/var/run/docker.pid")
CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """A server on 127.0.0.1 that runs as a process of ours."""

    port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid


@contextmanager
def background(
    argv: Sequence[str],
    *,
    log: Path | None = None,
    port_in: Callable[[str], int | None] = lambda line: int(line) if line.strip() else None,
) -> Iterator[Background]:
    """Run a server while the block runs; it also dies when we are killed.

    Its output goes to ``log``, or to a pipe of which the first line is read; ``port_in`` finds
    the port that it listens on in there.
    """
    setpriv = shutil.which("setpriv")
    tether = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
    with log.open("wb") if log is not None else nullcontext() as output:
        process = subprocess.Popen(
            [*tether, *argv],
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Background(port=_port(process, argv, log, port_in), process=process)
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _port(
    process: subprocess.Popen[bytes],
    argv: Sequence[str],
    log: Path | None,
    port_in: Callable[[str], int | None],
) -> int:
    def said() -> int | None:
        if log is None:
            text = process.stdout.readline().decode() if process.stdout is not None else ""
        else:
            text = log.read_text(errors="replace")
        found = port_in(text)
        if found is None and process.poll() is not None:
            raise SystemExit(f"{argv[0]} ended at once:\n{text}")
        return found

    return wait_until(said, what=f"{Path(argv[0]).name}", timeout=START_SECONDS, interval=0.02)


def processor_seconds(pid: int) -> float:
    """User and system time of a process and of its children that ended (proc(5), stat)."""
    stat = Path("/proc", str(pid), "stat").read_text()
    # The name, in brackets, may have anything in it.
    fields = stat.rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS


def busy_seconds() -> float:
    """What all processors together were not idle since the machine started (proc(5), stat)."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, interrupts, soft, *_ = (int(ticks) for ticks in first)
    return (user + nice + system + interrupts + soft) / TICKS


def engine_process(address: str) -> int | None:
    """The process id of the dockerd behind ``unix://…``; None if it is not to be found here."""
    candidates: list[int] = []
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(address.removeprefix("unix://"))
        raw = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        candidates.append(CREDENTIALS.unpack(raw)[0])
    with suppress(OSError):
        # With systemd's socket activation the socket is systemd's.
        candidates += [int(each) for each in re.findall(r"^\d+", PID_FILE.read_text())]
    for pid in candidates:
        with suppress(OSError):
            if Path("/proc", str(pid), "comm").read_text().strip() == "dockerd":
                return pid
    return None

"""Programs that follow: what they hold in memory, and how late a line is."""

from __future__ import annotations

import os
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from preserving.methods import QUIET_SECONDS
from publishing.processes import background, busy_seconds

from tailing.content import log_text
from tailing.measuring import said
from tailing.methods import FOLLOWING, INVOKE, OURS, WHOLE_LOG, Bench, Method

WRITER = Path(__file__).with_name("writer.py")
START_SECONDS = 30.0
STALL_SECONDS = 60.0
PIPE_BYTES = 1 << 20
MEGABYTE = 1024.0
LOOKS = 400
SETTLE_SECONDS = 2.0
MARK = b" at "


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident megabytes: the mean around a tenth of the way, and over its last tenth, as what
    waits to be written comes and goes; and the most that ever were."""

    lines: int
    seconds: float
    early: float
    late: float
    peak: float


@dataclass(kw_only=True)
class Latency:
    """Milliseconds from the write of a line on a head to its arrival on our stdout; ``others`` is
    how many processors were busy before."""

    method: Method
    wanted: int
    late: list[float] = field(default_factory=list)
    others: float = 0.0

    @property
    def percentiles(self) -> dict[str, float]:
        """The median, the 99th of a hundred, and the worst."""
        cuts = statistics.quantiles(self.late, n=100)
        return {"p50": cuts[49], "p99": cuts[98], "max": max(self.late)}


def measure_memory(
    bench: Bench, *, lines: int, scratch: Path, say: Callable[[str], None]
) -> Memory:
    """Read ``lines`` lines through a pipe with ours.

    Raises:
        SystemExit: it failed, or lines are missing.
    """
    heads = bench.heads
    each = lines // heads.count
    text = log_text("head-00", each)
    for name in heads.names:
        # One file with many names: the text counts once in the page cache.
        log = heads.log(name)
        if name == heads.names[0]:
            log.write_bytes(text)
        else:
            log.unlink()
            log.hardlink_to(heads.log(heads.names[0]))
    method = next(one for one in WHOLE_LOG if one.key == OURS)
    looks: list[tuple[int, float, float]] = []
    count, began = 0, time.perf_counter()
    with _running(method, bench, "", scratch / "memory.err") as process:
        for chunk in _chunks(process, STALL_SECONDS):
            count += chunk.count(b"\n")
            if count >= len(looks) * lines / LOOKS and (now := _resident(process.pid))[0]:
                looks.append((count, *now))
        code = process.wait(timeout=STALL_SECONDS)
    if code != 0 or count != each * heads.count:
        errors = said([method.key], scratch / "memory.err")
        sys.exit(f"rayfleet ended with {code} after {count} lines:\n{errors}")
    found = Memory(
        lines=count,
        seconds=time.perf_counter() - began,
        early=statistics.mean(now for at, now, _ in looks if 0.05 <= at / lines < 0.15),
        late=statistics.mean(now for at, now, _ in looks if at / lines >= 0.9),
        peak=looks[-1][2],
    )
    for name in heads.names:
        heads.log(name).unlink()
        heads.log(name).touch()
    say(
        f"memory: {found.early:.1f} MB around {lines // 10} lines, {found.late:.1f} MB towards"
        f" {lines}, {found.peak:.1f} MB at most; {found.seconds:.1f} s"
    )
    return found


def measure_latency(
    bench: Bench,
    *,
    seconds: float,
    per_second: int,
    scratch: Path,
    say: Callable[[str], None],
    methods: Sequence[Method] = FOLLOWING,
) -> tuple[Latency, ...]:
    """Follow logs that get ``per_second`` lines each, with one method after the other.

    Raises:
        SystemExit: a method failed, or lines are missing.
    """
    return tuple(
        _latency(method, bench, seconds, per_second, scratch, say)
        for method in methods
        if method.key != INVOKE
    )


def _latency(
    method: Method,
    bench: Bench,
    seconds: float,
    per_second: int,
    scratch: Path,
    say: Callable[[str], None],
) -> Latency:
    heads = bench.heads
    logs = [str(heads.log(name)) for name in heads.names]
    for log in logs:
        Path(log).write_bytes(b"")
    busy = busy_seconds()
    time.sleep(QUIET_SECONDS)
    found = Latency(
        method=method,
        wanted=int(seconds * per_second) * heads.count,
        others=(busy_seconds() - busy) / QUIET_SECONDS,
    )
    command = f"exec tail -n 0 -F {heads.path}"
    with _running(method, bench, command, scratch / "latency.err") as process:
        _wait_for_all(process, bench, scratch / "latency.err")
        argv = [sys.executable, str(WRITER), str(seconds), str(per_second), *logs]
        with background(argv, log=scratch / "writer.log", port_in=lambda _: 1):
            rest = b""
            for chunk in _chunks(process, SETTLE_SECONDS):
                now = time.monotonic_ns()
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    stamp = line.rpartition(MARK)[2]
                    if stamp.isdigit():
                        found.late.append((now - int(stamp)) / 1e6)
                if len(found.late) >= found.wanted:
                    break
    if len(found.late) != found.wanted:
        errors = said([method.key], scratch / "latency.err")
        sys.exit(f"{method.title}: {len(found.late)} of {found.wanted} lines came:\n{errors}")
    shown = ", ".join(f"{name} {value:.1f} ms" for name, value in found.percentiles.items())
    say(
        f"{method.title}: {heads.count} heads with {per_second} lines a second: {shown}"
        f" ({found.others:.1f} processors busy before)"
    )
    return found


def _wait_for_all(process: subprocess.Popen[bytes], bench: Bench, errors: Path) -> None:
    """Write to every log until a line of each has come, and then until no more come.

    Raises:
        SystemExit: they do not come.
    """
    heads = bench.heads
    left = dict(zip((name.encode() for name in heads.names), heads.names, strict=True))
    deadline = time.monotonic() + START_SECONDS
    held = b""
    while left:
        for name in left.values():
            with heads.log(name).open("ab") as log:
                log.write(f"2026-11-21 20:00:00,000\tINFO bench.py:1 -- {name} begins\n".encode())
        for chunk in _chunks(process, 0.2):
            held += chunk
            left = {key: name for key, name in left.items() if key + b" begins" not in held}
        if time.monotonic() > deadline or process.poll() is not None:
            sys.exit(f"no line came from {', '.join(left.values())}:\n{said([], errors)}")


@contextmanager
def _running(
    method: Method, bench: Bench, command: str, errors: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """``method`` with its stdout in a pipe; it is ended with the block."""
    with errors.open("wb") as err:
        process = subprocess.Popen(
            method.argv(bench, command),
            cwd=Path(__file__).resolve().parents[3],
            env=bench.operator.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            # A loop of a shell has children, and they are of the same group.
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _chunks(process: subprocess.Popen[bytes], patience: float) -> Iterator[bytes]:
    """What comes, until its end or until nothing has come for ``patience`` seconds."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    while select.select([fd], [], [], patience)[0]:
        chunk = os.read(fd, PIPE_BYTES)
        if not chunk:
            return
        yield chunk


def _resident(pid: int) -> tuple[float, float]:
    """Megabytes that are resident now, and the most that ever were (proc(5), status); 0 when the
    process has ended."""
    fields = {"VmRSS": 0.0, "VmHWM": 0.0}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in fields:
            fields[name] = int(value.split()[0]) / MEGABYTE
    return fields["VmRSS"], fields["VmHWM"]

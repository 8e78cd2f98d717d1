"""Run an external program: argv lists, a deadline, its own process group, its output kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rayfleet.errors import PrerequisiteMissing, ToolFailed
from rayfleet.files import ensure_folder, refusing

TAIL_LINES = 15
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A program that ended: its exit code (128+N for signal N) and its last lines."""

    argv: tuple[str, ...]
    code: int
    tail: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True when the program exited with 0."""
        return self.code == 0


class Program:
    """A program that runs beside us, in a process group of its own.

    stdout and stderr are read as one, as they come: every line goes to ``on_line`` and is
    appended to ``log``, and the last ones are kept. It has no stdin.

    Raises:
        PrerequisiteMissing: the program is not installed, or ``log`` cannot be written.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        log: Path | None = None,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        if log is not None:
            ensure_folder(log.parent)
            with refusing(log):
                log.touch()
        self.argv = tuple(argv)
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process = process = subprocess.Popen(
            _tethered(argv, env),
            env=dict(env) if env is not None else None,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        reading = (process.stdout, self._tail, log, on_line)
        self._reader = threading.Thread(target=_drain, args=reading, daemon=True)
        self._reader.start()

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines that it has printed so far."""
        return tuple(self._tail)

    def poll(self) -> Finished | None:
        """How it ended, or None while it runs."""
        return self.wait() if self._process.poll() is not None else None

    def wait(self, timeout: float | None = None) -> Finished:
        """Wait for its end, at most ``timeout`` seconds (subprocess.TimeoutExpired)."""
        code = self._process.wait(timeout=timeout)
        # A grandchild may hold the pipe open for good; the program itself has ended.
        self._reader.join(timeout=GRACE_SECONDS)
        return Finished(argv=self.argv, code=code if code >= 0 else 128 - code, tail=self.tail)

    def stop(self) -> None:
        """End its whole group, with SIGTERM and then SIGKILL."""
        _end_group(self._process)


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    started: Callable[[Program], None] = lambda program: None,
) -> Finished:
    """Run ``argv`` to its end and return how it ended; stdout and stderr are read as one.

    ``timeout`` is seconds; past it, and on Ctrl-C, the whole process group gets SIGTERM and
    then SIGKILL. Every line goes to ``on_line`` and is appended to ``log``. ``started`` is given
    the running program. Secrets belong in ``env``, never in ``argv``.

    Raises:
        PrerequisiteMissing: the program is not installed, or ``log`` cannot be written.
        ToolFailed: it did not end within ``timeout``.
    """
    program = Program(argv, env=env, cwd=cwd, log=log, on_line=on_line)
    try:
        started(program)
        return program.wait(timeout)
    except subprocess.TimeoutExpired as error:
        program.stop()
        tail = program.tail
        raise ToolFailed(
            f"{Path(argv[0]).name} did not end within {timeout:.0f} s",
            why="\n  ".join(["last lines:", *tail]) if tail else "it printed nothing",
        ) from error
    except BaseException:
        program.stop()
        raise


def must_run(argv: Sequence[str], *, timeout: float, what: str, **options: object) -> Finished:
    """Like :func:`run`, but raise :class:`ToolFailed` naming ``what`` on a non-zero exit."""
    finished = run(argv, timeout=timeout, **options)  # type: ignore[arg-type]
    if not finished.ok:
        raise ToolFailed(
            f"{what} failed (exit {finished.code})",
            why="\n  ".join(["last lines:", *finished.tail]) if finished.tail else "no output",
        )
    return finished


def require_program(name: str, path: str | None = None) -> None:
    """See that the program ``name`` is in ``path``, by default our own.

    Raises:
        PrerequisiteMissing: it is not.
    """
    if shutil.which(name, path=path) is None:
        raise PrerequisiteMissing(f"{name} is not installed", next_step="invoke doctor")


def _tethered(argv: Sequence[str], env: Mapping[str, str] | None) -> list[str]:
    """``argv`` so that the program dies with us, even of a SIGKILL: a `ray up` that goes on
    alone would race with the next run."""
    path = (env if env is not None else os.environ).get("PATH")
    require_program(argv[0], path)
    setpriv = shutil.which("setpriv", path=path)  # util-linux; Linux only
    return [setpriv, "--pdeathsig", "KILL", "--", *argv] if setpriv else list(argv)


def _drain(
    stream: IO[bytes] | None,
    tail: deque[str],
    log: Path | None,
    on_line: Callable[[str], None],
) -> None:
    if stream is None:
        return
    # Unbuffered: a disk that fills up must cost the log only, not the reading.
    with stream, (log or Path(os.devnull)).open("ab", buffering=0) as kept:
        for raw in stream:
            with suppress(OSError):
                kept.write(raw)
            line = raw.decode(errors="replace").rstrip()
            if line:
                tail.append(line)
                on_line(line)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_SECONDS)
            return

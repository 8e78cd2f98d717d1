"""A sandbox of the tests' own, driven as an operator drives it: by the invoke command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rayfleet.sandbox.engine import Engine, Row, engine_url
from rayfleet.sandbox.place import Place
from tests.support.processes import with_default_signals

ROOT = Path(__file__).resolve().parents[2]
INVOKE = Path(sys.executable).with_name("invoke")
TIMEOUT = 600


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def must(self) -> Ran:
        assert self.code == 0, f"exit {self.code}\n{self.err}\n{self.out}"
        return self


@dataclass
class SandboxCli:
    """``invoke`` in a checkout (default: this one) with a state folder of its own."""

    state: Path
    root: Path = ROOT
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *argv: str, timeout: float = TIMEOUT, **environment: str) -> Ran:
        done = subprocess.run(
            [INVOKE, *argv],
            cwd=self.root,
            env=self.env() | environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def kill_when(self, argv: list[str], seen: Callable[[str], bool], **environment: str) -> str:
        """Start a task and SIGKILL it and its children at the first line that ``seen`` wants.

        Returns what it had said on stderr.
        """
        process, said = self._start_until(argv, seen, environment, subprocess.DEVNULL)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        process.stderr.close()  # type: ignore[union-attr]
        return said

    def meanwhile(
        self, argv: list[str], seen: Callable[[str], bool], act: Callable[[], None]
    ) -> Ran:
        """Run a task; at the first line that ``seen`` wants, hold it still while ``act`` runs."""
        with tempfile.TemporaryFile("w+") as out:
            process, said = self._start_until(argv, seen, {}, out)
            os.killpg(process.pid, signal.SIGSTOP)
            try:
                act()
            finally:
                os.killpg(process.pid, signal.SIGCONT)
                _, rest = process.communicate(timeout=TIMEOUT)
            out.seek(0)
            assert "Traceback" not in rest, rest
            return Ran(process.returncode, out.read(), said + rest)

    def start(
        self,
        *argv: str,
        stdout: int | IO[str] = subprocess.PIPE,
        stderr: int | IO[str] = subprocess.PIPE,
        **environment: str,
    ) -> subprocess.Popen[str]:
        """A task that runs on, as the leader of a process group."""
        return subprocess.Popen(
            with_default_signals(INVOKE, *argv),
            cwd=self.root,
            env=self.env() | environment,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def _start_until(
        self,
        argv: list[str],
        seen: Callable[[str], bool],
        environment: dict[str, str],
        out: int | IO[str],
    ) -> tuple[subprocess.Popen[str], str]:
        """A task that runs on, as the leader of a process group, and its stderr so far."""
        process = self.start(*argv, stdout=out, stderr=subprocess.PIPE, **environment)
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if seen(line):
                return process, "".join(said)
        process.wait(timeout=30)
        process.stderr.close()
        raise AssertionError(f"{argv} ended before that moment:\n{''.join(said)}")

    @property
    def place(self) -> Place:
        return Place(self.state / "sandbox")

    @property
    def engine(self) -> Engine:
        return Engine(url=engine_url(), sandbox=self.place.id)

    def vms(self, cluster: str, role: str) -> list[Row]:
        rows = self.engine.rows()
        return [row for row in rows if (row.cluster, row.role) == (cluster, role)]

    def status(self) -> dict[str, dict[str, Any]]:
        clusters = self("status", "--json").must().json()["clusters"]
        return {entry["cluster"]: entry for entry in clusters}

    def env(self) -> dict[str, str]:
        """The environment of its commands."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("INVOKE_")}
        return (
            inherited
            | {"INVOKE_STATE": str(self.state), "INVOKE_FLEET": "infra/sandbox.yaml"}
            | self.environment
        )

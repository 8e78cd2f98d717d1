"""The Artifact Registry API of a sandbox as a process: start it, know it again, end it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rayfleet.errors import ToolFailed
from rayfleet.files import refusing, write_atomically
from rayfleet.sandbox.place import Place
from rayfleet.waiting import wait_until

START_TIMEOUT = 30  # seconds, of which importing the client library takes one or two
MODULE = "rayfleet.sandbox.artifact_registry"


@dataclass(frozen=True, slots=True)
class ApiProcess:
    """The API server of the sandbox at ``place``."""

    place: Place

    @property
    def config(self) -> Path:
        """What the server reads at its start; it holds its address, too."""
        return self.place.api_folder / "config.json"

    def address(self) -> str:
        """``127.0.0.1:port`` of the server as last configured; empty before the first start."""
        if not self.config.is_file():
            return ""
        return str(json.loads(self.config.read_text())["listen"])

    def running(self) -> bool:
        """Whether our server process lives and listens."""
        return self._pid() is not None and _listens(self.address())

    def ensure(self, project: str, registries: Mapping[str, int]) -> str:
        """Have the server running for ``registries`` (region to port); returns its address.

        Raises:
            ToolFailed: it ended at once; the message has its last line.
        """
        wanted = self._wanted(project, registries)
        if self.running() and json.loads(self.config.read_text()) == wanted:
            return str(wanted["listen"])
        self.stop()
        if _listens(str(wanted["listen"])):
            wanted["listen"] = f"127.0.0.1:{free_port()}"
        write_atomically(self.config, json.dumps(wanted, indent=2))
        self._start()
        return str(wanted["listen"])

    def stop(self) -> None:
        """End the server if it runs, and wait until it has ended."""
        pid = self._pid()
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: self._pid() is None, what=f"process {pid} to end", timeout=15)

    def _wanted(self, project: str, registries: Mapping[str, int]) -> dict[str, object]:
        return {
            "project": project,
            "listen": self.address() or f"127.0.0.1:{free_port()}",
            "state": str(self.place.api_folder / "state"),
            "credentials": str(self.place.credentials),
            "regions": {
                region: {"host": f"127.0.0.1:{port}", "storage": str(self.place.storage(region))}
                for region, port in registries.items()
            },
        }

    def _start(self) -> None:
        log = self.place.api_folder / "server.log"
        with refusing(log), log.open("ab") as output:
            server = subprocess.Popen(
                [sys.executable, "-m", MODULE, "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
            )

        def up() -> bool:
            if server.poll() is not None:
                last = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise ToolFailed(
                    f"the Artifact Registry API ended (exit {server.returncode})",
                    why=" ".join(last),
                    next_step=f"read {log}, then run: invoke sandbox.up",
                )
            return _listens(self.address())

        wait_until(up, what="the Artifact Registry API", timeout=START_TIMEOUT, interval=0.1)

    def _pid(self) -> int | None:
        """The process that runs with our config file: found in /proc, so that neither a reused
        process id nor a kill between start and record can mislead us."""
        marker = str(self.config).encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if marker in words and MODULE.encode() in words and _alive(entry):
                    return int(entry.name)
        return None


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    if not port:
        return False
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=2):
        return True
    return False


def _alive(entry: Path) -> bool:
    """Whether a /proc entry is more than a zombie."""
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"

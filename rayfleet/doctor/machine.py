"""Facts about this machine, each asked for with a deadline."""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rayfleet.errors import PrerequisiteMissing, ToolFailed
from rayfleet.process import run

ANSWER_SECONDS = 10.0
DEFAULT_ROOT = "/var/lib/docker"  # of an engine that says nothing else
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # cgroup v2: bytes, or "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """A Docker engine that answers: its version, and the folder that holds its images."""

    version: str
    root: Path


class Machine(Protocol):
    """What the checks ask of a machine."""

    def which(self, program: str) -> str | None:
        """Where ``program`` is, system folders included; None when it is not installed."""

    def first_line(self, *argv: str) -> str:
        """The first line that a program prints, or "" when it is missing or fails."""

    def free_bytes(self, folder: Path) -> int:
        """Free bytes on the disk of ``folder`` or of its nearest parent that exists."""

    def memory_bytes(self) -> int:
        """Memory in bytes that all of our processes together may use."""

    def engine(self) -> EngineFacts | None:
        """The Docker engine, or None when none answers."""


class ThisMachine:
    """The machine that we run on."""

    def which(self, program: str) -> str | None:
        """Where ``program`` is, system folders included; None when it is not installed."""
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        return shutil.which(program, path=path)

    def first_line(self, *argv: str) -> str:
        """The first line that a program prints, or "" when it is missing or fails."""
        lines: list[str] = []
        try:
            finished = run(argv, timeout=ANSWER_SECONDS, on_line=lines.append)
        except (PrerequisiteMissing, ToolFailed):
            return ""
        return lines[0].strip() if finished.ok and lines else ""

    def free_bytes(self, folder: Path) -> int:
        """Free bytes on the disk of ``folder`` or of its nearest parent that exists."""
        return shutil.disk_usage(existing(folder)).free

    def memory_bytes(self) -> int:
        """Memory in bytes that all of our processes together may use."""
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.is_file() else "max"
        return min(physical, int(limit)) if limit.isdigit() else physical

    def engine(self) -> EngineFacts | None:
        """The Docker engine, or None when none answers."""
        from rayfleet.image.engine import ImageEngine

        try:
            ImageEngine().check()
        except PrerequisiteMissing:
            return None
        answer = self.first_line(
            "docker", "info", "--format", "{{.ServerVersion}} {{.DockerRootDir}}"
        )
        version, _, root = answer.partition(" ")
        return EngineFacts(version=version or "unknown", root=Path(root or DEFAULT_ROOT))


def existing(folder: Path) -> Path:
    """``folder``, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def free_loopback_ports(count: int) -> int:
    """How many of ``count`` ports of 127.0.0.1 can be had at once."""
    with ExitStack() as held:
        for found in range(count):
            try:
                server = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                server.bind(("127.0.0.1", 0))
            except OSError:
                return found
    return count

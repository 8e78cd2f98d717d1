"""What the benchmark needs of the machine: the programs, an engine of its own, and space."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from publishing.processes import engine_process
from rayfleet.process import must_run
from rayfleet.sandbox.engine import engine_url

ROOT = Path(__file__).resolve().parents[3]
BOOTSTRAP = ROOT / "scripts" / "bootstrap.sh"
PEERS = ("skopeo", "docker-registry")
INSTALL_SECONDS = 1800.0
ASK_SECONDS = 60.0
# Seven methods with four stores each, the layers, and the engine's copies of them.
BYTES_PER_SCALE = 22_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """``engine`` is dockerd's process id."""

    engine: int
    versions: tuple[str, ...]


def prepare(folder: Path, scale: float, say: Callable[[str], None]) -> Machine:
    """Install what is missing, and start an engine if there is none.

    Raises:
        SystemExit, RayfleetError: something cannot be had; the message says what to do.
    """
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    free = shutil.disk_usage(folder).free
    if free < BYTES_PER_SCALE * scale:
        sys.exit(
            f"{folder} has {free / 1e9:.1f} GB free, {BYTES_PER_SCALE * scale / 1e9:.1f} GB are"
            " needed\n  next: set TMPDIR to a folder with more"
        )
    if not all(map(shutil.which, PEERS)):
        must_run(
            [str(BOOTSTRAP), "--tests"], timeout=INSTALL_SECONDS, what="bootstrap.sh", on_line=say
        )
    must_run(
        [sys.executable, "-m", "rayfleet.sandbox.engine_install"],
        timeout=INSTALL_SECONDS,
        what="the start of a Docker engine",
        on_line=say,
    )
    if shutil.which("docker") is None:
        sys.exit("there is no docker command\n  next: sudo apt-get install -y docker-cli")
    engine = engine_process(engine_url())
    if engine is None:
        sys.exit(
            f"the engine at {engine_url()} is no dockerd of this machine, so that its processor"
            " time cannot be measured\n  next: unset DOCKER_HOST"
        )
    return Machine(engine=engine, versions=_versions())


def _versions() -> tuple[str, ...]:
    return (
        f"docker client {_said('docker', 'version', '--format', '{{.Client.Version}}')}",
        f"engine {_said('docker', 'version', '--format', '{{.Server.Version}}')}",
        _said("skopeo", "--version"),
        " ".join(_said("docker-registry", "--version").split()[::2]),
    )


def _said(*argv: str) -> str:
    return must_run(argv, timeout=ASK_SECONDS, what=argv[0]).tail[-1]

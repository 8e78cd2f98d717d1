"""Get a Docker engine: the one that is there, else, as root on Debian, a new one.

``python -m rayfleet.sandbox.engine_install`` does just that, for scripts. The engine is the
machine's own from then on: on the default socket, in a process session of its own, and left
running when we end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from rayfleet.console import Console
from rayfleet.errors import PrerequisiteMissing
from rayfleet.process import must_run, run
from rayfleet.sandbox.engine import DEFAULT_ENGINE, Engine, engine_url
from rayfleet.waiting import DeadlineExceeded, wait_until

INSTALL_TIMEOUT = 900  # seconds, for apt on a slow mirror
START_TIMEOUT = 60
ENGINE_LOG = Path("/var/log/rayfleet-dockerd.log")
PID_FILES = {
    Path("/var/run/docker.pid"): "dockerd",
    Path("/var/run/docker/containerd/containerd.pid"): "containerd",
}
# One per machine, not per checkout: two sandboxes must not both start the engine.
MACHINE_LOCK = Path("/run/lock/rayfleet-engine.lock")


def ensure_engine(sandbox: str, console: Console) -> Engine:
    """An engine that answers, installed and started if need be.

    Raises:
        PrerequisiteMissing: none answers and we cannot (not Debian, not root, DOCKER_HOST names
            another one) or could not bring one up; the message has the command.
    """
    engine = Engine(url=engine_url(), sandbox=sandbox)
    if _answers(engine):
        return engine
    _refuse_what_we_cannot(engine)
    MACHINE_LOCK.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(MACHINE_LOCK, timeout=INSTALL_TIMEOUT + START_TIMEOUT):
        if not _answers(engine):
            _install(console)
            _start(engine, console)
    return engine


def install_packages(names: tuple[str, ...], console: Console) -> None:
    """Install Debian packages (we are root); their output goes to the moving line.

    Raises:
        ToolFailed: apt refused.
    """
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    console.event("apt-get update")
    run(["apt-get", "update", "-q"], timeout=INSTALL_TIMEOUT, env=environment)
    console.event(f"apt-get install {' '.join(names)}")
    must_run(
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", *names],
        timeout=INSTALL_TIMEOUT,
        env=environment,
        what=f"apt-get install {' '.join(names)}",
    )


def can_install() -> bool:
    """Whether this is Debian (or a child of it) and we are root."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _answers(engine: Engine) -> bool:
    try:
        engine.version()
    except PrerequisiteMissing:
        # A client that failed to connect keeps the failure; the next try takes a new one.
        engine.__dict__.pop("client", None)
        return False
    return True


def _refuse_what_we_cannot(engine: Engine) -> None:
    if engine.url != DEFAULT_ENGINE:
        raise PrerequisiteMissing(
            f"no Docker engine answers on {engine.url}",
            why="DOCKER_HOST names it",
            next_step="start that engine, or unset DOCKER_HOST",
        )
    if not can_install():
        raise PrerequisiteMissing(
            "no Docker engine answers on this machine",
            why="rayfleet can install one only as root on Debian",
            next_step="sudo apt-get install -y docker.io && sudo usermod -aG docker $USER"
            " (or https://docs.docker.com/engine/install/), then run this again",
        )


def _install(console: Console) -> None:
    if shutil.which("dockerd") is None:
        install_packages(("docker.io",), console)


def _start(engine: Engine, console: Console) -> None:
    """Start dockerd, through systemd where that runs, else by ourselves."""
    if Path("/run/systemd/system").is_dir():
        must_run(
            ["systemctl", "start", "docker"], timeout=START_TIMEOUT, what="systemctl start docker"
        )
    elif not _comes_up(engine, seconds=3):  # the package may have started it
        console.event("starting dockerd")
        for file, program in PID_FILES.items():
            forget_stranger(file, program)
        with ENGINE_LOG.open("ab") as log:
            subprocess.Popen(
                ["dockerd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
    if not _comes_up(engine, seconds=START_TIMEOUT):
        raise PrerequisiteMissing(
            f"dockerd did not answer within {START_TIMEOUT} s",
            why=_last_line(ENGINE_LOG),
            next_step=f"read {ENGINE_LOG}, then run this again",
        )


def forget_stranger(file: Path, program: str) -> None:
    """Remove a file of a process id that is no process of ``program``: an engine that was
    killed leaves it, and the next one would take whoever has the number now for itself."""
    with suppress(OSError, ValueError):
        if Path("/proc", str(int(file.read_text())), "comm").read_text().strip() == program:
            return
    file.unlink(missing_ok=True)


def _comes_up(engine: Engine, *, seconds: float) -> bool:
    try:
        return wait_until(lambda: _answers(engine), what="the Docker engine", timeout=seconds)
    except DeadlineExceeded:
        return False


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return lines[-1][:300] if lines else "it left no log"


def main() -> None:
    """Ensure the engine, for scripts."""
    import sys

    console = Console()
    try:
        engine = ensure_engine("000000", console)
    except PrerequisiteMissing as error:
        sys.exit(str(error))
    console.say(f"Docker engine {engine.version()} on {engine.url}")


if __name__ == "__main__":
    main()

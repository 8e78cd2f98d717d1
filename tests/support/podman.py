"""podman's API as a child process, with storage of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rayfleet.waiting import wait_until

PROGRAM = "podman"
START_SECONDS = 30.0
STOP_SECONDS = 20.0
# No locks in the memory that all podmans of the machine share.
SETTINGS = '[engine]\nlock_type = "file"\nevents_logger = "none"\n'


@contextmanager
def podman_service() -> Iterator[Mapping[str, str]]:
    """An engine with podman's API for the block; yields the environment that leads to it."""
    # podman takes no long paths.
    with (
        tempfile.TemporaryDirectory(prefix="rayfleet-") as folder,
        _service(Path(folder)) as socket,
    ):
        yield {**os.environ, "DOCKER_HOST": f"unix://{socket}"}


@contextmanager
def _service(folder: Path) -> Iterator[Path]:
    program = shutil.which(PROGRAM)
    if program is None:
        raise AssertionError(f"{PROGRAM} is not installed; run: scripts/bootstrap.sh --tests")
    socket, log = folder / "api.sock", folder / "podman.log"
    (folder / "containers.conf").write_text(SETTINGS)
    argv = [program, "--root", folder / "root", "--runroot", folder / "run"]
    argv += ["--tmpdir", folder / "tmp", "--storage-driver", "vfs"]
    argv += ["--cgroup-manager", "cgroupfs", "system", "service", "--time=0", f"unix://{socket}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")},
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: socket.exists() or process.poll() is not None,
            what="podman to listen",
            timeout=START_SECONDS,
            interval=0.02,
        )
        assert process.poll() is None, log.read_text()
        yield socket
    finally:
        process.terminate()
        process.wait(timeout=STOP_SECONDS)

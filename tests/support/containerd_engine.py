"""A Docker engine with the containerd image store, which the machine's own engine may not have.

It is Debian 13's: its packages are unpacked into a folder (nothing is installed) and its dockerd
runs there with storage and a socket of its own, in a mount and a network namespace of its own:
where there is to be no bridge, dockerd deletes a docker0 that it finds, be it another engine's.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rayfleet.sandbox.base_image import debian_mirror
from rayfleet.waiting import wait_until

SUITE = "trixie"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# dockerd with what it starts, and the libraries that they are linked to.
PACKAGES = (
    *("docker.io", "containerd", "runc"),
    *("libc6", "libgcc-s1", "libsystemd0", "libseccomp2", "libcap2"),
)
DOWNLOAD_SECONDS = 300.0
START_SECONDS = 300.0
STOP_SECONDS = 60.0

SETTINGS = {
    "features": {"containerd-snapshotter": True},
    "data-root": "/var/lib/engine",
    "exec-root": "/run/engine",
    "pidfile": "/run/engine.pid",
    "hosts": ["unix:///socket/docker.sock"],
    "bridge": "none",
    "iptables": False,
    "ip6tables": False,
}
# The folder is made a mount point, so that dockerd finds what is mounted where.
START = """\
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t tmpfs none "$1/run"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
exec chroot "$1" /usr/sbin/dockerd --config-file /etc/docker/daemon.json
"""


@contextmanager
def containerd_engine() -> Iterator[Mapping[str, str]]:
    """The engine for the block; yields the environment that leads to it. Takes root."""
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="rayfleet-") as name:
        folder = Path(name)
        root = _unpacked(folder)
        log = folder / "dockerd.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["unshare", "--mount", "--net", "sh", "-c", START, "sh", root],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        socket = root / "socket" / "docker.sock"
        try:
            # Who connects then is answered when dockerd is ready.
            wait_until(
                lambda: socket.exists() or process.poll() is not None,
                what="dockerd to listen",
                timeout=START_SECONDS,
                interval=0.1,
            )
            assert process.poll() is None, log.read_text()
            yield {**os.environ, "DOCKER_HOST": f"unix://{socket}"}
        finally:
            process.terminate()
            process.wait(timeout=STOP_SECONDS)


def _unpacked(folder: Path) -> Path:
    """The packages of Debian 13 in ``root`` of the folder, laid out to be a root folder."""
    root, lists, packages = folder / "root", folder / "lists", folder / "packages"
    for each in (root, lists / "partial", packages):
        each.mkdir(parents=True)
    mirror = debian_mirror()
    assert mirror, "apt of this machine has no mirror of Debian"
    source = folder / "sources.list"
    source.write_text(f"deb [signed-by={KEYS}] {mirror} {SUITE} main\n")
    apt = folder / "apt.conf"
    apt.write_text(
        f'Dir::Etc::sourcelist "{source}"; Dir::Etc::sourceparts "/dev/null";'
        f'Dir::State::lists "{lists}"; Dir::State::status "/dev/null";'
        f'Dir::Cache "{folder}"; Dir::Cache::archives "{packages}";'
        'Acquire::Languages "none"; Acquire::Retries "3"; APT::Sandbox::User "root";'
    )
    env = {**os.environ, "APT_CONFIG": str(apt)}
    for command in (["apt-get", "-q", "update"], ["apt-get", "-q", "download", *PACKAGES]):
        _run(command, cwd=packages, env=env)
    for package in packages.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(root)], cwd=folder, env=env)
        package.unlink()
    for name in ("bin", "sbin", "lib", "lib64"):
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    for name in ("proc", "sys", "dev", "run", "tmp", "var/lib", "etc/docker", "socket"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc" / "docker" / "daemon.json").write_text(json.dumps(SETTINGS))
    return root


def _run(command: list[str], *, cwd: Path, env: Mapping[str, str]) -> None:
    finished = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
    )
    assert finished.returncode == 0, f"{command}: {finished.stdout}{finished.stderr}"

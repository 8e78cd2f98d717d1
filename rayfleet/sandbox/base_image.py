"""The two images that the sandbox brings itself: what the cluster image is built on, and the
registry. Both are shared by all sandboxes of an engine.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from rayfleet.console import Console
from rayfleet.errors import PrerequisiteMissing, ToolFailed
from rayfleet.process import must_run, run
from rayfleet.sandbox.engine import Engine
from rayfleet.sandbox.engine_install import can_install, install_packages

SUITE = "bookworm"
BASE_IMAGE = f"rayfleet-sandbox/base:{SUITE}"
REGISTRY_IMAGE = f"rayfleet-sandbox/registry:{SUITE}"
UPSTREAM = f"debian:{SUITE}-slim"
DEBOOTSTRAP_TIMEOUT = 900  # seconds
# Not the state folder: debootstrap refuses file systems with nodev or noexec.
WORK_FOLDER = Path("/var/tmp")  # noqa: S108 (the names below it are made by mkdtemp)
WORK = "rayfleet-base-"
# What debian:*-slim leaves out as well.
NEEDLESS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
)

REGISTRY_DOCKERFILE = f"""\
FROM {BASE_IMAGE}
RUN apt-get update \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends docker-registry \\
 && rm -rf /var/lib/apt/lists/*
CMD ["docker-registry", "serve", "/etc/docker/registry/config.yml"]
"""


def ensure_base_image(engine: Engine, console: Console) -> None:
    """Have :data:`BASE_IMAGE`: what $BASE_IMAGE names or Debian's slim image if one can be
    pulled, else a minimal Debian made here with debootstrap.

    Raises:
        PrerequisiteMissing: it cannot be pulled and we cannot run debootstrap.
        ToolFailed: debootstrap failed.
    """
    if engine.has_image(BASE_IMAGE):
        return
    source = os.environ.get("BASE_IMAGE", UPSTREAM)
    console.event(f"pulling {source}")
    if engine.pull_as(source, BASE_IMAGE):
        return
    if not can_install():
        raise PrerequisiteMissing(
            f"{source} cannot be pulled",
            why="and debootstrap, the other way to a base image, needs root on Debian",
            next_step="BASE_IMAGE=<an image of Debian that this engine has> invoke sandbox.up",
        )
    if shutil.which("debootstrap") is None:
        install_packages(("debootstrap",), console)
    _bootstrap(engine, console)


def ensure_registry_image(engine: Engine, console: Console) -> None:
    """Have :data:`REGISTRY_IMAGE`: Debian's docker-registry on the base image."""
    if not engine.has_image(REGISTRY_IMAGE):
        console.event("building the registry image")
        engine.build_image(REGISTRY_DOCKERFILE, REGISTRY_IMAGE)


def debian_mirror(sources: Path = Path("/etc/apt")) -> str | None:
    """The mirror that this machine's apt takes Debian from; None leaves it to debootstrap."""
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    for file in files:
        for line in file.read_text(errors="replace").splitlines() if file.is_file() else ():
            found = re.match(
                r"(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(http\S+/debian)/?(?:\s|$)", line
            )
            if found:
                return found[1]
    return None


def _bootstrap(engine: Engine, console: Console) -> None:
    for left in WORK_FOLDER.glob(f"{WORK}*"):
        # A run that was killed left it; the name has its process id.
        if not Path("/proc", left.name.removeprefix(WORK).partition("-")[0]).exists():
            _remove(left)
    folder = Path(tempfile.mkdtemp(prefix=f"{WORK}{os.getpid()}-", dir=WORK_FOLDER))
    try:
        root = folder / "root"
        console.event("making a minimal Debian with debootstrap")
        mirror = debian_mirror()
        must_run(
            ["debootstrap", "--variant=minbase", SUITE, str(root), *([mirror] if mirror else [])],
            timeout=DEBOOTSTRAP_TIMEOUT,
            what="debootstrap",
            on_line=lambda line: console.detail(line.removeprefix("I: ")),
        )
        for needless in NEEDLESS:
            shutil.rmtree(root / needless, ignore_errors=True)
            (root / needless).mkdir(parents=True, exist_ok=True)
        console.event("importing the base image")
        _import(engine, root)
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a work folder, after what debootstrap may have left mounted in it."""
    for mount in (folder / "root" / "proc", folder / "root" / "sys"):
        if mount.is_mount():
            run(["umount", "--lazy", str(mount)], timeout=30)
    shutil.rmtree(folder, ignore_errors=True)


def _import(engine: Engine, root: Path) -> None:
    tar = subprocess.Popen(
        ["tar", "--numeric-owner", "--sort=name", "-C", str(root), "-c", "."],
        stdout=subprocess.PIPE,
    )
    if tar.stdout is None:
        raise ToolFailed("tar gave no archive", why=platform.platform())
    with tar.stdout as archive:
        engine.import_image(archive, BASE_IMAGE)
    if tar.wait(timeout=30) != 0:
        raise ToolFailed("tar failed on the new base image", next_step="invoke sandbox.up")

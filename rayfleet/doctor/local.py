"""What the tasks of every fleet need."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rayfleet.doctor.machine import Machine, existing, free_loopback_ports
from rayfleet.doctor.report import Check, missing, ok, warn
from rayfleet.errors import PrerequisiteMissing
from rayfleet.fleet.model import Fleet
from rayfleet.image.build.builder import Builder, Kind
from rayfleet.project import Project

GIB = 1024**3
NEEDED_DISK = 8 * GIB  # the image in the engine, in a layer cache and in the registries
NEEDED_PYTHON = (3, 11)
# Registries and API of a sandbox, and a tunnel to each of a fleet's heads.
NEEDED_PORTS = 16
# fabric's floor is what keeps Invoke at 2.2 (see pyproject.toml).
NEEDED_FABRIC = (3, 2, 3)
NEEDED_INVOKE = (2, 2)

Probe = Callable[[], Check]


def local_checks(
    fleet: Fleet, project: Project, machine: Machine, find_builder: Callable[[], Builder]
) -> Mapping[str, Probe]:
    """The checks that hold for every fleet, by name."""
    tools = (("ssh", "openssh-client", "-V"), ("rsync", "rsync", "--version"))
    return {
        "python": python_check,
        "ray": partial(ray_check, project, installed("ray")),
        "invoke and fabric": partial(pair_check, installed("invoke"), installed("fabric")),
        "git": partial(git_check, project, machine),
        **{name: partial(program_check, machine, name, *rest) for name, *rest in tools},
        "docker engine": partial(engine_check, machine),
        "docker client": partial(client_check, machine, find_builder),
        "disk (state)": partial(disk_check, machine, "disk (state)", project.state),
        "disk (engine)": partial(engine_disk_check, machine),
        "state folder": partial(state_check, project),
        "loopback ports": ports_check,
        "ssh proxy": partial(proxy_check, fleet, machine),
    }


def python_check() -> Check:
    """Python is of 3.11 or later."""
    found = platform.python_version()
    if sys.version_info[:2] >= NEEDED_PYTHON:
        return ok("python", found)
    return missing("python", found, "PYTHON=/path/to/python3.11 make setup")


def ray_check(project: Project, found: str) -> Check:
    """The installed Ray is the locked one: head and operator must be of one version."""
    lock = project.root / "requirements.lock"
    pinned = re.search(r"^ray==(\S+)", lock.read_text() if lock.is_file() else "", re.MULTILINE)
    if not found:
        return missing("ray", "not installed", "make setup")
    if pinned and pinned[1] != found:
        return missing("ray", f"{found}, but the lock says {pinned[1]}", "make setup")
    return ok("ray", f"{found}, as locked" if pinned else found)


def pair_check(invoke: str, fabric: str) -> Check:
    """Invoke and Fabric are a pair that runs together."""
    name, found = "invoke and fabric", f"invoke {invoke or 'none'}, fabric {fabric or 'none'}"
    if numbers(invoke)[:2] == NEEDED_INVOKE and numbers(fabric) >= NEEDED_FABRIC:
        return ok(name, found)
    return missing(name, f"{found}; needed: invoke 2.2 with fabric 3.2.3 or later", "make setup")


def git_check(project: Project, machine: Machine) -> Check:
    """Git is installed and the project has a commit, which images are named after."""
    if not (found := machine.first_line("git", "--version")):
        return missing("git", "not installed", machine_install(machine, "git"))
    commit = machine.first_line("git", "-C", str(project.root), "rev-parse", "--short", "HEAD")
    if not commit:
        why = f"{found}; {project.root} has no commit to name an image after"
        return missing("git", why, f"git -C {project.root} status")
    return ok("git", f"{found}, at {commit}")


def program_check(machine: Machine, name: str, package: str, flag: str) -> Check:
    """A program that Ray's cluster launcher runs is installed."""
    if machine.which(name) is None:
        return missing(name, "not installed", machine_install(machine, package))
    return ok(name, machine.first_line(name, flag) or name)


def engine_check(machine: Machine) -> Check:
    """A Docker engine answers."""
    if facts := machine.engine():
        return ok("docker engine", facts.version)
    where = os.environ.get("DOCKER_HOST") or "the default socket"
    return missing("docker engine", f"none answers on {where}", "invoke sandbox.up")


def client_check(machine: Machine, find_builder: Callable[[], Builder]) -> Check:
    """A docker client is installed, and one of them builds with BuildKit."""
    name = "docker client"
    try:
        builder = find_builder()
    except PrerequisiteMissing:
        return missing(name, "not installed", machine_install(machine, "docker.io"))
    found = machine.first_line(builder.program, "--version")
    if builder.kind is not Kind.CLASSIC:
        return ok(name, f"{found}, {builder.kind.name.lower()} ({builder.program})")
    remedy = machine_install(machine, "docker-buildx")
    return warn(name, f"{found}, without BuildKit: it builds no RUN --mount", remedy)


def disk_check(machine: Machine, name: str, folder: Path) -> Check:
    """The disk of ``folder`` has room for a release."""
    free = machine.free_bytes(folder)
    found = f"{free / GIB:.0f} GiB free at {existing(folder)}"
    if free >= NEEDED_DISK:
        return ok(name, found)
    return missing(name, f"{found}, {NEEDED_DISK // GIB} needed", "docker system prune; df -h")


def engine_disk_check(machine: Machine) -> Check:
    """The disk of the engine's images has room, as far as it is on this machine."""
    facts = machine.engine()
    if facts is None:
        return warn("disk (engine)", "unknown: no engine answers", "invoke sandbox.up")
    return disk_check(machine, "disk (engine)", facts.root)


def state_check(project: Project) -> Check:
    """The state folder, or the folder it will be made in, can be written."""
    parent = existing(project.state)
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return ok("state folder", str(project.state))
    found = f"{parent} cannot be written"
    return missing("state folder", found, "INVOKE_STATE=/a/folder/of/yours invoke doctor")


def ports_check(wanted: int = NEEDED_PORTS) -> Check:
    """Ports of 127.0.0.1 can be had, for registries, APIs and tunnels."""
    found = free_loopback_ports(wanted)
    if found == wanted:
        return ok("loopback ports", f"{found} of {wanted} can be had at once")
    return missing("loopback ports", f"only {found} of {wanted}", "ip link set lo up; ss -ltn")


def proxy_check(fleet: Fleet, machine: Machine) -> Check:
    """The programs that the fleet's SSH connections go through are installed."""
    commands = {cluster.ssh.proxy_command for cluster in fleet.clusters.values()}
    programs = sorted({command.split()[0] for command in commands if command.strip()})
    lacking = [program for program in programs if machine.which(program) is None]
    if lacking:
        found = f"{', '.join(lacking)}: not installed"
        return missing(
            "ssh proxy", found, f"install it, or change ssh.proxy_command in {fleet.source}"
        )
    return ok("ssh proxy", ", ".join(programs) or "none: direct connections")


def installed(distribution: str) -> str:
    """The installed version of a Python distribution, or ""."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def numbers(text: str) -> tuple[int, ...]:
    """The first dotted number in ``text``: (3, 2, 3) of "fabric 3.2.3"; () without one."""
    found = re.search(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def machine_install(machine: Machine, package: str) -> str:
    """The command that installs a Debian package here."""
    if machine.which("apt-get") is None:
        return f"install {package} (Debian's name) with your package manager"
    return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install -y {package}"

"""What the benchmark needs of the machine: root, OpenSSH, and the tools that it compares with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rayfleet.process import must_run

PROGRAMS = ("setpriv", "unshare", "mount", "ssh-keygen", "ssh", "sshd", "sed")
# The program, and the Debian package that has it. Debian renames pssh.
DEBIAN = {"parallel-ssh": "pssh", "pdsh": "pdsh", "clush": "clustershell"}
PYPI = ("parallel-ssh", "pyinfra")
INSTALL_SECONDS = 900.0
ASK_SECONDS = 30.0
ASK_VERSIONS = (
    "import importlib.metadata as m, sys; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """``venv`` has parallel-ssh and pyinfra; the others are on PATH."""

    venv: Path
    versions: str

    def program(self, name: str) -> str:
        """A program of the venv."""
        return str(self.venv / "bin" / name)


def prepare(folder: Path, say: Callable[[str], None]) -> Peers:
    """Look whether this machine can have heads, and install what is compared with.

    Raises:
        SystemExit: something is missing; the message says what to do.
        RayfleetError: something could not be installed.
    """
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.geteuid() != 0:
        sys.exit("each head needs a mount namespace of its own\n  next: run it as root")
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        sys.exit(
            f"not installed: {', '.join(lacking)}\n"
            "  next: apt-get install -y util-linux openssh-server openssh-client sed"
        )
    packages = [package for program, package in DEBIAN.items() if shutil.which(program) is None]
    if packages:
        _install(["apt-get", "update", "-qq"], say)
        _install(["apt-get", "install", "-y", "--no-install-recommends", *packages], say)
    venv = folder / "venv"
    uv = str(Path(sys.executable).with_name("uv"))
    _install([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], say)
    python = str(venv / "bin" / "python")
    _install([uv, "pip", "install", "--quiet", "--compile-bytecode", "-p", python, *PYPI], say)
    return Peers(venv=venv, versions=_versions(python))


def _install(argv: list[str], say: Callable[[str], None]) -> None:
    must_run(argv, timeout=INSTALL_SECONDS, what=" ".join(argv[:3]), on_line=say)


def _versions(python: str) -> str:
    packages = ["dpkg-query", "-W", "-f", "${Package} ${Version}, ", *DEBIAN.values()]
    modules = [python, "-c", ASK_VERSIONS, *PYPI]
    debian, pypi = (
        subprocess.run(argv, capture_output=True, text=True, timeout=ASK_SECONDS, check=True).stdout
        for argv in (packages, modules)
    )
    return f"{debian}{pypi.strip()}; paramiko {version('paramiko')}"

"""Git, as far as the fleet needs it: the only module that runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rayfleet.errors import PrerequisiteMissing, ToolFailed

GIT_SECONDS = 60.0


def try_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in ``folder``, whatever it exits with.

    Raises:
        PrerequisiteMissing: git is not installed.
        ToolFailed: it does not end within a minute.
    """
    # A git hook exports the paths of its own repository.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        return subprocess.run(
            # A file system monitor answers for the checkout, whatever folder is asked about.
            ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments],
            env=env | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise PrerequisiteMissing(
            "git is not installed", next_step="apt-get install -y git"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(
            f"git {_verb(arguments)} did not end within {GIT_SECONDS:.0f} s in {folder}"
        ) from error


def must_git(folder: Path, *arguments: str) -> bytes:
    """What git prints; :class:`ToolFailed` with its own words if it exits with anything but 0."""
    finished = try_git(folder, *arguments)
    if finished.returncode != 0:
        raise ToolFailed(f"git {_verb(arguments)} failed in {folder}", why=words(finished))
    return finished.stdout


def _verb(arguments: Sequence[str]) -> str:
    return next(each for each in arguments if not each.startswith("-"))


def names(listed: bytes) -> list[str]:
    """The file names in an output of ``git … -z``."""
    return [name.decode(errors="surrogateescape") for name in listed.split(b"\0") if name]


def words(finished: subprocess.CompletedProcess[bytes]) -> str:
    """What git said about a failure."""
    return finished.stderr.decode(errors="replace").strip() or f"exit {finished.returncode}"

"""Where things are: the project's root, its fleet file, its state folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rayfleet.errors import UsageError

DEFAULT_FLEET = "infra/sandbox.yaml"
DEFAULT_STATE = ".rayfleet"
LONGEST_NAME = 255  # bytes of one part of a path, on every file system that matters
LONGEST_PATH = 1024
SHOWN = 200  # characters of a path in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The folders of one checkout.

    ``root`` is the folder that holds tasks.py; ``fleet_file`` is what people edit; ``state``
    is ours: caches, the sandbox, logs of tools, locks. Both may lie outside ``root``.
    """

    root: Path
    fleet_file: Path
    state: Path

    def logs(self, name: str) -> Path:
        """The file that keeps the whole output of the tool run called ``name``."""
        return self.state / "logs" / f"{name}.log"

    def shown(self, path: Path) -> str:
        """``path`` as an operator would type it: relative to the root when inside it."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def find_project(start: Path, *, fleet: str = DEFAULT_FLEET, state: str = DEFAULT_STATE) -> Project:
    """Find the project that ``start`` lies in: the nearest folder upwards with a tasks.py.

    ``fleet`` and ``state`` are taken relative to it, or absolute.

    Raises:
        UsageError: there is no tasks.py upwards, or no fleet file.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / "tasks.py").is_file():
            break
    else:
        raise UsageError(f"{start} is in no project", why="there is no tasks.py upwards from it")
    fleet_file = _located(folder, fleet, key="fleet")
    if not fleet_file.is_file():
        raise UsageError(
            f"no fleet file {fleet_file}",
            why="the configuration key 'fleet' (invoke.yaml, INVOKE_FLEET) names it",
            next_step="INVOKE_FLEET=infra/sandbox.yaml invoke status",
        )
    state_folder = _located(folder, state, key="state")
    if state_folder.exists() and not state_folder.is_dir():
        raise _misplaced("state", state, "it is no folder")
    return Project(root=folder, fleet_file=fleet_file, state=state_folder)


def _located(root: Path, text: str, *, key: str) -> Path:
    """The path that the configuration key ``key`` names, relative to ``root``.

    Raises:
        UsageError: it can be no path on this machine.
    """
    if not could_be_path(text):
        raise _misplaced(key, text, "no file can be called so")
    try:
        return root / Path(text).expanduser()
    except RuntimeError as error:
        raise _misplaced(key, text, "there is no such user on this machine") from error


def could_be_path(text: str) -> bool:
    """Whether a file could be called ``text``: some are refused by every file system."""
    parts = text.split("/")
    short = all(len(part.encode(errors="surrogateescape")) <= LONGEST_NAME for part in parts)
    return short and len(text) <= LONGEST_PATH and "\0" not in text


def _misplaced(key: str, text: str, why: str) -> UsageError:
    shown = repr(text if len(text) <= SHOWN else f"{text[:SHOWN]} …")
    return UsageError(
        f"the configuration key '{key}' is {shown}, which cannot be used",
        why=why,
        next_step=f"write another path into invoke.yaml, or INVOKE_{key.upper()}",
    )

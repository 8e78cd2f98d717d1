"""What git knows of a job's working directory."""

from __future__ import annotations

from pathlib import Path

from rayfleet.errors import RayfleetError
from rayfleet.git import must_git, names


def listed_files(folder: Path) -> tuple[str, ...] | None:
    """Names under ``folder`` that git tracks or would track, relative to it; None: no checkout.

    What .gitignore ignores is left out. A name may be a folder (a submodule), a link, or a
    file that was deleted.

    Raises:
        ToolFailed: ``folder`` is in a checkout that git does not read.
        PrerequisiteMissing: it is in one, and git is not installed.
    """
    if not _in_checkout(folder):
        return None
    listed = must_git(folder, "ls-files", "-z", "-co", "--exclude-standard")
    return tuple(sorted(set(names(listed))))


def commit_of(folder: Path) -> str:
    """The full commit that ``folder`` has checked out, with ``-dirty`` if files differ from it.

    Empty when ``folder`` is in no checkout, nothing is committed, or git does not work here.
    """
    if not _in_checkout(folder):
        return ""
    try:
        commit = must_git(folder, "rev-parse", "--verify", "HEAD").decode().strip()
        changed = must_git(folder, "status", "--porcelain", "--", ".")
    except RayfleetError:
        return ""
    return f"{commit}-dirty" if changed else commit


def _in_checkout(folder: Path) -> bool:
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))

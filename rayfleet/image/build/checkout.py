"""The git checkout that an image is built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rayfleet.errors import ToolFailed, UsageError
from rayfleet.git import must_git, names, try_git, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What is checked out: the full ``commit``, its ``short`` form, and what differs from it.

    ``changed`` holds the paths that are not as committed, untracked ones among them,
    relative to the checkout and limited to the paths that were asked about.
    """

    commit: str
    short: str
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """The working tree at ``root``, which need not be the top of the repository."""

    root: Path

    def revision(self, paths: Sequence[str]) -> Revision:
        """The commit, and what among ``paths`` differs from it.

        Raises:
            UsageError: ``root`` is in no git checkout, or nothing is committed yet.
        """
        commit = self._commit()
        short = must_git(self.root, "rev-parse", "--short", commit).decode().strip()
        return Revision(commit=commit, short=short, changed=_changed(self.root, (), paths))

    @property
    def prefix(self) -> str:
        """Where the checkout lies below the top of its repository; empty for the top itself."""
        return must_git(self.root, "rev-parse", "--show-prefix").decode().rstrip("/\n")

    def changed_in(self, copy: Path, paths: Sequence[str]) -> tuple[str, ...]:
        """What among ``paths`` of ``copy``, a folder with files of this checkout, differs from
        the commit. Above ``copy`` are folders as above the checkout, those of :attr:`prefix`.
        """
        top = copy
        for _ in Path(self.prefix).parts:
            top = top.parent
        folder = must_git(self.root, "rev-parse", "--absolute-git-dir").decode().rstrip("\n")
        return _changed(copy, (f"--git-dir={folder}", f"--work-tree={top}"), paths)

    def files(self, paths: Sequence[str]) -> tuple[str, ...]:
        """The files under ``paths``, sorted: tracked ones, and untracked ones not ignored.

        Raises:
            UsageError: one of ``paths`` holds no file, or a submodule.
        """
        found: set[str] = set()
        for path in paths:
            listed = must_git(self.root, "ls-files", "-z", "-co", "--exclude-standard", "--", path)
            present = {name for name in names(listed) if self._exists(name)}
            if not present:
                raise UsageError(
                    f"the build context has no file in {path}",
                    why=f"git knows none in {self.root}",
                    next_step="mend the image's context in the fleet file",
                )
            found |= present
        for name in found:
            if (self.root / name).is_dir() and not (self.root / name).is_symlink():
                raise UsageError(f"the build context has a submodule, {name}, which is not copied")
        return tuple(sorted(found))

    def _exists(self, name: str) -> bool:
        return (self.root / name).exists() or (self.root / name).is_symlink()

    def _commit(self) -> str:
        found = try_git(self.root, "rev-parse", "--git-dir")
        if "not a git repository" in words(found):
            raise UsageError(
                f"{self.root} is not a git checkout",
                why="images are named after the commit they were built from",
                next_step="git init && git add . && git commit",
            )
        if found.returncode != 0:
            raise ToolFailed(f"git refuses {self.root}", why=words(found))
        head = try_git(self.root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head.returncode != 0:
            raise UsageError(
                f"{self.root} has no commit yet",
                why="images are named after the commit they were built from",
                next_step="git add . && git commit",
            )
        return head.stdout.decode().strip()


def _changed(folder: Path, options: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    entries = must_git(
        folder,
        *options,
        *("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"),
        *("--", *paths),
    )
    # Each entry is "XY path".
    return tuple(entry[3:] for entry in names(entries))

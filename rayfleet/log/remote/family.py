"""Which files belong together: a log and what it was rotated to, and the folders of sessions.

An older file is called ``name.ext.N`` (by Python, by logrotate, and by all of Ray 2.60) or
``name.N.ext`` (by spdlog, which Ray's C++ programs log with); the higher ``N``, the older.

Sent to the nodes: Python 3.8, the standard library only.
"""

# pathlib takes longer to import than the program to start.
# ruff: noqa: PTH112, PTH116, PTH117, PTH118, PTH208

from __future__ import annotations

import fnmatch
import os
import re
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LIVE = 0
OLD_FOLDER = "old"
"""Where Ray's log monitor puts the files of workers that ended."""

_OLDEST = 1000
_TRIES = 5
# The time of a folder is only as exact as the kernel's clock tick.
_TICK_SECONDS = 0.1
_last = re.compile(r"(.+?)\.([1-9]\d{0,2})$")
_before_suffix = re.compile(r"(.+?)\.([1-9]\d{0,2})(\.[A-Za-z]\w{0,9})$")
_COMPRESSED = (".gz", ".xz", ".zst", ".bz2", ".lz4")
# Their names end with whatever a user called the job, and Ray does not rotate them.
_NEVER_ROTATED = "job-driver-"


class Pattern:
    """A glob: its folder, relative to the logs folder or absolute, and the names in it."""

    __slots__ = ("folder", "matches", "role")

    def __init__(self, glob: str, role: str) -> None:
        self.folder, name = os.path.split(glob)
        self.matches = re.compile(fnmatch.translate(name)).match
        self.role = role


class Member:
    """One file of a family as it was seen; ``order`` 0 is the one that is written."""

    __slots__ = ("identity", "order", "path", "size", "time")

    def __init__(self, path: str, order: int, info: os.stat_result) -> None:
        self.path, self.order = path, order
        self.identity = (info.st_dev, info.st_ino)
        self.size, self.time = info.st_size, info.st_mtime_ns


def generation(name: str) -> tuple[str, int]:
    """The name of the log that a file belongs to, and how often it has been rotated."""
    if not name.startswith(_NEVER_ROTATED):
        found = _last.match(name)
        if found:
            return found[1], int(found[2])
        found = _before_suffix.match(name)
        if found:
            return found[1] + found[3], int(found[2])
    return name, LIVE


class Folder:
    """The families of one folder that match any of the patterns for it."""

    def __init__(self, path: str, patterns: list[Pattern]) -> None:
        self.path = path
        self._patterns = patterns
        self._names: dict[str, list[tuple[int, str]]] = {}
        self._listed: tuple[int, float] | None = None
        self._known: dict[tuple[int, int], str] = {}
        self._map: dict[str, list[tuple[int, tuple[int, int]]]] = {}

    def look(self) -> dict[str, list[Member]] | None:
        """The members of each family, the oldest first; None while files are being renamed.

        Raises:
            OSError: the folder cannot be read, or is not there.
        """
        for _ in range(_TRIES):
            fresh = self._list()
            found = {
                name: members
                for name, files in self._names.items()
                if (members := self._members(files))
            }
            seen = {
                name: [(member.order, member.identity) for member in members]
                for name, members in found.items()
            }
            # Listing is not atomic, and a file that is just being renamed may be missed. So
            # what is new must be seen twice.
            if seen == self._map:
                return found
            self._map = seen
            if not fresh:
                self._listed = None
        return None

    def _list(self) -> bool:
        """Read the names again, unless no name can have changed; True when it was done."""
        changed = os.stat(self.path).st_mtime_ns
        if self._listed is not None:
            before, at = self._listed
            if before == changed and changed / 1e9 + _TICK_SECONDS < at:
                return False
        self._listed = (changed, time.time())
        names: dict[str, list[tuple[int, str]]] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                family = self._family(entry.name)
                if family:
                    names.setdefault(family[0], []).append((family[1], entry.name))
        for files in names.values():
            files.sort(reverse=True)
        self._names = names
        return True

    def role(self, family: str) -> str:
        """What writes a log, by the first pattern that matches it."""
        return next((each.role for each in self._patterns if each.matches(family)), "")

    def _family(self, name: str) -> tuple[str, int] | None:
        if name.endswith(_COMPRESSED):
            return None
        family, order = generation(name)
        if any(pattern.matches(family) for pattern in self._patterns):
            return family, order
        if order and any(pattern.matches(name) for pattern in self._patterns):
            return name, LIVE
        return None

    def _members(self, files: list[tuple[int, str]]) -> list[Member]:
        members: dict[tuple[int, int], Member] = {}
        for order, name in files:
            path = f"{self.path}/{name}"
            try:
                info = os.stat(path)
            except OSError:
                continue
            if stat.S_ISREG(info.st_mode):
                member = Member(path, order, info)
                members.pop(member.identity, None)
                members[member.identity] = member
        return list(members.values())


def moved_to_old(path: str) -> Member | None:
    """The file of this name among those of workers that ended."""
    folder, name = os.path.split(path)
    beside = os.path.join(folder, OLD_FOLDER, name)
    try:
        info = os.stat(beside)
    except OSError:
        return None
    return Member(beside, _OLDEST, info) if stat.S_ISREG(info.st_mode) else None


def folders(logs: str, patterns: Iterable[Pattern], *, absolute: bool) -> dict[str, list[Pattern]]:
    """The folders to look at, each with its patterns; only the absolute ones, or the others."""
    found: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        if os.path.isabs(pattern.folder) != absolute:
            continue
        for path in expand(logs, pattern.folder):
            found.setdefault(path, []).append(pattern)
    return found


def expand(base: str, glob: str) -> list[str]:
    """The folders that a glob of folders means; one without wildcards need not exist."""
    paths = ["/" if os.path.isabs(glob) else base]
    for part in [part for part in glob.split("/") if part]:
        if not any(char in part for char in "*?["):
            paths = [os.path.join(path, part) for path in paths]
            continue
        matches = re.compile(fnmatch.translate(part)).match
        paths = [
            os.path.join(path, name)
            for path in paths
            for name in _listed(path)
            if matches(name) and os.path.isdir(os.path.join(path, name))
        ]
    return paths


def _listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []

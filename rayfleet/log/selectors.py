"""From the words of ``--log`` to the files that the nodes look for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from rayfleet.cluster.heads import HEAD
from rayfleet.errors import UsageError

DEFAULT = "autoscaler"
JOB = "job:"

_AUTOSCALER = ("monitor.log", "monitor.out", "monitor.err")
ROLES: Mapping[str, tuple[str, ...]] = {
    # Ray's second autoscaler writes the same files as its first; its process is the monitor.
    "autoscaler": _AUTOSCALER,
    "monitor": _AUTOSCALER,
    "gcs_server": ("gcs_server.log", "gcs_server.out", "gcs_server.err"),
    "dashboard": ("dashboard.log", "dashboard.out", "dashboard.err"),
    "raylet": ("raylet.log", "raylet.out", "raylet.err"),
}
"""The files of each of Ray's programs, in its folder of logs."""

# What Ray calls a driver, beside the id that its submission has.
_DRIVER = re.compile(r"[0-9a-f]{8}")
_WILDCARDS = frozenset("*?[")
_GLOB = _WILDCARDS | frozenset("./")
_JOB_ID = re.compile(r"[\w.*?\[\]-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Files to follow: ``glob`` is relative to Ray's folder of logs, or absolute."""

    glob: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to follow. ``nodes``: where such files may be. ``several``: a reader must be told
    which file a line is from."""

    patterns: tuple[Pattern, ...]
    nodes: str
    several: bool


def read_logs(words: Sequence[str]) -> Selection:
    """The files that the words of ``--log`` mean; without any, those of the autoscaler.

    A word is a role (:data:`ROLES`), ``job:<id>`` with a submission id, a driver's id or a glob,
    or a glob.

    Raises:
        UsageError: a word is none of them.
    """
    chosen = tuple(dict.fromkeys(words)) or (DEFAULT,)
    patterns: dict[str, Pattern] = {}
    for word in chosen:
        for glob in _globs(word):
            patterns.setdefault(glob, Pattern(glob=glob, role=word))
    return Selection(
        patterns=tuple(patterns.values()),
        nodes="all" if any(word.startswith(JOB) for word in chosen) else HEAD,
        several=len(patterns) > 1 or bool(_WILDCARDS.intersection(*patterns)),
    )


def _globs(word: str) -> tuple[str, ...]:
    if word in ROLES:
        return ROLES[word]
    if word.startswith(JOB):
        return _of_job(word)
    if not _GLOB.intersection(word):
        near = get_close_matches(word, ROLES, n=2)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise UsageError(
            f"--log {word!r} is no log{hint}",
            why=f"logs are {', '.join(ROLES)}, {JOB}<id>, or a glob such as 'dashboard_*.log'",
        )
    if ".." in word.split("/") or word.endswith("/") or "\0" in word:
        raise UsageError(
            f"--log {word!r} is no glob of files",
            why="it is relative to Ray's folder of logs, or begins with /; without .. in it",
        )
    return (word,)


def _of_job(word: str) -> tuple[str, ...]:
    job = word.removeprefix(JOB)
    if not _JOB_ID.fullmatch(job):
        raise UsageError(f"--log {word!r} names no job", next_step="invoke jobs.list")
    if _DRIVER.fullmatch(job):
        # All that the job's workers print; its driver's own output is under the submission id.
        return (f"worker-*-{job}-*.out", f"worker-*-{job}-*.err", f"runtime_env_setup-{job}.log")
    return (f"job-driver-{job}.log",)

"""Which files a log is made of, and the remote command that reads one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

FOLDER = PurePosixPath("/tmp/ray/session_latest/logs")  # noqa: S108 (Ray's own, on the head)
POLL_SECONDS = 0.5
NO_FILE = 66  # EX_NOINPUT of sysexits.h


class Role(StrEnum):
    """What writes a log. Ray's second autoscaler writes the same files as its first."""

    AUTOSCALER = "autoscaler"


FILES: Mapping[Role, tuple[str, ...]] = {
    Role.AUTOSCALER: ("monitor.log", "monitor.out", "monitor.err"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read on each head: the last ``tail`` lines of each file, and then what comes."""

    role: Role = Role.AUTOSCALER
    folder: PurePosixPath = FOLDER
    tail: int = 10
    follow: bool = True

    def commands(self, *, tail: int) -> dict[str, str]:
        """The remote command for each file, by file name, starting ``tail`` lines back."""
        build = _follow if self.follow else _print
        return {name: build(self.folder / name, tail) for name in FILES[self.role]}


def _follow(path: PurePosixPath, tail: int) -> str:
    # GNU tail with inotify never notices that session_latest points to another session; when
    # it polls, it does. It then looks for a new file after each poll without growth.
    return (
        f"exec tail ---disable-inotify --sleep-interval={POLL_SECONDS} --max-unchanged-stats=1"
        f" --lines={tail} -F -- {shlex.quote(str(path))}"
    )


def _print(path: PurePosixPath, tail: int) -> str:
    quoted = shlex.quote(str(path))
    # Ray makes some of them only when it needs them; a head without any is told elsewhere.
    return f"[ -e {quoted} ] || exit {NO_FILE}; exec tail --lines={tail} -- {quoted}"

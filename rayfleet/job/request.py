"""From what an operator typed to a :class:`~rayfleet.job.model.JobRequest`."""

from __future__ import annotations

import getpass
import re
import secrets
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from rayfleet.arguments import parse_number
from rayfleet.errors import UsageError
from rayfleet.job.checkout import commit_of
from rayfleet.job.model import JobRequest

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MASK = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job as typed. ``working_dir`` is relative to where the operator stands; None: no files.

    ``timeout`` is how many seconds to stay with the job. ``argv`` is the whole command line;
    the job's metadata keeps it without the values of
    ``--env``.
    """

    entrypoint: str
    working_dir: Path | None = None
    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    num_cpus: float = 0.0
    timeout: float = 86_400.0
    argv: Sequence[str] = field(default=(), repr=False)

    def request(self, *, package: str = "") -> JobRequest:
        """The request, with a new submission id and the metadata that tells whose it is."""
        user = _user()
        return JobRequest(
            submission_id=new_submission_id(user, datetime.now(UTC)),
            entrypoint=self.entrypoint,
            env_vars=self.env_vars,
            package=package,
            num_cpus=self.num_cpus,
            metadata={
                "owner": f"{user}@{socket.gethostname()}",
                "commit": commit_of((self.working_dir or Path.cwd()).resolve()),
                "command": recorded_command(self.argv),
            },
        )


def parse_order(
    entrypoint: str,
    *,
    working_dir: str,
    env: Sequence[str],
    num_cpus: str,
    timeout: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
) -> Order:
    """Read the arguments of ``jobs.submit``.

    Raises:
        UsageError: the entrypoint is empty, or a number or variable makes no sense.
    """
    if not entrypoint.strip():
        raise UsageError("no entrypoint", next_step="invoke jobs.submit --cluster X 'python x.py'")
    return Order(
        entrypoint=entrypoint,
        working_dir=Path(working_dir).expanduser() if working_dir else None,
        env_vars=parse_env(env, environ),
        num_cpus=parse_number(num_cpus, "--num-cpus", smallest=0.0),
        timeout=parse_number(timeout, "--timeout", smallest=1.0),
        argv=argv,
    )


def parse_env(pairs: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Read ``KEY=VALUE`` and ``KEY``; the latter takes its value from ``environ``.

    Raises:
        UsageError: a key is no variable name, or ``environ`` lacks it. Values are not shown.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not _KEY.fullmatch(key):
            shown = key if equals else "an --env without '='"
            raise UsageError(f"--env: {shown} is no name of a variable", why="write KEY=VALUE")
        if not equals and key not in environ:
            raise UsageError(f"--env {key}: it is not set here", why="write KEY=VALUE or set it")
        found[key] = value if equals else environ[key]
    return found


def new_submission_id(user: str, now: datetime) -> str:
    """``rayfleet-<user>-<UTC time>-<random>``: fit for a URL and a file name, never used twice."""
    name = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")[:32] or "unknown"
    return f"rayfleet-{name}-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def recorded_command(argv: Sequence[str]) -> str:
    """``argv`` as one line of shell, with the values of ``--env`` masked."""
    shown = list(argv[:1])
    for before, word in pairwise(argv):
        if before == "--env":
            word = _masked(word)
        elif word.startswith("--env="):
            word = "--env=" + _masked(word.removeprefix("--env="))
        shown.append(word)
    return shlex.join(shown)


def _masked(pair: str) -> str:
    key, equals, _ = pair.partition("=")
    return f"{key}={_MASK}" if equals else key


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"

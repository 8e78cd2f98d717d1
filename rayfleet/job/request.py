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
from rayfleet.job.needs import Needs, parse_pairs
from rayfleet.job.redaction import MASK, looks_secret, redacted, secrets_of

OURS = ("owner", "commit", "command")
"""The metadata that every submit records by itself."""

_PAIRS = ("--env", "--metadata")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job as typed. ``working_dir`` is relative to where the operator stands; None: no files.

    ``metadata`` is added to what every job records. ``timeout`` is how many seconds to stay with
    the job. ``argv`` is the whole command line; the job's metadata keeps it without secrets and
    without the values of ``--env`` and ``--metadata``.
    """

    entrypoint: str
    working_dir: Path | None = None
    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    needs: Needs = field(default_factory=Needs)
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
            needs=self.needs,
            metadata={
                **self.metadata,
                "owner": operator(),
                "commit": commit_of((self.working_dir or Path.cwd()).resolve()),
                "command": recorded_command(self.argv, secrets_of(self.env_vars)),
            },
        )


def parse_order(
    entrypoint: str,
    *,
    working_dir: str,
    env: Sequence[str],
    timeout: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    metadata: Sequence[str] = (),
    needs: Needs | None = None,
) -> Order:
    """Read the arguments of ``jobs.submit``.

    Raises:
        UsageError: the entrypoint is empty, or a number, variable or key makes no sense.
    """
    if not entrypoint.strip():
        raise UsageError("no entrypoint", next_step="invoke jobs.submit --cluster X 'python x.py'")
    return Order(
        entrypoint=entrypoint,
        working_dir=Path(working_dir).expanduser() if working_dir else None,
        env_vars=parse_env(env, environ),
        metadata=parse_metadata(metadata),
        needs=needs or Needs(),
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


def parse_metadata(pairs: Sequence[str]) -> dict[str, str]:
    """Read the ``KEY=VALUE`` of ``--metadata``.

    Raises:
        UsageError: a key is missing, given twice, or one that every submit records itself.
    """
    found = parse_pairs(pairs, "--metadata", "KEY=VALUE")
    for key in OURS:
        if key in found:
            raise UsageError(
                f"--metadata {key} is recorded by rayfleet itself",
                why="it tells who submitted a job, from what and how",
                next_step="choose another key",
            )
    return found


def new_submission_id(user: str, now: datetime) -> str:
    """``rayfleet-<user>-<UTC time>-<random>``: fit for a URL and a file name, never used twice."""
    name = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")[:32] or "unknown"
    return f"rayfleet-{name}-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def recorded_command(argv: Sequence[str], secrets: Sequence[str] = ()) -> str:
    """``argv`` as one line of shell, without what is secret in it.

    The values of ``--env`` and ``--metadata`` are masked whatever they are, ``secrets`` and
    all that :func:`~rayfleet.job.redaction.redacted` knows wherever they stand.
    """
    shown = list(argv[:1])
    for before, word in pairwise(argv):
        option, equals, value = word.partition("=")
        if before in _PAIRS:
            shown.append(_masked(word))
        elif equals and option in _PAIRS:
            shown.append(f"{option}={_masked(value)}")
        elif before.startswith("--") and "=" not in before and looks_secret(before):
            shown.append(MASK)
        else:
            shown.append(redacted(word, secrets))
    return shlex.join(shown)


def _masked(pair: str) -> str:
    key, equals, _ = pair.partition("=")
    return f"{key}={MASK}" if equals else key


def operator() -> str:
    """Who runs this: ``user@host``."""
    return f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"

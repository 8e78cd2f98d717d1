"""From a cluster of the fleet to a client of its jobs: over SSH, no port opened."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import UsageError
from rayfleet.fleet.model import Auth, AuthMode, Cluster, Fleet
from rayfleet.job.client import JobClient

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head
    from rayfleet.project import Project

DASHBOARD_PORT = 8265


@contextmanager
def open_jobs(project: Project, fleet: Fleet, cluster: Cluster) -> Iterator[JobClient]:
    """The jobs of ``cluster`` for as long as the block lasts.

    Raises:
        Unreachable: there is no head, or it does not answer.
    """
    from rayfleet.cluster.head import Head
    from rayfleet.cluster.nodes import head_address

    with Head.open(head_address(project, fleet, cluster)) as head:
        yield jobs_of(head, cluster)


def jobs_of(head: Head, cluster: Cluster, *, port: int = DASHBOARD_PORT) -> JobClient:
    """The jobs of ``cluster`` over an open connection to its head, whose dashboard is at ``port``.

    Raises:
        UsageError: the cluster's token cannot be read.
    """
    token = auth_token(cluster.auth, os.environ)
    return JobClient(head.http(port), cluster=cluster.name, token=token)


def auth_token(auth: Auth, environ: Mapping[str, str]) -> str | None:
    """The token for a cluster, looked for where Ray looks: None if it wants none or none is here.

    That is RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, then ~/.ray/auth_token.

    Raises:
        UsageError: the file that RAY_AUTH_TOKEN_PATH names cannot be read.
    """
    if auth.mode is AuthMode.DISABLED:
        return None
    if token := environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = environ.get("RAY_AUTH_TOKEN_PATH", "")
    path = Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text().strip() or None
    except OSError as error:
        if not named:
            return None
        raise UsageError(f"cannot read RAY_AUTH_TOKEN_PATH {path}", why=str(error)) from error

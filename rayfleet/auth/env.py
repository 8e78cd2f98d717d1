"""What a shell needs so that Ray's own commands are let in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rayfleet.auth.check import fetch
from rayfleet.console import Console
from rayfleet.fleet.model import AuthMode, Cluster, Fleet
from rayfleet.project import Project


def exports(project: Project, fleet: Fleet, cluster: Cluster, console: Console) -> Iterator[str]:
    """Lines for ``eval``. No RAY_ADDRESS: a head is reached through SSH only.

    Raises:
        RayfleetError: the token cannot be read.
    """
    # It would win over the path.
    yield "unset RAY_AUTH_TOKEN"
    if cluster.auth.mode is AuthMode.DISABLED:
        yield "unset RAY_AUTH_TOKEN_PATH"
    else:
        path = fetch(project, fleet, [cluster], console)[cluster.name]
        yield f"export RAY_AUTH_TOKEN_PATH={shlex.quote(path)}"
    yield f"export RAY_AUTH_MODE={cluster.auth.mode.value}"

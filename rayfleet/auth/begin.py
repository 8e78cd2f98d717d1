"""The first token of a cluster, and which version of a secret its config names."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from rayfleet.console import Console
from rayfleet.errors import ToolFailed, UsageError
from rayfleet.fleet.model import AuthMode, Cluster, Fleet
from rayfleet.fleet.token_versions import read_versions, write_version
from rayfleet.locks import exclusive
from rayfleet.project import Project
from rayfleet.secret.store import Secret
from rayfleet.secret.tokens import secret_of

TOKEN_BYTES = 32


def new_token() -> str:
    """A new random token."""
    return secrets.token_hex(TOKEN_BYTES)


def secrets_of(
    project: Project, fleet: Fleet, clusters: Sequence[Cluster]
) -> dict[str, tuple[Secret, tuple[Cluster, ...]]]:
    """The secrets with the tokens of ``clusters`` by name, each with all clusters of the fleet
    that share it.

    Raises:
        UsageError: none of them has a token.
    """
    names = [c.auth.secret for c in clusters if c.auth.mode is AuthMode.TOKEN]
    if not names:
        raise UsageError(
            f"{', '.join(cluster.name for cluster in clusters)} want no token",
            why="the fleet file says auth: {mode: disabled}",
        )
    found = {}
    for name in dict.fromkeys(names):
        sharing = tuple(
            one
            for one in fleet.clusters.values()
            if one.auth.mode is AuthMode.TOKEN and one.auth.secret == name
        )
        found[name] = (secret_of(project, fleet, sharing[0]), sharing)
    return found


def ensure_token(fleet: Fleet, secret: Secret) -> tuple[str, bool]:
    """Have a version of ``secret``, and have configs name one; returns it, and whether it is new.

    What is there already stays as it is.

    Raises:
        RayfleetError: the secret cannot be made, or the file of versions is broken.
    """
    there, named = _version_there(fleet, secret)
    version = there or secret.add(new_token())
    if version != named:
        write_version(fleet, secret.name, version)
    return version, not there


def begin(
    project: Project,
    fleet: Fleet,
    clusters: Sequence[Cluster],
    console: Console,
    *,
    dry_run: bool = False,
) -> None:
    """Do it for the secrets of ``clusters``, and say what comes next; a dry run says what it would
    do.

    Raises:
        Locked: another run makes or rotates the same.
        RayfleetError: as of :func:`ensure_token`.
    """
    for name, (secret, sharing) in secrets_of(project, fleet, clusters).items():
        names = ", ".join(cluster.name for cluster in sharing)
        if dry_run:
            console.data(f"{name}: {_would_do(fleet, secret)}, for {names}")
            continue
        with exclusive(project.state, f"auth-{name}"):
            version, new = ensure_token(fleet, secret)
        there = "made" if new else "is there"
        console.say(f"{name}: version {version} {there}, for {names}")
    console.say("nothing was changed" if dry_run else "next: invoke update-configs")


def _version_there(fleet: Fleet, secret: Secret) -> tuple[str, str]:
    """The version that configs shall name (none: one has to be made), and the one they name.

    Raises:
        ToolFailed: they name one that is gone, and there are others.
    """
    enabled, named = secret.enabled(), read_versions(fleet).get(secret.name, "")
    if named and enabled and named not in enabled:
        raise ToolFailed(
            f"version {named} of {secret.name} is gone or disabled",
            why=f"clusters are started with it; there are {', '.join(enabled)}",
            next_step="invoke auth.rotate --all",
        )
    there = named if named in enabled else next(iter(enabled), "")
    return there, named


def _would_do(fleet: Fleet, secret: Secret) -> str:
    there, named = _version_there(fleet, secret)
    if not there:
        return "would make a new version, which configs would name"
    if there != named:
        return f"version {there} is there, which configs would name"
    return f"version {there} is there, and configs name it"

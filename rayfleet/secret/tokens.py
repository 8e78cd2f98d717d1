"""From a cluster of the fleet to its secret, its token and the file that keeps it here."""

from __future__ import annotations

import os
from pathlib import Path

from rayfleet.fleet.model import AuthMode, Cluster, Fleet, Provider
from rayfleet.project import Project
from rayfleet.secret.credential import Credential
from rayfleet.secret.store import FileSecret, GoogleSecret, Secret


def secret_of(project: Project, fleet: Fleet, cluster: Cluster) -> Secret:
    """The secret with the token of ``cluster``."""
    if cluster.provider is Provider.SANDBOX:
        return FileSecret(project.state / "sandbox" / "secrets" / cluster.auth.secret)
    return GoogleSecret(fleet.project, cluster.auth.secret)


def credential_of(project: Project, fleet: Fleet, cluster: Cluster) -> Credential | None:
    """The token of ``cluster``; None where it wants none.

    RAY_AUTH_TOKEN, when it is set, is the operator's word for this one command. Ray's own places
    for a token, ~/.ray/auth_token and RAY_AUTH_TOKEN_PATH, are never read: what lies there may
    be another cluster's.
    """
    if cluster.auth.mode is AuthMode.DISABLED:
        return None
    return Credential(
        secret=secret_of(project, fleet, cluster),
        cache=cache_of(project, fleet, cluster),
        said=os.environ.get("RAY_AUTH_TOKEN", "").strip(),
    )


def cache_of(project: Project, fleet: Fleet, cluster: Cluster) -> Path:
    """The file that keeps the token of ``cluster`` on this machine."""
    return project.state / "tokens" / fleet.project / cluster.name

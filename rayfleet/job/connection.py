"""From a cluster of the fleet to a client of its jobs: over SSH, no port opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.job.client import JobClient
from rayfleet.secret.tokens import credential_of

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
        yield jobs_of(project, fleet, head, cluster)


def jobs_of(
    project: Project,
    fleet: Fleet,
    head: Head,
    cluster: Cluster,
    *,
    port: int = DASHBOARD_PORT,
    patience: bool = True,
    admit: Callable[[], None] = lambda: None,
) -> JobClient:
    """The jobs of ``cluster`` over an open connection to its head, dashboard at ``port``; for
    ``patience`` and ``admit`` see :class:`JobClient`."""
    token = credential_of(project, fleet, cluster)
    return JobClient(
        head.http(port), cluster=cluster.name, token=token, patience=patience, admit=admit
    )

"""From a cluster of the fleet to a client of its jobs: over SSH, no port opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rayfleet.cluster.token import auth_token as auth_token
from rayfleet.fleet.model import Cluster, Fleet
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

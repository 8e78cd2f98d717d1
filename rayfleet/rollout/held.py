"""Clusters that are part of a rollout: nobody else changes them, or gives them jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rayfleet.cluster.lease import lease_of
from rayfleet.cluster.mark import refuse_marked
from rayfleet.errors import Locked
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.project import Project

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head
    from rayfleet.job.client import JobClient


def refuse_held(project: Project, clusters: Sequence[Cluster]) -> None:
    """Raise if any of ``clusters`` is part of an unfinished rollout of this machine.

    Raises:
        Locked: rollouts have some of them; all are named.
    """
    leases = [lease for cluster in clusters if (lease := lease_of(project, cluster))]
    if not leases:
        return
    now = time.time()
    refusal = leases[0].refusal(now)
    if len(leases) == 1:
        raise refusal
    raise Locked(
        f"{', '.join(lease.cluster for lease in leases)} are part of unfinished rollouts",
        why="".join(f"\n  {lease.cluster}: {lease.describe(now)}" for lease in leases),
        next_step=refusal.next_step,
    )


@contextmanager
def open_free_head(project: Project, fleet: Fleet, cluster: Cluster) -> Iterator[Head]:
    """A connection to the head of a cluster that no rollout of any machine changes now.

    Raises:
        Locked: one does.
        Unreachable: there is no head, or it does not answer.
    """
    from rayfleet.cluster.head import Head
    from rayfleet.cluster.nodes import head_address

    refuse_held(project, [cluster])
    with Head.open(head_address(project, fleet, cluster)) as head:
        refuse_marked(head)
        yield head


@contextmanager
def open_free_jobs(project: Project, fleet: Fleet, cluster: Cluster) -> Iterator[JobClient]:
    """The jobs of such a cluster, for who changes them. Before each submission it is looked again:
    an upload takes its time, and a rollout may have begun.

    Raises:
        Locked: a rollout changes the cluster.
        Unreachable: there is no head, or it does not answer.
    """
    from rayfleet.job.connection import jobs_of

    def admit(head: Head) -> None:
        refuse_held(project, [cluster])
        refuse_marked(head)

    with open_free_head(project, fleet, cluster) as head:
        yield jobs_of(project, fleet, head, cluster, admit=partial(admit, head))

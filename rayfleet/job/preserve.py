"""Save the jobs of a cluster, and give them back: where head, vault and client meet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, UsageError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.job.connection import DASHBOARD_PORT, jobs_of
from rayfleet.job.infrastructure import Rule, infrastructure_rule
from rayfleet.job.vault.choice import default_backup
from rayfleet.job.vault.model import Backup
from rayfleet.job.vault.store import Vault
from rayfleet.project import Project
from rayfleet.waiting import Clock, SystemClock

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head
    from rayfleet.job.client import JobClient
    from rayfleet.job.model import Job
    from rayfleet.job.restore.report import Report


class IncompleteBackup(PartialFailure):
    """A backup was made, and something that should be in it is not."""


@dataclass(frozen=True)
class Preserver:
    """Saves and restores the jobs of one fleet's clusters.

    Nothing here takes the lock of the cluster: a restart does all of it while it holds it.
    ``enter`` lends a connection to a head (default: a new one each time), whose dashboard is at
    ``port``; ``narrate`` hears what is going on (default: the console).
    """

    project: Project
    fleet: Fleet
    console: Console
    enter: Callable[[Cluster], AbstractContextManager[Head]] | None = None
    port: int = DASHBOARD_PORT
    narrate: Callable[[str], None] | None = None
    clock: Clock | None = None

    @cached_property
    def vault(self) -> Vault:
        """Where the backups are kept: in the state folder, for its owner alone."""
        return Vault(self.project.state / "vault")

    def backup(
        self,
        cluster: Cluster,
        *,
        onto: Backup | None = None,
        stopped: Collection[str] = (),
        once: bool = False,
    ) -> Backup:
        """Save every job of ``cluster`` that has not ended, and return what was saved.

        The backup may be incomplete; it says so, and :meth:`require_complete` raises. See
        :func:`~rayfleet.job.snapshot.taker.take_backup` for ``onto``, ``stopped`` and ``once``.

        The dashboard is asked too, once, whether it lists a job that the backup lacks.

        Raises:
            Unreachable: the jobs could not be listed. That is not "no jobs".
            ToolFailed: the head cannot tell its jobs, or the vault does not hold what it took.
        """
        from rayfleet.job.snapshot.source import HeadSource
        from rayfleet.job.snapshot.taker import take_backup

        def dashboard() -> tuple[Job, ...]:
            once = jobs_of(self.project, self.fleet, head, cluster, port=self.port, patience=False)
            return once.list()

        with self._head(cluster) as head:
            return take_backup(
                HeadSource(head, dashboard_port=self.port),
                self.vault,
                cluster=cluster.name,
                identity=cluster.identity,
                infrastructure=self.infrastructure,
                dashboard=dashboard,
                narrate=self._narrator(cluster),
                onto=onto,
                stopped=stopped,
                once=once,
                clock=self.clock,
            )

    @cached_property
    def infrastructure(self) -> Rule:
        """Which jobs belong to the clusters themselves."""
        return infrastructure_rule(self.fleet.infrastructure_jobs)

    @contextmanager
    def jobs(self, cluster: Cluster) -> Iterator[JobClient]:
        """The jobs of ``cluster`` for as long as the block lasts.

        Raises:
            Unreachable: there is no head, or it does not answer.
        """
        with self._head(cluster) as head:
            yield jobs_of(self.project, self.fleet, head, cluster, port=self.port)

    def bring_packages(
        self, cluster: Cluster, backup: Backup, *, only: Collection[str]
    ) -> tuple[int, tuple[str, ...]]:
        """Bring the packages of the jobs ``only`` of ``backup`` to the head, and prove it.

        Returns how many there are, and the problems, a line each.

        Raises:
            Unreachable: the head does not answer, or stopped answering on the way.
        """
        from rayfleet.job.restore.packages import bring_packages

        jobs = [job for job in backup.restorable if job.submission_id in only]
        uris = tuple(dict.fromkeys(uri for job in jobs for uri in job.packages))
        if not uris:
            return 0, ()
        with self.jobs(cluster) as client:
            problems = bring_packages(
                client,
                self.vault,
                backup,
                uris,
                narrate=self._narrator(cluster),
                clock=self.clock or SystemClock(),
            )
        return len(uris), problems

    def restore(
        self,
        cluster: Cluster,
        *,
        backup_id: str = "",
        only: Sequence[str] = (),
        stopped: Collection[str] = (),
        emptied: bool = False,
        per_second: float | None = None,
        watch: float | None = None,
    ) -> Report:
        """Give ``cluster`` the jobs of a backup back: the named one, else its latest complete one.

        ``only`` names the jobs to give back (default: all), ``per_second`` how fast they are
        submitted and ``watch`` for how many seconds they are watched while they start; None
        takes restore's own defaults. Safe to run again, after a kill too. See
        :func:`~rayfleet.job.restore.restorer.restore` for ``stopped`` and ``emptied``.

        Raises:
            UsageError: there is no such backup or job, or it is another cluster's.
            Unreachable: the head does not answer, or stopped answering on the way.
        """
        from rayfleet.job.restore.restorer import restore

        backup = self._chosen(cluster, backup_id)
        with self.jobs(cluster) as client:
            return restore(
                client,
                self.vault,
                backup,
                only=only,
                stopped=stopped,
                emptied=emptied,
                per_second=per_second,
                watch=watch,
                narrate=self._narrator(cluster),
                clock=self.clock,
            )

    def plan_restore(
        self,
        cluster: Cluster,
        *,
        backup_id: str = "",
        only: Sequence[str] = (),
        stopped: Collection[str] = (),
    ) -> Report:
        """What :meth:`restore` would do for each job; nothing is submitted or brought.

        Raises:
            UsageError: there is no such backup or job, or it is another cluster's.
            Unreachable: the head does not answer.
        """
        from rayfleet.job.restore.restorer import plan_restore

        backup = self._chosen(cluster, backup_id)
        with self.jobs(cluster) as client:
            return plan_restore(client, self.vault, backup, only=only, stopped=stopped)

    def _chosen(self, cluster: Cluster, backup_id: str) -> Backup:
        if not backup_id:
            return default_backup(self.vault, cluster.name, self._narrator(cluster))
        backup = self.vault.load(backup_id)
        if backup.identity != cluster.identity:
            raise UsageError(
                f"{backup_id} is no backup of {cluster.name}",
                why=f"it holds the jobs of {backup.cluster}",
                next_step=f"invoke jobs.vault --cluster {cluster.name}",
            )
        if not backup.complete:
            self._narrator(cluster)(f"{backup_id} is incomplete: {'; '.join(backup.missing)}")
        return backup

    def _head(self, cluster: Cluster) -> AbstractContextManager[Head]:
        from rayfleet.cluster.head import Head
        from rayfleet.cluster.nodes import head_address

        if self.enter is not None:
            return self.enter(cluster)
        return Head.open(head_address(self.project, self.fleet, cluster))

    def _narrator(self, cluster: Cluster) -> Callable[[str], None]:
        return self.narrate or (lambda text: self.console.event(f"{cluster.name}: {text}"))


def require_complete(backup: Backup) -> None:
    """Raise unless every job of ``backup`` can be given back exactly.

    Raises:
        IncompleteBackup: it names what is missing.
    """
    if backup.complete:
        return
    lines = "\n  ".join(["missing:", *backup.missing])
    raise IncompleteBackup(
        f"the backup of {backup.cluster} is incomplete",
        why=f"it is kept as {backup.id}, and no restore takes it by itself; {lines}",
        next_step=f"invoke jobs.backup --cluster {backup.cluster}",
    )

"""Save the jobs of a cluster, and give them back: where head, vault and client meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rayfleet.console import Console
from rayfleet.errors import PartialFailure, UsageError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.job.vault.choice import default_backup
from rayfleet.job.vault.model import Backup
from rayfleet.job.vault.store import Vault
from rayfleet.project import Project

if TYPE_CHECKING:
    from rayfleet.job.restore.report import Report


class IncompleteBackup(PartialFailure):
    """A backup was made, and something that should be in it is not."""


@dataclass(frozen=True)
class Preserver:
    """Saves and restores the jobs of one fleet's clusters.

    Neither takes the lock of the cluster: a restart does both while it holds it.
    """

    project: Project
    fleet: Fleet
    console: Console

    @cached_property
    def vault(self) -> Vault:
        """Where the backups are kept: in the state folder, for its owner alone."""
        return Vault(self.project.state / "vault")

    def backup(self, cluster: Cluster) -> Backup:
        """Save every job of ``cluster`` that has not ended, and return what was saved.

        The backup may be incomplete; it says so, and :meth:`require_complete` raises.

        Raises:
            Unreachable: the jobs could not be listed. That is not "no jobs".
            ToolFailed: the head cannot tell its jobs, or the vault does not hold what it took.
        """
        from rayfleet.cluster.head import Head
        from rayfleet.cluster.nodes import head_address
        from rayfleet.job.infrastructure import infrastructure_rule
        from rayfleet.job.snapshot.source import HeadSource
        from rayfleet.job.snapshot.taker import take_backup

        with Head.open(head_address(self.project, self.fleet, cluster)) as head:
            return take_backup(
                HeadSource(head),
                self.vault,
                cluster=cluster.name,
                identity=cluster.identity,
                infrastructure=infrastructure_rule(self.fleet.infrastructure_jobs),
                narrate=self._narrator(cluster),
            )

    def restore(
        self,
        cluster: Cluster,
        *,
        backup_id: str = "",
        only: Sequence[str] = (),
        per_second: float | None = None,
        watch: float | None = None,
    ) -> Report:
        """Give ``cluster`` the jobs of a backup back: the named one, else its latest complete one.

        ``only`` names the jobs to give back (default: all), ``per_second`` how fast they are
        submitted and ``watch`` for how many seconds they are watched while they start; None
        takes restore's own defaults. Safe to run again, after a kill too.

        Raises:
            UsageError: there is no such backup or job, or it is another cluster's.
            Unreachable: the head does not answer, or stopped answering on the way.
        """
        from rayfleet.job.connection import open_jobs
        from rayfleet.job.restore.restorer import restore

        backup = self._chosen(cluster, backup_id)
        with open_jobs(self.project, self.fleet, cluster) as client:
            return restore(
                client,
                self.vault,
                backup,
                only=only,
                per_second=per_second,
                watch=watch,
                narrate=self._narrator(cluster),
            )

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
            self.console.say(f"{backup_id} is incomplete: {'; '.join(backup.missing)}")
        return backup

    def _narrator(self, cluster: Cluster) -> Callable[[str], None]:
        return lambda text: self.console.event(f"{cluster.name}: {text}")


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

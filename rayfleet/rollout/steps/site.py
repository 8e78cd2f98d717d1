"""What the steps of one cluster work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.cluster.config import LaunchConfig
from rayfleet.cluster.machines import Machines
from rayfleet.cluster.nodes import address_of
from rayfleet.console import Console
from rayfleet.errors import Unreachable
from rayfleet.files import write_atomically
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.job.connection import DASHBOARD_PORT
from rayfleet.job.preserve import Preserver
from rayfleet.project import Project
from rayfleet.rollout.model import Change, Direction, Output, Step, Unhealthy
from rayfleet.rollout.performer import Task
from rayfleet.rollout.steps.links import Links
from rayfleet.secret.tokens import credential_of
from rayfleet.waiting import Clock, SystemClock

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head
    from rayfleet.job.client import JobClient
    from rayfleet.job.dashboard import Dashboard

POLL_SECONDS = 0.5  # between two looks at nodes that are being terminated


@dataclass(frozen=True, kw_only=True)
class Site:
    """One step of one cluster: its task, and the means to do it.

    ``fleet`` is the fleet whose configs are those that this direction goes to; ``folder`` is the
    rollout's. The dashboard of its head is at ``port``.
    """

    project: Project
    fleet: Fleet
    cluster: Cluster
    folder: Path
    operator: str
    links: Links
    task: Task
    note: Callable[[Output], None]
    narrate: Callable[[str], None]
    port: int = DASHBOARD_PORT
    clock: Clock = field(default_factory=SystemClock)

    @cached_property
    def machines(self) -> Machines:
        """The machines, as the config of this direction describes them."""
        return self._machines(self.fleet)

    @cached_property
    def grounds(self) -> tuple[Machines, ...]:
        """The machines at every place where some may be: a change may move a cluster."""
        found = [self.machines]
        for fleet in (configured(self.fleet, self.folder, back=back) for back in (False, True)):
            if not fleet.config_path(self.cluster).exists():
                continue
            other = self._machines(fleet)
            if all(_place(other.config) != _place(each.config) for each in found):
                found.append(other)
        return tuple(found)

    @cached_property
    def preserver(self) -> Preserver:
        """Saves and restores jobs over the connection of this cluster."""
        lend = partial(self.links.lent, self.cluster.name, self._connect)
        return Preserver(
            self.project,
            self.fleet,
            Console(),
            enter=lambda _: lend(),
            port=self.port,
            narrate=self.narrate,
            clock=self.clock,
        )

    @property
    def repairs(self) -> bool:
        """Whether a head that answers nobody may be replaced: the operator has said so."""
        return self.task.plan.settings.unhealthy is Unhealthy.REPAIR

    @property
    def headless(self) -> bool:
        """Whether an earlier try of this rollout may be why the cluster has no head."""
        return self.task.changed and not self.output(Step.PREFLIGHT).get("head")

    @property
    def back(self) -> bool:
        """Whether this is the way back."""
        return self.task.direction is Direction.BACK

    def head(self) -> Head:
        """The connection to the head.

        Raises:
            Unreachable: there is no head, or it does not answer.
        """
        return self.links.get(self.cluster.name, self._connect)

    def dashboard(self, *, attempts: int = 3) -> Dashboard:
        """The head's HTTP API; each read is tried ``attempts`` times.

        Raises:
            Unreachable: there is no head, or it does not answer.
        """
        from rayfleet.job.dashboard import Dashboard

        name, token = self.cluster.name, credential_of(self.project, self.fleet, self.cluster)
        http = self.head().http(self.port)
        return Dashboard(http, cluster=name, token=token, attempts=attempts)

    def jobs(self) -> JobClient:
        """The head's jobs; nothing is tried twice.

        Raises:
            Unreachable: there is no head, or it does not answer.
        """
        from rayfleet.job.client import JobClient

        name, token = self.cluster.name, credential_of(self.project, self.fleet, self.cluster)
        http = self.head().http(DASHBOARD_PORT)
        return JobClient(http, cluster=name, token=token, patience=False)

    def mark(self) -> None:
        """Mark the head as ours, and note that it bears our mark.

        Raises:
            Locked: it bears another's.
            Unreachable: it does not answer.
        """
        from rayfleet.cluster.mark import Mark, place_mark

        plan = self.task.plan
        since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        path = marked(self.folder, self.cluster.name)
        if not path.exists():
            write_atomically(path, plan.id, mode=0o600)
        place_mark(self.head(), Mark(rollout=plan.id, operator=self.operator, since=since))

    def forget_mark(self) -> None:
        """Note that no head bears our mark any more."""
        marked(self.folder, self.cluster.name).unlink(missing_ok=True)

    def output(self, step: Step) -> Output:
        """What an earlier step of this direction has left; empty when it was not done."""
        return self.task.outputs.get(step, {})

    @property
    def backups(self) -> tuple[str, ...]:
        """The backups that this way has made, each with all jobs of the one before that have not
        ended by themselves."""
        steps = (Step.SNAPSHOT, Step.QUIESCE, Step.STOP, Step.EMPTY)
        found = (*map(self.output, steps), *self.task.notes)
        return tuple(dict.fromkeys(str(one["backup"]) for one in found if one.get("backup")))

    def _machines(self, fleet: Fleet) -> Machines:
        return Machines(
            project=self.project,
            fleet=fleet,
            cluster=self.cluster,
            narrate=self.narrate,
            interval=POLL_SECONDS,
        )

    def _connect(self) -> Head:
        from rayfleet.cluster.head import Head

        nodes = self.machines.nodes
        node = nodes.head()
        if not node:
            raise Unreachable(f"{self.cluster.name} has no head")
        host = nodes.address(node)
        return Head.open(address_of(self.project, self.fleet, self.cluster, nodes.config, host))


def marked(folder: Path, cluster: str) -> Path:
    """The file that says that the head of ``cluster`` may bear the mark of the rollout there."""
    return folder / "marks" / cluster


def configured(fleet: Fleet, folder: Path, *, back: bool) -> Fleet:
    """``fleet`` with the configs that the rollout in ``folder`` has frozen: the wanted ones, or
    (``back``) those that its clusters ran with before."""
    configs = folder / ("previous" if back else "configs")
    return replace(fleet, outputs=replace(fleet.outputs, configs=configs))


def fleet_of(fleet: Fleet, folder: Path, task: Task) -> Fleet:
    """``fleet`` as the direction of ``task`` wants it. What did not run before is only stopped on
    its way back, for which the wanted config is the only one."""
    started = task.target.change is Change.START
    back = task.direction is Direction.BACK and not started
    return configured(fleet, folder, back=back)


def _place(config: LaunchConfig) -> tuple[str, str]:
    return config.identity, repr(sorted(config.provider.items(), key=str))

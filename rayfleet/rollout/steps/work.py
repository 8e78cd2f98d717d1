"""The real performer: every step of a rollout on the clusters of a fleet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.cluster.lease import Names, hold_cluster, release_cluster
from rayfleet.cluster.mark import remove_mark
from rayfleet.errors import RayfleetError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.project import Project
from rayfleet.rollout.gates.chosen import gates_for, subject_for, times_for, trouble
from rayfleet.rollout.gates.probe import sweep
from rayfleet.rollout.gates.run import run_gates
from rayfleet.rollout.model import TOUCHING, Output, Plan, Step, Target
from rayfleet.rollout.performer import Task
from rayfleet.rollout.steps import give_back, machines, saving
from rayfleet.rollout.steps.gone import in_fleet, require_known
from rayfleet.rollout.steps.links import Links
from rayfleet.rollout.steps.preflight import preflight
from rayfleet.rollout.steps.quiesce import quiesce
from rayfleet.rollout.steps.site import Site, configured, fleet_of, marked

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head

_OUTSIDE = re.compile(r"invoke (?:re)?(?:start|stop) --cluster \S+")


class ClusterWork:
    """Does the steps of the rollout in ``folder`` on the clusters of ``fleet``.

    ``operator`` is ``user@host``.
    """

    def __init__(self, project: Project, fleet: Fleet, folder: Path, *, operator: str) -> None:
        self._project = project
        self._fleet = fleet
        self._folder = folder
        self._operator = operator
        self._links = Links()

    def perform(
        self,
        step: Step,
        task: Task,
        *,
        note: Callable[[Output], None],
        narrate: Callable[[str], None],
    ) -> Output:
        """Do ``step``; see :class:`~rayfleet.rollout.performer.Performer`."""
        site = Site(
            project=self._project,
            fleet=fleet_of(self._fleet, self._folder, task),
            cluster=require_known(self._fleet, task.plan, task.target),
            folder=self._folder,
            operator=self._operator,
            links=self._links,
            task=task,
            note=note,
            narrate=narrate,
        )
        try:
            return _STEPS[step](site)
        except RayfleetError as error:
            # Whoever else starts or stops the cluster is refused as long as we have it.
            if step in TOUCHING:
                retry = f"invoke rollouts.retry {task.plan.id} --cluster {task.target.cluster}"
                error.next_step = _OUTSIDE.sub(retry, error.next_step)
            raise

    def trouble(self, target: Target) -> str:
        """What is wrong with a cluster while its wave bakes; empty when nothing is."""
        if not in_fleet(self._fleet, target):
            return ""  # it is none of ours any more
        fleet = configured(self._fleet, self._folder, back=False)
        cluster = fleet.clusters[target.cluster]
        try:
            rollout = self._folder.name
            with subject_for(self._project, fleet, cluster, rollout=rollout) as subject:
                return trouble(subject)
        except RayfleetError as error:
            return f"{error.what}: {error.why}" if error.why else error.what

    @contextmanager
    def hold(self, plan: Plan, target: Target) -> Iterator[str]:
        """Keep everybody else from changing the cluster while the block runs; see
        :class:`~rayfleet.rollout.performer.Performer`.

        Raises:
            Locked: somebody else holds it.
            LeftFleet: the fleet file has it no more.
        """
        cluster = require_known(self._fleet, plan, target)
        holding = hold_cluster(self._project, cluster, rollout=plan.id, operator=self._operator)
        with holding as lease:
            try:
                yield lease
            finally:
                self._links.forget(cluster.name)

    def release(self, plan: Plan, target: Target) -> None:
        """Give the cluster free: it needs nothing of this rollout any more."""
        path = marked(self._folder, target.cluster)
        if path.exists():
            # A head that does not answer, or that nobody finds any more, keeps its mark until
            # somebody unlocks or replaces it.
            with suppress(RayfleetError):
                cluster = require_known(self._fleet, plan, target)
                with self._head(cluster) as head:
                    remove_mark(head, rollout=plan.id)
                    path.unlink(missing_ok=True)
        names = Names(name=target.cluster, identity=target.identity)
        release_cluster(self._project, names, rollout=plan.id)

    def _head(self, cluster: Cluster) -> Head:
        from rayfleet.cluster.head import Head
        from rayfleet.cluster.nodes import head_address

        fleet = configured(self._fleet, self._folder, back=False)
        return Head.open(head_address(self._project, fleet, cluster))


def _gates(site: Site) -> Output:
    """Ask every gate until all are open."""
    workers = site.output(Step.PREFLIGHT).get("workers", {})
    emptied = site.output(Step.EMPTY).get("at")
    subject = subject_for(
        site.project,
        site.fleet,
        site.cluster,
        rollout=site.task.plan.id,
        config=site.machines.config,
        before=workers if isinstance(workers, Mapping) else {},
        emptied=float(emptied) if isinstance(emptied, float | int) else None,
    )
    with subject:
        return run_gates(
            gates_for(site.fleet, root=site.project.root),
            subject,
            times=times_for(site.fleet),
            narrate=site.narrate,
        )


def _close(site: Site) -> Output:
    """Leave nothing of the rollout on the head."""
    if marked(site.folder, site.cluster.name).exists():
        with suppress(RayfleetError):
            remove_mark(site.head(), rollout=site.task.plan.id)
        site.forget_mark()
    if site.output(Step.GATES):
        # Ray needs some seconds until an ended job can be deleted; what stays, the next deletes.
        with suppress(RayfleetError):
            sweep(site.jobs())
    return {}


_STEPS: Mapping[Step, Callable[[Site], Output]] = {
    Step.PREFLIGHT: preflight,
    Step.SNAPSHOT: saving.snapshot,
    Step.VERIFY: saving.verify,
    Step.QUIESCE: quiesce,
    Step.STOP: machines.stop,
    Step.EMPTY: machines.empty,
    Step.START: machines.start,
    Step.GATES: _gates,
    Step.PACKAGES: give_back.packages,
    Step.JOBS: give_back.jobs,
    Step.WATCH: give_back.watch,
    Step.CLOSE: _close,
}

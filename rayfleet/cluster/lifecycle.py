"""Start and stop one cluster outside of any rollout."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.cluster.health import Observed, observe
from rayfleet.cluster.lease import free_cluster
from rayfleet.cluster.machines import Machines
from rayfleet.cluster.mark import refuse_marked
from rayfleet.cluster.nodes import Nodes, address_of, head_address
from rayfleet.cluster.started import record_start
from rayfleet.console import Console
from rayfleet.errors import RayfleetError, ToolFailed, Unreachable
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.project import Project
from rayfleet.secret.tokens import credential_of
from rayfleet.waiting import wait_until

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head, HeadAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTimes:
    """How long a started cluster may take, in seconds, until the head answers with the right
    image (``head``) and its minimum of workers has joined (``workers``); ``interval`` between
    two looks."""

    head: float = 120.0
    workers: float = 600.0
    interval: float = 2.0


@dataclass(frozen=True)
class Lifecycle:
    """The life of one fleet's clusters."""

    project: Project
    fleet: Fleet
    console: Console
    times: GateTimes = GateTimes()

    def observe(self, cluster: Cluster, also: Callable[[Head], None] | None = None) -> Observed:
        """What ``cluster`` is now; ``also`` as of :func:`rayfleet.cluster.health.observe`.

        Raises:
            UsageError: its config has not been generated.
        """
        config = read_launch_config(self.fleet, cluster)
        token = credential_of(self.project, self.fleet, cluster)
        address = self._address_of(cluster, config)
        return observe(config, cluster.name, address, token=token, also=also)

    def start(self, cluster: Cluster) -> Observed:
        """Bring ``cluster`` up and through its gates; a healthy one is left as it is.

        Raises:
            UsageError: its image is in no registry of its region, or it has no config.
            ToolFailed: Ray could not bring it up.
            Unreachable: a gate did not open in time; the message names it.
            Locked: another run changes it, or it is part of a rollout, of any machine.
        """
        with self._alone(cluster):
            seen = self.observe(cluster)
            if not seen.failing():
                return seen
            self._refuse_marked(cluster)
            return self._start(cluster)

    def stop(self, cluster: Cluster) -> int:
        """Terminate every node of ``cluster``, prove that none is left; returns how many went.

        Raises:
            ToolFailed: nodes are left.
            Locked: another run changes it, or it is part of a rollout, of any machine.
        """
        with self._alone(cluster):
            self._refuse_marked(cluster)
            return self._stop(cluster)

    def nodes(self, cluster: Cluster) -> tuple[str, ...]:
        """Ids of all nodes of ``cluster`` that exist, stopped ones included."""
        return Nodes(read_launch_config(self.fleet, cluster)).everything()

    def open_head(self, cluster: Cluster) -> Head:
        """A connection to the head of ``cluster``.

        Raises:
            Unreachable: it has none, or it does not answer.
        """
        from rayfleet.cluster.head import Head

        return Head.open(head_address(self.project, self.fleet, cluster))

    def require_image(self, cluster: Cluster) -> None:
        """See that the registry of the cluster's region has the configured image.

        Raises:
            UsageError: it has not.
            Unreachable: the registry does not answer.
        """
        self._machines(cluster).require_image()

    def _refuse_marked(self, cluster: Cluster) -> None:
        # A dead head is nobody's.
        with suppress(Unreachable), self.open_head(cluster) as head:
            refuse_marked(head)

    def _start(self, cluster: Cluster) -> Observed:
        machines = self._machines(cluster)
        machines.require_image()
        return self._gates(cluster, machines.config, machines.launch())

    def _stop(self, cluster: Cluster) -> int:
        machines = self._machines(cluster)
        gone = machines.terminate()
        machines.require_none()
        return gone

    def _machines(self, cluster: Cluster) -> Machines:
        return Machines(
            project=self.project,
            fleet=self.fleet,
            cluster=cluster,
            narrate=lambda text: self._event(cluster, text),
            interval=self.times.interval,
        )

    def _gates(self, cluster: Cluster, config: LaunchConfig, node: str) -> Observed:
        """The head answers, runs the configured image, and its workers have joined."""
        seen = self._gate(cluster, self.times.head, lambda seen: seen.answers, "its head")
        if config.digest and seen.image_digest != config.digest:
            raise ToolFailed(
                f"{cluster.name}: the head does not run the pinned image",
                why=f"have {seen.image_digest or 'an unknown one'}, want {config.digest}",
                next_step=f"invoke restart --cluster {cluster.name}",
            )
        self._event(cluster, f"head answers (Ray {seen.ray_version}), waiting for workers")
        self._gate(cluster, self.times.workers, lambda seen: not seen.failing(), "its workers")
        with self.open_head(cluster) as head:
            record_start(head, config, state=self.project.state, node=node)
        seen = self.observe(cluster)
        self._event(cluster, f"healthy, workers: {seen.joined}")
        return seen

    def _gate(
        self,
        cluster: Cluster,
        timeout: float,
        passed: Callable[[Observed], bool],
        what: str,
    ) -> Observed:
        last: list[Observed] = []

        def look() -> Observed | None:
            last[:] = [self.observe(cluster)]
            return last[0] if passed(last[0]) else None

        return wait_until(
            look,
            what=f"{cluster.name}: {what}",
            timeout=timeout,
            interval=self.times.interval,
            reason=lambda: "; ".join(last[0].failing()) if last else "",
            next_step=f"invoke tail-logs --cluster {cluster.name} --no-follow --tail 30",
        )

    def _address_of(self, cluster: Cluster, config: LaunchConfig) -> Callable[[str], HeadAddress]:
        return lambda host: address_of(self.project, self.fleet, cluster, config, host)

    def _alone(self, cluster: Cluster) -> AbstractContextManager[None]:
        return alone(self.project, cluster)

    def _event(self, cluster: Cluster, text: str) -> None:
        self.console.event(f"{cluster.name}: {text}")


def alone(project: Project, cluster: Cluster) -> AbstractContextManager[None]:
    """Keep other runs from changing ``cluster`` while the block runs.

    Raises:
        Locked: another run changes it, or a rollout is not through with it.
    """
    return free_cluster(project, cluster, next_step=f"invoke status --cluster {cluster.name}")


def brief(error: RayfleetError) -> str:
    """An error in one line, for a table."""
    return " ".join(f"{error.what}: {error.why}".split())[:160] if error.why else error.what

"""Start, stop and restart one cluster: each step looks first, so that a second run after a
kill at any moment ends the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.cluster.health import Observed, observe, record_start
from rayfleet.cluster.known_hosts import forget_host, record_host_key
from rayfleet.cluster.launcher import Launcher
from rayfleet.cluster.nodes import Nodes, address_of, head_address, known_hosts
from rayfleet.console import Console
from rayfleet.errors import RayfleetError, ToolFailed, Unreachable, UsageError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.locks import exclusive
from rayfleet.project import Project
from rayfleet.waiting import DeadlineExceeded, wait_until

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head, HeadAddress

GONE_TIMEOUT = 300.0  # seconds until no node is left
LAUNCHER_NEWS = ("Launched a new head node", "New status: ")


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

    def observe(self, cluster: Cluster) -> Observed:
        """What ``cluster`` is now.

        Raises:
            UsageError: its config has not been generated.
        """
        config = read_launch_config(self.fleet, cluster)
        return observe(config, cluster.name, self._address_of(cluster))

    def start(self, cluster: Cluster) -> Observed:
        """Bring ``cluster`` up and through its gates; a healthy one is left as it is.

        Raises:
            UsageError: its image is in no registry of its region, or it has no config.
            ToolFailed: Ray could not bring it up.
            Unreachable: a gate did not open in time; the message names it.
        """
        with self._alone(cluster):
            seen = self.observe(cluster)
            if not seen.failing():
                return seen
            return self._start(cluster)

    def stop(self, cluster: Cluster) -> int:
        """Terminate every node of ``cluster``, prove that none is left; returns how many went.

        Raises:
            ToolFailed: nodes are left.
        """
        with self._alone(cluster):
            return self._stop(cluster)

    def restart(self, cluster: Cluster) -> Observed:
        """Stop ``cluster``, prove that nothing is left, start it, pass its gates.

        The image is looked up first: a cluster that could not start again is not stopped.
        """
        with self._alone(cluster):
            self.require_image(cluster)
            self._stop(cluster)
            return self._start(cluster)

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
        from rayfleet.image.oci.client import RegistryClient
        from rayfleet.image.oci.credentials import credentials_for

        config = read_launch_config(self.fleet, cluster)
        host, _, rest = config.image.partition("/")
        name, _, digest = rest.partition("@")
        repository, _, tag = name.partition(":")
        client = RegistryClient(host, credentials_for(host, self.fleet))
        if client.manifest_digest(repository, digest or tag) is None:
            raise UsageError(
                f"{cluster.name}: the registry of {cluster.region} does not have {name}",
                why=f"it has no manifest {digest or tag}",
                next_step="invoke cluster-docker, then invoke update-configs",
            )

    def _start(self, cluster: Cluster) -> Observed:
        self.require_image(cluster)
        config = read_launch_config(self.fleet, cluster)
        self._event(cluster, "ray up")
        Launcher(self.project).up(config, self._narrator(cluster))
        self._record_host_key(cluster, config)
        return self._gates(cluster, config)

    def _stop(self, cluster: Cluster) -> int:
        config = read_launch_config(self.fleet, cluster)
        nodes = Nodes(config)
        existing = nodes.everything()
        if not existing:
            return 0
        self._event(cluster, f"terminating {len(existing)} nodes")
        gone = nodes.terminate_all()
        self._event(cluster, "ray down")
        Launcher(self.project).down(config, lambda line: None)
        self._require_nothing_left(cluster, nodes)
        forget_host(known_hosts(self.project, self.fleet), cluster.identity)
        return len(gone)

    def _require_nothing_left(self, cluster: Cluster, nodes: Nodes) -> None:
        try:
            wait_until(
                lambda: not nodes.everything(),
                what="the last node to go",
                timeout=GONE_TIMEOUT,
                interval=self.times.interval,
            )
        except DeadlineExceeded as error:
            raise ToolFailed(
                f"{cluster.name} is not all gone",
                why=f"still there: {', '.join(nodes.everything())}",
                next_step=f"invoke stop --cluster {cluster.name}",
            ) from error

    def _record_host_key(self, cluster: Cluster, config: LaunchConfig) -> None:
        """Take the head's key from its own record, over the cloud's channel, not over SSH."""
        nodes = Nodes(config)
        head = nodes.head()
        if not head:
            raise Unreachable(
                f"{cluster.name}: the head is gone right after its start",
                next_step=f"invoke restart --cluster {cluster.name}",
            )
        if key := nodes.host_key(head):
            record_host_key(known_hosts(self.project, self.fleet), cluster.identity, key)

    def _gates(self, cluster: Cluster, config: LaunchConfig) -> Observed:
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
            record_start(head, config)
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

    def _address_of(self, cluster: Cluster) -> Callable[[str], HeadAddress]:
        return lambda host: address_of(self.project, self.fleet, cluster, host)

    def _alone(self, cluster: Cluster) -> AbstractContextManager[None]:
        return alone(self.project, cluster)

    def _event(self, cluster: Cluster, text: str) -> None:
        self.console.event(f"{cluster.name}: {text}")

    def _narrator(self, cluster: Cluster) -> Callable[[str], None]:
        def narrate(line: str) -> None:
            text = line.partition(" -- ")[2] or line
            if text.startswith(LAUNCHER_NEWS):
                self._event(cluster, text.removeprefix("New status: ").lower())

        return narrate


def alone(project: Project, cluster: Cluster) -> AbstractContextManager[None]:
    """Keep other runs from changing ``cluster`` while the block runs.

    Raises:
        Locked: another run changes it.
    """
    return exclusive(
        project.state,
        f"cluster-{cluster.identity}",
        next_step=f"invoke status --cluster {cluster.name}",
    )


def brief(error: RayfleetError) -> str:
    """An error in one line, for a table."""
    return " ".join(f"{error.what}: {error.why}".split())[:160] if error.why else error.what

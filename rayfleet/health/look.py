"""Look at a cluster from all sides at once: its head, its cloud, its workers, its bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.cluster.fanout import fan_out, reason
from rayfleet.cluster.heads import WORKERS, Heads
from rayfleet.cluster.health import DASHBOARD_PORT, Observed, ask
from rayfleet.cluster.lifecycle import Lifecycle
from rayfleet.errors import RayfleetError
from rayfleet.fleet.model import Cluster
from rayfleet.health.cloud import GoogleHoldings
from rayfleet.health.room import COMMAND, parse_rooms
from rayfleet.health.sight import Finding, Seen, Sight
from rayfleet.health.states import PASSING, findings
from rayfleet.rollout.gates.inside import look_inside
from rayfleet.rollout.gates.scaling import STATUS, Scaling, parse_scaling
from rayfleet.rollout.progress import progress_of
from rayfleet.secret.credential import Token
from rayfleet.secret.tokens import credential_of
from rayfleet.waiting import Clock, SystemClock
from rayfleet.worker.queue import in_google

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head

HEAD, CLOUD, BUCKET = "the head", "the cloud", "the bucket"
SIDE_SECONDS = 150.0  # for one side of one cluster
DEEP_SECONDS = 900.0  # the same with all of its workers: a slice may have hundreds of machines
NODE_SECONDS = 60.0  # for one worker
NODES_AT_ONCE = 32
DISK_SECONDS = 20.0  # df waits for file systems that hang
AGAIN_SECONDS = 20.0
"""After these a state that may pass is looked for again: the autoscaler thinks every 5 s."""


@dataclass(frozen=True)
class Looker:
    """Looks at the clusters of ``life``'s fleet; ``place`` finds what one holds in its cloud.

    ``deep`` asks every worker and the bucket's place as well: seconds per cluster.
    """

    life: Lifecycle
    deep: bool = False
    place: Callable[[LaunchConfig], GoogleHoldings] = GoogleHoldings
    now: Callable[[], float] = time.time
    clock: Clock = field(default_factory=SystemClock)

    @property
    def seconds(self) -> float:
        """How long one look at a cluster may take."""
        return DEEP_SECONDS if self.deep else SIDE_SECONDS

    def examine(self, cluster: Cluster) -> tuple[Sight, tuple[Finding, ...]]:
        """What is seen of ``cluster``, and the known states that it is in.

        One that may pass by itself is told only when it is there a while later, too.

        Raises:
            UsageError: its config has not been generated.
        """
        sight = self.look(cluster)
        found = findings(sight)
        if not any(finding.state in PASSING for finding in found):
            return sight, found
        self.clock.sleep(AGAIN_SECONDS)
        sight = self.look(cluster)
        before = {(finding.state, finding.subjects) for finding in found}
        again = findings(sight)
        return sight, tuple(
            finding
            for finding in again
            if finding.state not in PASSING or (finding.state, finding.subjects) in before
        )

    def look(self, cluster: Cluster) -> Sight:
        """What is seen of ``cluster`` now.

        Raises:
            UsageError: as of :meth:`examine`.
        """
        config = read_launch_config(self.life.fleet, cluster)
        token = credential_of(self.life.project, self.life.fleet, cluster)
        heard = _Heard(cluster, token)
        before = progress_of(self.life.project, cluster)
        sides: dict[str, Callable[[], Any]] = {
            HEAD: lambda: self.life.observe(cluster, also=heard.listen)
        }
        if in_google(config):
            place = self.place(config)
            sides[CLOUD] = place.all
            if self.deep and cluster.bucket:
                sides[BUCKET] = partial(place.bucket_location, cluster.bucket)
        if self.deep:
            sides[WORKERS] = partial(self._workers, cluster)
        seen = fan_out(
            sides, limit=len(sides), timeout=self.seconds, what=f"a side of {cluster.name}"
        )
        blind = {
            side: reason(error) for side, error in seen.items() if isinstance(error, RayfleetError)
        }
        got: dict[str, Any] = {side: seen[side] for side in seen if side not in blind}
        nodes, dark = got.get(WORKERS, ({}, {}))
        return Sight(
            cluster=cluster,
            config=config,
            observed=got.get(HEAD) or Observed(cluster=cluster.name, problem=blind[HEAD]),
            now=self.now(),
            holdings=got.get(CLOUD),
            nodes=heard.nodes | nodes,
            scaling=heard.scaling,
            bucket=got.get(BUCKET),
            ours=_installed_ray(),
            blind=blind | heard.blind | dark,
            # One that has just ended had the cluster while it was looked at.
            rollout=progress_of(self.life.project, cluster) or before,
        )

    def _workers(self, cluster: Cluster) -> tuple[Mapping[str, Seen], Mapping[str, str]]:
        """What the workers say, and why some say nothing."""
        with Heads(self.life.project, self.life.fleet) as heads:
            targets = heads.targets([cluster], WORKERS)
            said = heads.each(targets, look_at_node, limit=NODES_AT_ONCE, timeout=NODE_SECONDS)
        seen = {name: one for name, one in said.items() if isinstance(one, Seen)}
        dark = {name: reason(one) for name, one in said.items() if isinstance(one, RayfleetError)}
        return seen, dark


def look_at_node(head: Head) -> Seen:
    """What a node says of itself.

    Raises:
        Unreachable: it does not answer.
        ToolFailed: its shell did not run the command.
    """
    inside = look_inside(head)
    return Seen(inside=inside, rooms=parse_rooms(head.run(COMMAND, timeout=DISK_SECONDS).stdout))


@dataclass
class _Heard:
    """What the head says beyond what :func:`rayfleet.cluster.health.observe` asks."""

    cluster: Cluster
    token: Token
    nodes: dict[str, Seen] = field(default_factory=dict)
    scaling: Scaling | None = None
    blind: dict[str, str] = field(default_factory=dict)

    def listen(self, head: Head) -> None:
        """Ask; what does not answer is kept as such."""
        try:
            self.nodes[self.cluster.name] = look_at_node(head)
        except RayfleetError as error:
            self.blind["inside the head"] = reason(error)
        try:
            self.scaling = parse_scaling(ask(head.http(DASHBOARD_PORT), STATUS, self.token))
        except RayfleetError as error:
            self.blind["the autoscaler's report"] = reason(error)


def examine_all(
    looker: Looker, clusters: Sequence[Cluster], *, limit: int = 16
) -> dict[str, tuple[Sight, tuple[Finding, ...]] | RayfleetError]:
    """Examine ``clusters``, at most ``limit`` at once; each result or error by its name."""
    return fan_out(
        {cluster.name: partial(looker.examine, cluster) for cluster in clusters},
        limit=limit,
        timeout=2 * looker.seconds + AGAIN_SECONDS,
        what="the cluster",
    )


def _installed_ray() -> str:
    try:
        return version("ray")
    except PackageNotFoundError:
        return ""

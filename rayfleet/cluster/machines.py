"""The machines of one cluster, brought up and taken down in small operations.

Each looks first, so that a second run after a kill at any moment ends the same. None takes the
cluster's lock: that is for those who put them together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.cluster.known_hosts import forget_host, record_host_key
from rayfleet.cluster.launcher import Launcher
from rayfleet.cluster.nodes import Nodes, known_hosts
from rayfleet.errors import ToolFailed, Unreachable, UsageError
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.project import Project
from rayfleet.waiting import Clock, DeadlineExceeded, SystemClock, wait_until

GONE_TIMEOUT = 300.0  # seconds until no node is left
LAUNCH_PAUSES = (10.0, 30.0)  # seconds before `ray up` is tried again
# What Ray says of an API that may answer a moment later; it tries nothing twice itself.
PASSING = re.compile(
    r"HttpError (?:429|5\d\d)|ConnectionResetError|RemoteDisconnected|BrokenPipeError|TimeoutError"
)
LAUNCHER_NEWS = ("Launched a new head node", "New status: ")


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines of ``cluster``, which is configured in ``fleet``; ``narrate`` hears of them.

    ``interval`` is in seconds, between two looks at what is being terminated.
    """

    project: Project
    fleet: Fleet
    cluster: Cluster
    narrate: Callable[[str], None]
    interval: float = 2.0
    clock: Clock | None = None

    @cached_property
    def config(self) -> LaunchConfig:
        """The generated config.

        Raises:
            UsageError: there is none.
        """
        return read_launch_config(self.fleet, self.cluster)

    @cached_property
    def nodes(self) -> Nodes:
        """The nodes, at the provider that the config names."""
        return Nodes(self.config)

    def require_image(self) -> None:
        """See that the registry of the cluster's region has the configured image.

        Raises:
            UsageError: it has not.
            Unreachable: the registry does not answer.
        """
        from rayfleet.image.oci.client import RegistryClient
        from rayfleet.image.oci.credentials import credentials_for

        host, _, rest = self.config.image.partition("/")
        name, _, digest = rest.partition("@")
        repository, _, tag = name.partition(":")
        client = RegistryClient(host, credentials_for(host, self.fleet))
        if client.manifest_digest(repository, digest or tag) is None:
            raise UsageError(
                f"{self.cluster.name}: the registry of {self.cluster.region} does not have {name}",
                why=f"it has no manifest {digest or tag}",
                next_step="invoke cluster-docker, then invoke update-configs",
            )

    def terminate(self) -> int:
        """Terminate every node, the head first; return how many went.

        ``ray down`` is asked only when something is left then: it does the same, and takes
        seconds to find nothing.
        """
        existing = self.nodes.everything()
        if not existing:
            return 0
        self.narrate(f"terminating {len(existing)} nodes")
        gone = self.nodes.terminate_all()
        if self.nodes.everything():
            self.narrate("ray down")
            Launcher(self.project).down(self.config, lambda line: None)
        return len(gone)

    def require_none(self) -> None:
        """Wait until no node is left, not even one that is shutting down: what ran there has
        ended with it. Then nobody trusts the old head's key any more.

        A node that came late, of a launch that was under way, is terminated too.

        Raises:
            ToolFailed: nodes are left.
        """

        def nothing() -> bool:
            for node in self.nodes.everything():
                self.nodes.terminate(node)
            return not self.nodes.remaining()

        try:
            wait_until(
                nothing,
                what="the last node to go",
                timeout=GONE_TIMEOUT,
                interval=self.interval,
                clock=self.clock,
            )
        except DeadlineExceeded as error:
            raise ToolFailed(
                f"{self.cluster.name} is not all gone",
                why=f"still there: {', '.join(self.nodes.remaining())}",
                next_step=f"invoke stop --cluster {self.cluster.name}",
            ) from error
        forget_host(known_hosts(self.project, self.fleet), self.cluster.identity)

    def launch(self) -> str:
        """``ray up``, then trust the new head's key; returns the head's node id. Where the cloud's
        API only failed to answer it is tried again: it goes on with the head that is there.

        Raises:
            ToolFailed: Ray could not bring it up.
            Unreachable: the head is gone already.
        """
        self._up()
        head = self.nodes.head()
        if not head:
            raise Unreachable(
                f"{self.cluster.name}: the head is gone right after its start",
                next_step=f"invoke restart --cluster {self.cluster.name}",
            )
        self.trust(head)
        return head

    def trust(self, head: str) -> None:
        """Take the head's key from its own record, over the cloud's channel, not over SSH."""
        if key := self.nodes.host_key(head):
            path = known_hosts(self.project, self.fleet)
            record_host_key(path, self.cluster.identity, key)

    def _up(self) -> None:
        clock = self.clock or SystemClock()
        for pause in LAUNCH_PAUSES:
            self.narrate("ray up")
            try:
                return Launcher(self.project).up(self.config, self._hear)
            except ToolFailed as error:
                if not PASSING.search(error.why) or "Quota" in error.why:
                    raise
                self.narrate(f"the cloud's API did not answer; once more in {pause:.0f} s")
            clock.sleep(pause)
        self.narrate("ray up")
        return Launcher(self.project).up(self.config, self._hear)

    def _hear(self, line: str) -> None:
        text = line.partition(" -- ")[2] or line
        if text.startswith(LAUNCHER_NEWS):
            self.narrate(text.removeprefix("New status: ").lower())

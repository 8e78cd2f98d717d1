"""The machines of a cluster, through Ray's own node provider, so that one code path serves
every cloud. This module and the launcher are the only ones that know Ray's providers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfleet.cluster import google, google_hosts
from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.google_api import patiently, said, transient
from rayfleet.google_zone import LATER
from rayfleet.waiting import Clock, SystemClock

if TYPE_CHECKING:
    from rayfleet.cluster.head import HeadAddress
    from rayfleet.project import Project

TERMINATE_LIMIT = 16  # terminations at once
HEAD = {"ray-node-type": "head"}
WORKER = {"ray-node-type": "worker"}


@dataclass
class Nodes:
    """The nodes of one cluster. All methods raise :class:`Unreachable` when the cloud's API
    (the Docker engine, for the sandbox) does not answer, after a few tries where Google says
    that it may pass. An answer for a part of the places is none."""

    config: LaunchConfig
    clock: Clock = field(default_factory=SystemClock, repr=False)

    def head(self) -> str:
        """The id of the running head; empty when there is none."""
        found = self._alive("list the head", HEAD)
        return found[0] if found else ""

    def head_host(self, cluster: str) -> str:
        """The address of the running head, for the operator.

        Raises:
            Unreachable: ``cluster`` has no head.
        """
        head = self.head()
        if not head:
            raise Unreachable(
                f"{cluster} has no head", next_step=f"invoke start --cluster {cluster}"
            )
        return self.address(head)

    def workers(self) -> dict[str, str]:
        """The running workers by id, with those that were added by hand; of a slice of TPUs, its
        machines. The address of each is there where the listing told it, else it is empty."""
        if not self._in_google():
            return dict.fromkeys(self.running_workers(), "")
        ask = partial(google_hosts.addresses, self._provider, inside=self._inside)
        found = self._ask("list the machines", ask)
        return {machine: found[machine] for machine in sorted(found, key=_by_number)}

    def running_workers(self) -> tuple[str, ...]:
        """Ids of the running workers that are Ray's own, a slice of TPUs as one."""
        return tuple(sorted(self._alive("list the workers", WORKER)))

    def everything(self) -> tuple[str, ...]:
        """Ids of all nodes that exist, stopped and half-made ones included."""
        return self._existing("list the nodes", {})

    def remaining(self) -> tuple[str, ...]:
        """Like :meth:`everything`, with the nodes that are shutting down: what runs there has not
        ended yet."""
        if not self._in_google():
            return self.everything()
        return tuple(self._ask("list what is left", lambda: google.remaining(self._provider)))

    def address(self, node: str) -> str:
        """The node's address for the operator: inside of its network where the config says so.

        Raises:
            Unreachable: it has none there, or the cloud does not answer.
        """
        inside = self._inside
        ask = self._provider.internal_ip if inside else self._provider.external_ip
        if "#" in node and self._in_google():
            ask = partial(google_hosts.address, self._provider, inside=inside)
        address = self._ask("ask for an address", lambda: ask(node))
        if not address:
            raise Unreachable(
                f"{self.config.identity}: {node} has no {'in' if inside else 'ex'}ternal address",
                why="it is still being made, or is behind a firewall of Google Cloud",
                next_step="in the latter case set use_internal_ips in the template's provider",
            )
        return str(address)

    def host_key(self, node: str) -> str:
        """The node's public host keys, a line each, from its own record; empty where the cloud
        keeps none."""
        reader = getattr(self._provider, "host_key", None)
        if self._in_google():
            reader = partial(google_hosts.host_keys, self._provider)
        return str(self._ask("read the host key", lambda: reader(node))) if reader else ""

    def image_digest(self, node: str) -> str:
        """The digest of the image that a VM was made of; empty where a VM is not an image."""
        reader = getattr(self._provider, "image_digest", None)
        return str(self._ask("read the image", lambda: reader(node))) if reader else ""

    def terminate_all(self) -> tuple[str, ...]:
        """Terminate the head first, so that its autoscaler replaces nothing, then the rest in
        parallel; returns the ids."""
        nodes = self.everything()
        heads = self._existing("list the head", HEAD)
        self.terminate(*heads)
        # Workers that the dying head was still launching are in this second look.
        rest = [node for node in self.everything() if node not in heads]
        self.terminate(*rest)
        return tuple(dict.fromkeys((*nodes, *rest)))

    def terminate(self, *nodes: str) -> None:
        """Terminate these nodes side by side; one that is gone is fine.

        Google Cloud has ended them then, unless that takes longer than
        :data:`rayfleet.cluster.google.DELETE_TIMEOUT`: :meth:`remaining` still has those.
        """
        if not nodes:
            return
        end_one = self._start_deletion if self._in_google() else self._terminate
        with ThreadPoolExecutor(TERMINATE_LIMIT) as pool:
            started = dict(zip(nodes, pool.map(end_one, nodes), strict=True))
            going = {node: operation for node, operation in started.items() if operation}
            end = self.clock.monotonic() + google.DELETE_TIMEOUT
            while going and self.clock.monotonic() < end:
                over = dict(zip(going, pool.map(self._has_ended, going.items()), strict=True))
                going = {node: going[node] for node in going if not over[node]}
                if going:
                    self.clock.sleep(google.DELETE_INTERVAL)

    def _terminate(self, node: str) -> None:
        self._ask(f"terminate {node}", lambda: self._provider.terminate_node(node))

    def _start_deletion(self, node: str) -> dict[str, Any] | None:
        found = self._ask(f"terminate {node}", lambda: google.start_deletion(self._provider, node))
        return found or None

    def _has_ended(self, going: tuple[str, dict[str, Any]]) -> bool:
        node, operation = going
        doing = f"terminate {node}"
        return bool(self._ask(doing, lambda: google.has_ended(self._provider, node, operation)))

    def _alive(self, doing: str, labels: dict[str, str]) -> tuple[str, ...]:
        if self._in_google():
            return tuple(self._ask(doing, lambda: google.alive(self._provider, labels)))
        found = self._ask(doing, lambda: self._provider.non_terminated_nodes(labels))
        return tuple(str(node) for node in found)

    def _existing(self, doing: str, labels: dict[str, str]) -> tuple[str, ...]:
        if self._in_google():
            return tuple(self._ask(doing, lambda: google.existing(self._provider, labels)))
        return tuple(self._ask(doing, lambda: self._provider.nodes_for_teardown(labels)))

    @property
    def _inside(self) -> bool:
        return bool(self.config.provider.get("use_internal_ips"))

    def _in_google(self) -> bool:
        return bool(self._ask("reach the cloud", lambda: google.is_google(self._provider)))

    @cached_property
    def _provider(self) -> Any:
        from ray.autoscaler._private.providers import _get_node_provider

        tpus = any("TPU" in node_type.found for node_type in self.config.node_types)
        section = google.section(self.config.provider, tpus=tpus)
        provider = _get_node_provider(section, self.config.identity, use_cache=False)
        return google.patient(provider)

    def _ask(self, doing: str, question: Any) -> Any:
        """Every cloud's SDK has its own tree of errors; here they become one."""
        try:
            return patiently(question, self.clock)
        except ImportError as error:
            raise ToolFailed(
                f"{self.config.identity}: Ray cannot load the provider of this cloud",
                why=str(error),
                next_step="invoke doctor",
            ) from error
        except Exception as error:
            raise Unreachable(
                f"{self.config.identity}: cannot {doing}",
                why=said(error),
                next_step=LATER if transient(error) else "invoke doctor",
            ) from error


def head_address(project: Project, fleet: Fleet, cluster: Cluster) -> HeadAddress:
    """How to reach the head of ``cluster``.

    Raises:
        Unreachable: it has no head, or the cloud does not answer.
        UsageError: its config has not been generated.
    """
    nodes = Nodes(read_launch_config(fleet, cluster))
    host = nodes.head_host(cluster.name)
    return address_of(project, fleet, cluster, nodes.config, host)


def address_of(
    project: Project, fleet: Fleet, cluster: Cluster, config: LaunchConfig, host: str
) -> HeadAddress:
    """How to reach a head that is at ``host``; ``config`` is the cluster's."""
    from rayfleet.cluster.head import HeadAddress

    ssh = cluster.ssh
    return HeadAddress(
        cluster=cluster.name,
        host=host,
        user=ssh.user,
        private_key=Path(ssh.private_key).expanduser() if ssh.private_key else None,
        proxy_command=ssh.proxy_command,
        container=config.container,
        known_hosts=known_hosts(project, fleet),
        alias=cluster.identity,
    )


def worker_address(
    project: Project, fleet: Fleet, cluster: Cluster, config: LaunchConfig, node: str, host: str
) -> HeadAddress:
    """How to reach the worker ``node`` of ``cluster`` that is at ``host``."""
    return replace(
        address_of(project, fleet, cluster, config, host),
        # The id of a TPU VM is a path.
        alias=f"{cluster.identity}.{node.rpartition('/')[2].replace('#', '.')}",
        worker=worker_label(cluster, node),
    )


def worker_label(cluster: Cluster, node: str) -> str:
    """The id of a worker without what the ids of all nodes of its cluster begin with."""
    return node.partition(f"{cluster.identity}-")[2] or node


def _by_number(machine: str) -> tuple[str, int]:
    node, _, index = machine.partition("#")
    return node, int(index or 0)


def known_hosts(project: Project, fleet: Fleet) -> Path:
    """The file with the host keys of the fleet's heads."""
    return project.state / "known_hosts" / fleet.project

"""The machines of a cluster, through Ray's own node provider, so that one code path serves
every cloud. This module and the launcher are the only ones that know Ray's providers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.errors import ToolFailed, Unreachable
from rayfleet.fleet.model import Cluster, Fleet

if TYPE_CHECKING:
    from rayfleet.cluster.head import HeadAddress
    from rayfleet.project import Project

TERMINATE_LIMIT = 16  # terminations at once
HEAD = {"ray-node-type": "head"}
WORKER = {"ray-node-type": "worker"}
CLUSTER = "ray-cluster-name"
ENDING = frozenset({"STOPPING", "SUSPENDING", "DEPROVISIONING", "DELETING", "HIDING", "REPAIRING"})
"""The states of a VM (status) and of a TPU VM (state) of Google Cloud in which its processes may
still run and that Ray does not count as alive.
https://cloud.google.com/compute/docs/instances/instance-life-cycle"""


@dataclass
class Nodes:
    """The nodes of one cluster. All methods raise :class:`Unreachable` when the cloud's API
    (the Docker engine, for the sandbox) does not answer."""

    config: LaunchConfig

    def head(self) -> str:
        """The id of the running head; empty when there is none."""
        found = self._ask("list the head", lambda: self._provider.non_terminated_nodes(HEAD))
        return str(found[0]) if found else ""

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

    def workers(self) -> tuple[str, ...]:
        """Ids of the running workers."""
        found = self._ask("list the workers", lambda: self._provider.non_terminated_nodes(WORKER))
        return tuple(sorted(str(node) for node in found))

    def everything(self) -> tuple[str, ...]:
        """Ids of all nodes that exist, stopped and half-made ones included."""
        found = self._ask("list the nodes", lambda: self._provider.nodes_for_teardown({}))
        return tuple(found)

    def remaining(self) -> tuple[str, ...]:
        """Like :meth:`everything`, with the nodes that are shutting down: what runs there has not
        ended yet."""
        ending = self._ask("list what is shutting down", lambda: shutting_down(self._provider))
        return tuple(dict.fromkeys((*self.everything(), *ending)))

    def address(self, node: str) -> str:
        """The node's address for the operator: inside of its network where the config says so.

        Raises:
            Unreachable: it has none there, or the cloud does not answer.
        """
        inside = bool(self.config.provider.get("use_internal_ips"))
        ask = self._provider.internal_ip if inside else self._provider.external_ip
        address = self._ask("ask for an address", lambda: ask(node))
        if not address:
            raise Unreachable(
                f"{self.config.identity}: {node} has no {'in' if inside else 'ex'}ternal address",
                why="it is still being made, or is behind a firewall of Google Cloud",
                next_step="in the latter case set use_internal_ips in the template's provider",
            )
        return str(address)

    def host_key(self, node: str) -> str:
        """The node's public host key from its own record; empty where the cloud keeps none."""
        reader = getattr(self._provider, "host_key", None)
        return str(self._ask("read the host key", lambda: reader(node))) if reader else ""

    def image_digest(self, node: str) -> str:
        """The digest of the image that a VM was made of; empty where a VM is not an image."""
        reader = getattr(self._provider, "image_digest", None)
        return str(self._ask("read the image", lambda: reader(node))) if reader else ""

    def terminate_all(self) -> tuple[str, ...]:
        """Terminate the head first, so that its autoscaler replaces nothing, then the rest in
        parallel; returns the ids."""
        nodes = self.everything()
        heads = self._ask("list the head", lambda: self._provider.nodes_for_teardown(HEAD))
        for node in heads:
            self.terminate(node)
        # Workers that the dying head was still launching are in this second look.
        rest = [node for node in self.everything() if node not in heads]
        with ThreadPoolExecutor(TERMINATE_LIMIT) as pool:
            list(pool.map(self.terminate, rest))
        return tuple(dict.fromkeys((*nodes, *rest)))

    def terminate(self, node: str) -> None:
        """Terminate one node; one that is gone is fine."""
        self._ask(f"terminate {node}", lambda: self._provider.terminate_node(node))

    @cached_property
    def _provider(self) -> Any:
        from ray.autoscaler._private.providers import _get_node_provider

        return _get_node_provider(dict(self.config.provider), self.config.identity, use_cache=False)

    def _ask(self, doing: str, question: Any) -> Any:
        """Every cloud's SDK has its own tree of errors; here they become one."""
        try:
            return question()
        except ImportError as error:
            raise ToolFailed(
                f"{self.config.identity}: Ray cannot load the provider of this cloud",
                why=str(error),
                next_step="invoke doctor",
            ) from error
        except Exception as error:
            raise Unreachable(
                f"{self.config.identity}: cannot {doing}",
                why=(str(error).splitlines() or [type(error).__name__])[0][:300],
                next_step="invoke doctor",
            ) from error


def shutting_down(provider: Any) -> tuple[str, ...]:
    """The nodes that ``provider`` does not count any more although they have not gone.

    Google Cloud gives a VM up to 90 s to shut down, and Ray 2.60 leaves out what is STOPPING as
    well as what has stopped. A sandbox VM is there or gone.
    """
    return tuple(
        str(row["name"])
        for resource in getattr(provider, "resources", {}).values()
        for row in _google_rows(resource)
        if row.get("labels", {}).get(CLUSTER) == resource.cluster_name
        and row.get("status", row.get("state")) in ENDING
    )


def _google_rows(resource: Any) -> list[dict[str, Any]]:
    """All VMs, or all TPU VMs, of the resource's zone, in whichever state."""
    api, project, zone = resource.resource, resource.project_id, resource.availability_zone
    if hasattr(api, "instances"):
        rule = f"labels.{CLUSTER} = {resource.cluster_name}"
        query, rows = api.instances().list(project=project, zone=zone, filter=rule), "items"
    else:
        query, rows = api.projects().locations().nodes().list(parent=resource.path), "nodes"
    answer = query.execute(http=resource.get_new_authorized_http(api._http))
    found: list[dict[str, Any]] = answer.get(rows, [])
    return found


def head_address(project: Project, fleet: Fleet, cluster: Cluster) -> HeadAddress:
    """How to reach the head of ``cluster``.

    Raises:
        Unreachable: it has no head, or the cloud does not answer.
        UsageError: its config has not been generated.
    """
    nodes = Nodes(read_launch_config(fleet, cluster))
    return address_of(project, fleet, cluster, nodes.head_host(cluster.name))


def address_of(project: Project, fleet: Fleet, cluster: Cluster, host: str) -> HeadAddress:
    """How to reach a head that is at ``host``."""
    from rayfleet.cluster.head import HeadAddress

    ssh = cluster.ssh
    return HeadAddress(
        cluster=cluster.name,
        host=host,
        user=ssh.user,
        private_key=Path(ssh.private_key).expanduser() if ssh.private_key else None,
        proxy_command=ssh.proxy_command,
        known_hosts=known_hosts(project, fleet),
        alias=cluster.identity,
    )


def worker_address(
    project: Project, fleet: Fleet, cluster: Cluster, node: str, host: str
) -> HeadAddress:
    """How to reach the worker ``node`` of ``cluster`` that is at ``host``."""
    address = address_of(project, fleet, cluster, host)
    workers = address.known_hosts.with_name(f"{address.known_hosts.name}.workers")
    return replace(
        address,
        known_hosts=workers,
        alias=f"{cluster.identity}.{node}",
        worker=worker_label(cluster, node),
    )


def worker_label(cluster: Cluster, node: str) -> str:
    """The id of a worker without what the ids of all nodes of its cluster begin with."""
    return node.partition(f"{cluster.identity}-")[2] or node


def known_hosts(project: Project, fleet: Fleet) -> Path:
    """The file with the host keys of the fleet's heads."""
    return project.state / "known_hosts" / fleet.project

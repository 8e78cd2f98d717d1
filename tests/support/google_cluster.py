"""A cluster on the emulated Google Cloud, as Ray's launcher and autoscaler would make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rayfleet.cluster.config import LaunchConfig, read_node_types
from rayfleet.cluster.machines import Machines
from rayfleet.cluster.nodes import Nodes
from rayfleet.project import Project
from tests.support.google import Google
from tests.support.quick_yaml import read_yaml

CONFIGS = sorted((Path(__file__).parents[2] / "infra" / "clusters").glob("*.yaml"))
GENERATED = ("region", "availability_zone", "project_id")
IMAGE = "us-central2-docker.pkg.dev/hai-gcp-models/marin/marin_cluster:4554f82"


def read_config(path: Path) -> dict[str, Any]:
    """A generated config."""
    content: dict[str, Any] = read_yaml(path.read_bytes())
    return content


def read_production(name: str) -> dict[str, Any]:
    """The generated config of one production cluster."""
    return read_config(next(path for path in CONFIGS if path.stem == name))


def bootstrapped(google: Google, content: Mapping[str, Any]) -> dict[str, Any]:
    """What ``ray up`` makes of a config before it asks for a machine; ``type: gcp`` as it is."""
    from ray.autoscaler._private.commands import _bootstrap_config

    from rayfleet.emulator.provider import pointed_at

    with pointed_at(google.url):
        resolved: dict[str, Any] = _bootstrap_config(deepcopy(dict(content)), no_config_cache=True)
    return resolved


@dataclass(kw_only=True)
class GoogleCluster:
    """A cluster of one of the production configs; ``content`` is what bootstrap made of it."""

    google: Google
    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The cluster's identity."""
        return str(self.content["cluster_name"])

    @property
    def launch_config(self) -> LaunchConfig:
        """What rayfleet reads of its config."""
        return LaunchConfig(
            path=Path("no-such-file.yaml"),
            identity=self.name,
            provider=self._generated_provider(),
            image=IMAGE,
            min_workers={},
            hash="",
            node_types=read_node_types(self.content),
        )

    @property
    def nodes(self) -> Nodes:
        """As rayfleet sees it: a new look, nothing kept from an earlier one."""
        return Nodes(self.launch_config, clock=self.google.clock)

    @cached_property
    def provider(self) -> Any:
        """Ray's provider, as the launcher and the autoscaler have it."""
        from ray.autoscaler._private.providers import _get_node_provider

        section = self._generated_provider() | {"_has_tpus": True}  # as bootstrap leaves it
        return _get_node_provider(section, self.name, use_cache=False)

    def _generated_provider(self) -> dict[str, Any]:
        """As the generated config has it: what bootstrap adds is not in any file."""
        section = {key: self.content["provider"][key] for key in GENERATED}
        return self.google.provider(section, poll_interval=0)

    def machines(
        self, project: Project, narrate: Callable[[str], None] = lambda text: None
    ) -> Machines:
        """The operations of start and stop; ``project`` keeps the known hosts."""
        fleet: Any = SimpleNamespace(project="p")
        cluster: Any = SimpleNamespace(name=self.name, identity=self.name)
        machines = Machines(
            project=project,
            fleet=fleet,
            cluster=cluster,
            narrate=narrate,
            interval=10.0,
            clock=self.google.clock,
        )
        machines.__dict__.update(nodes=self.nodes, config=self.launch_config)
        return machines

    def node_config(self, node_type: str) -> dict[str, Any]:
        """What Ray asks the cloud for: a head has what bootstrap found out as well."""
        wanted = deepcopy(self.content["available_node_types"][node_type]["node_config"])
        if node_type == self.content["head_node_type"]:
            return {**deepcopy(dict(self.content["head_node"])), **wanted}
        return dict(wanted)

    def add(self, node_type: str, count: int = 1) -> tuple[str, ...]:
        """Let Ray make nodes of this type; returns their ids."""
        head = node_type == self.content["head_node_type"]
        kind = "head" if head else "worker"
        tags = {
            "ray-node-name": f"ray-{self.name}-{kind}",
            "ray-node-type": kind,
            "ray-node-status": "uninitialized",
            "ray-launch-config": "0123456789abcdef0123456789abcdef01234567",
            "ray-user-node-type": node_type,
        }
        before = set(self.provider.non_terminated_nodes({}))
        self.provider.create_node(self.node_config(node_type), tags, count)
        after: list[str] = self.provider.non_terminated_nodes({})
        return tuple(node for node in after if node not in before)


def google_cluster(google: Google, config: str = "us-central2") -> GoogleCluster:
    """The cluster of one production config, bootstrapped, with no nodes yet."""
    return GoogleCluster(google=google, content=bootstrapped(google, read_production(config)))

"""A cloud with one machine, an sshd of this one, as Ray's own launcher makes a head of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.autoscaler.node_provider import NodeProvider

from rayfleet.cluster.machines import Machines
from tests.support.loopback_fleet import LoopbackFleet
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.support.sshd import LocalSshd

CLUSTER = "us-east5"
COMMANDS = (
    *("initialization_commands", "setup_commands", "head_setup_commands"),
    *("worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands"),
)


class OneMachine(NodeProvider):
    """Ray's view of it: ``folder`` has ``tags.json`` once it was made, and ``record``, which the
    machine writes: its public host key. ``asked`` says that somebody wanted to read that."""

    @property
    def _folder(self) -> Path:
        return Path(self.provider_config["folder"])

    def _tags(self) -> dict[str, str]:
        path = self._folder / "tags.json"
        tags: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return tags

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        tags = self._tags()
        return [self._folder.name] if tags and tag_filters.items() <= tags.items() else []

    def is_running(self, node_id: str) -> bool:
        return bool(self._tags())

    def is_terminated(self, node_id: str) -> bool:
        return not self._tags()

    def node_tags(self, node_id: str) -> dict[str, str]:
        return self._tags()

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        (self._folder / "tags.json").write_text(json.dumps(self._tags() | tags))

    def external_ip(self, node_id: str) -> str:
        return node_id

    def create_node(self, node_config: dict[str, Any], tags: dict[str, str], count: int) -> None:
        self.set_node_tags("", tags)

    def host_key(self, node_id: str) -> str:
        (self._folder / "asked").touch()
        record = self._folder / "record"
        return record.read_text().strip() if record.exists() else ""


@dataclass(kw_only=True)
class Launching:
    """The cluster, of which nothing runs yet."""

    fleet: LoopbackFleet

    def __post_init__(self) -> None:
        self.machine: LocalSshd = self.fleet.add_head(CLUSTER, known=False)
        fleet = self.fleet.fleet
        path = fleet.config_path(fleet.clusters[CLUSTER])
        ssh = fleet.clusters[CLUSTER].ssh
        content = read_yaml(path.read_text())
        content["provider"] = {
            "type": "external",
            "module": f"{__name__}.{OneMachine.__name__}",
            "folder": str(self.machine.folder),
        }
        content["auth"] = {
            "ssh_user": ssh.user,
            "ssh_private_key": ssh.private_key,
            "ssh_proxy_command": ssh.proxy_command,
        }
        content["available_node_types"]["head_default"] |= {"resources": {}, "max_workers": 0}
        content |= {key: ["true"] for key in COMMANDS}
        content |= {
            "max_workers": 0,
            "upscaling_speed": 1.0,
            "idle_timeout_minutes": 5,
            "file_mounts": {},
            "cluster_synced_files": [],
            "file_mounts_sync_continuously": False,
            "rsync_exclude": [],
            "rsync_filter": [],
        }
        path.write_text(write_yaml(content))

    @property
    def key(self) -> str:
        """The host key that the machine has."""
        return (self.machine.folder / "host_key.pub").read_text()

    @property
    def record(self) -> Path:
        """Where the machine's own record of it is."""
        return self.machine.folder / "record"

    @property
    def was_set_up(self) -> bool:
        """Whether Ray's launcher has written to the machine."""
        return any(self.machine.folder.glob("ray_bootstrap*"))

    def launch(self) -> str:
        """``ray up``."""
        machines = Machines(
            project=self.fleet.project,
            fleet=self.fleet.fleet,
            cluster=self.fleet.fleet.clusters[CLUSTER],
            narrate=lambda text: None,
        )
        return machines.launch()

"""Clusters on the emulated Google Cloud with things of theirs in every state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from rayfleet.cluster.config import LaunchConfig
from rayfleet.emulator.clock import timestamp
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.google_api import service
from rayfleet.health.cloud import GoogleHoldings
from rayfleet.health.garbage import Garbage
from rayfleet.project import Project
from tests.support.google import PROJECT, Google, provider_at
from tests.support.google_cluster import read_config
from tests.support.quick_yaml import write_yaml

ROOT = Path(__file__).parents[2]
ZONE = "us-central2-b"
PARENT = f"projects/{PROJECT}/locations/{ZONE}"
TABLES = ("nodes", "instances", "queuedResources", "firewalls")


@dataclass(kw_only=True)
class Littered:
    """The production fleet, with configs that lead to the emulator, in ``folder``."""

    google: Google
    folder: Path

    def __post_init__(self) -> None:
        self.project = Project(
            root=ROOT,
            fleet_file=ROOT / "infra" / "fleet.yaml",
            state=self.folder / "state",
        )
        fleet = load_fleet(self.project.fleet_file, root=ROOT, state=self.project.state, look=False)
        configs = self.folder / "clusters"
        configs.mkdir(parents=True)
        for cluster in fleet.clusters.values():
            text = _pointed_at(self.google.url, fleet.config_path(cluster))
            (configs / f"{cluster.name}.yaml").write_text(text)
        self.fleet: Fleet = replace(fleet, outputs=replace(fleet.outputs, configs=configs))

    def cluster(self, name: str) -> Cluster:
        """One cluster of the fleet."""
        return self.fleet.clusters[name]

    @property
    def garbage(self) -> Garbage:
        """As ``invoke gc`` has it; what waits moves the cloud's clock."""
        return Garbage(self.project, self.fleet, self.look, self.google.cloud.now)

    def look(self, config: LaunchConfig) -> GoogleHoldings:
        """The things of a cluster."""
        return GoogleHoldings(config, self.google.clock)

    def reuse_stopped(self, name: str) -> None:
        """Let Ray keep what it stops."""
        path = self.fleet.config_path(self.cluster(name))
        content = read_config(path)
        content["provider"]["cache_stopped_nodes"] = True
        path.write_text(write_yaml(content))

    def slice(self, name: str, state: str, **more: Any) -> str:
        """A slice in some state; ``more`` are its ``owner``, ``node_type`` and fields."""
        view = self._row(name, f"{PARENT}/nodes/{name}", **more)
        view |= {"state": state, "acceleratorType": "v4-8"}
        self._put("nodes", f"{PARENT}/nodes/{name}", view)
        return name

    def machine(self, name: str, state: str, **more: Any) -> str:
        """A VM in some state."""
        place = f"projects/{PROJECT}/zones/{ZONE}/instances/{name}"
        view = self._row(name, name, **more)
        view |= {"status": state, "machineType": "zones/z/machineTypes/n2-standard-8"}
        self._put("instances", place, view | {"labelFingerprint": "x"})
        return name

    def queued(self, name: str, state: str, owners: Mapping[str, str]) -> str:
        """A queued resource in some state; ``owners`` are the clusters of its slices."""
        specs = [
            {
                "parent": PARENT,
                "nodeId": node,
                "node": {
                    "acceleratorType": "v4-8",
                    "labels": {"ray-cluster-name": owner} if owner else {},
                },
            }
            for node, owner in owners.items()
        ]
        view = {
            "name": f"{PARENT}/queuedResources/{name}",
            "tpu": {"nodeSpec": specs},
            "state": {"state": state},
        }
        row = {"view": view, "from": 1e12, "until": None, "plan": None, "ends": None}
        with self.google.cloud.lock:
            self.google.cloud.state.table("queuedResources")[view["name"]] = row
        return name

    def rule(self, name: str, *, age: float = 7200.0) -> str:
        """A firewall rule that is ``age`` seconds old."""
        body = {"name": name, "direction": "INGRESS", "allowed": [{"IPProtocol": "tcp"}]}
        service("compute", "v1").firewalls().insert(project=PROJECT, body=body).execute()
        with self.google.cloud.lock:
            row = self.google.cloud.state.table("firewalls")[
                f"projects/{PROJECT}/global/firewalls/{name}"
            ]
            row["view"]["creationTimestamp"] = timestamp(self.google.cloud.now() - age)
        return name

    def left(self) -> set[str]:
        """The last names of everything that exists and is not on its way out."""
        with self.google.cloud.lock:
            return {
                name.rpartition("/")[2]
                for table in TABLES
                for name, row in self.google.cloud.state.table(table).items()
                if row["view"].get("state") != "DELETING"
            }

    def _row(
        self, name: str, full: str, *, owner: str = "", node_type: str = "", **more: Any
    ) -> dict[str, Any]:
        head = "-head-" in name
        labels = {"ray-cluster-name": owner, "ray-node-type": "head" if head else "worker"}
        labels |= {"ray-user-node-type": node_type} if node_type else {}
        return {
            "name": full,
            "labels": labels if owner else {},
            "networkConfig": {},
            "networkEndpoints": [],
            **more,
        }

    def _put(self, table: str, name: str, view: dict[str, Any]) -> None:
        with self.google.cloud.lock:
            self.google.cloud.state.table(table)[name] = {"view": view, "steps": []}


@cache
def _pointed_at(url: str, path: Path) -> str:
    """The text of a generated config, for the emulator at ``url``."""
    content = read_config(path)
    content["provider"] = provider_at(url, content["provider"], poll_interval=0)
    return write_yaml(content)

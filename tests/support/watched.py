"""A cluster of the emulated Google Cloud whose machines are sshds of this one, with stand-ins for
what is asked there, and a dashboard that a test writes."""

from __future__ import annotations

import getpass
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rayfleet.cluster import health
from rayfleet.cluster.config import read_launch_config
from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.cluster.lifecycle import Lifecycle
from rayfleet.cluster.nodes import known_hosts, worker_address
from rayfleet.console import Console
from rayfleet.emulator.clock import timestamp
from rayfleet.fleet.model import AuthMode, Cluster
from rayfleet.google_api import service
from rayfleet.health import look
from rayfleet.health.look import Looker
from tests.support.google import PROJECT, Google
from tests.support.leftovers import Littered
from tests.support.scripted_http import Answer, Asked, ScriptedServer
from tests.support.sshd import PROGRAM, LocalSshd

NAME = "us-central2"
DIGEST = f"sha256:{'d' * 64}"
ROOMY = "/dev/root 200000000 50000000 150000000 25% /"
TIGHT = "/dev/root 200000000 194000000 6000000 97% /"
REPORT = """\
======== Autoscaler status: 2026-01-01 00:00:00.000000 ========
Node status
---------------------------------------------------------------
Active:
 1 head_default
Pending:
{pending}
Recent failures:
 (no failures)

Resources
"""
STAND_INS = {
    "docker": """\
case "$*" in
  *State.Running*) echo true ;;
  *Config.Image*) cat {folder}/image ;;
  exec*) shift 4; exec "$@" ;;
esac
""",
    "cat": 'case "$*" in /etc/cluster-image.json) set -- {folder}/record ;; esac\n'
    'exec {cat} "$@"\n',
    "ps": 'case "$*" in *args=) echo /x/ray/autoscaler/_private/monitor.py ;; esac\n',
    "df": "{cat} {folder}/df\n",
}


@dataclass(kw_only=True)
class Watched:
    """``dashboard`` is what the head's dashboard says: versions, ``joined`` and ``pending``."""

    google: Google
    folder: Path
    patch: pytest.MonkeyPatch
    dashboard: ScriptedServer
    ray: str = "2.60.0"
    joined: list[tuple[str, str]] = field(default_factory=list)
    pending: Sequence[str] = (" (no pending nodes)",)

    def __post_init__(self) -> None:
        self.littered = Littered(google=self.google, folder=self.folder / "cloud")
        fleet = self.littered.fleet
        enter = self.folder / "enter"
        enter.write_text(
            f'#!/bin/sh\nexec {PROGRAM} -i -E {self.folder}/log -f "{self.folder}/$1/sshd_config"\n'
        )
        enter.chmod(0o755)
        cluster = fleet.clusters[NAME]
        ssh = replace(
            cluster.ssh,
            user=getpass.getuser(),
            private_key=str(self.folder / "client_key"),
            proxy_command=f"{shlex.quote(str(enter))} %h",
        )
        auth = replace(cluster.auth, mode=AuthMode.DISABLED)
        self.cluster: Cluster = replace(cluster, ssh=ssh, auth=auth)
        self.fleet = replace(fleet, clusters={NAME: self.cluster})
        self._configure()
        self.dashboard.respond = self._respond
        port = int(self.dashboard.host.rpartition(":")[2])
        self.patch.setattr(health, "DASHBOARD_PORT", port)
        self.patch.setattr(look, "DASHBOARD_PORT", port)
        self.patch.setattr(look, "_installed_ray", lambda: "2.60.0")

    @property
    def looker(self) -> Looker:
        """As ``invoke doctor --cluster`` has it; what waits moves the cloud's clock."""
        project = self.littered.project
        return Looker(
            Lifecycle(project, self.fleet, Console()),
            deep=True,
            place=self.littered.look,
            now=self.google.cloud.now,
            clock=self.google.clock,
        )

    @property
    def image(self) -> str:
        """The configured one."""
        return read_launch_config(self.fleet, self.cluster).image

    def bucket(self, location: str) -> None:
        """Make the cluster's bucket."""
        body = {"name": self.cluster.bucket, "location": location}
        service("storage", "v1").buckets().insert(project=PROJECT, body=body).execute()

    def add_head(self, **said: str) -> str:
        """A head that runs; ``said`` are ``image``, ``ray`` and ``df`` of it."""
        name = f"ray-{self.cluster.identity}-head-0000000a-compute"
        address = self.google.cloud.address()
        cards = [{"networkIP": address, "accessConfigs": [{"natIP": address}]}]
        self.littered.machine(name, "RUNNING", owner=self.cluster.identity, networkInterfaces=cards)
        key = self._machine(address, said)
        record_host_key(known_hosts(self.littered.project, self.fleet), self.cluster.identity, key)
        return name

    def add_slice(
        self, number: int, *, hosts: int = 1, kind: str = "tpu_worker", age: float = 86_400.0
    ) -> tuple[str, list[str]]:
        """A slice that is ready; returns its name and the addresses of its machines."""
        name = f"ray-{self.cluster.identity}-worker-{number:08x}-tpu"
        addresses = [self.google.cloud.address() for _ in range(hosts)]
        ends = [
            {"ipAddress": address, "port": 8470, "accessConfig": {"externalIp": address}}
            for address in addresses
        ]
        self.littered.slice(
            name,
            "READY",
            owner=self.cluster.identity,
            node_type=kind,
            networkEndpoints=ends,
            createTime=timestamp(self.google.cloud.now() - age),
        )
        return name, addresses

    def enterable(self, name: str, address: str, **said: str) -> None:
        """Let a slice of one machine be entered."""
        node = f"projects/{PROJECT}/locations/us-central2-b/nodes/{name}"
        config = read_launch_config(self.fleet, self.cluster)
        where = worker_address(
            self.littered.project, self.fleet, self.cluster, config, node, address
        )
        record_host_key(where.known_hosts, where.alias, self._machine(address, said))

    def join(self, kind: str, *addresses: str) -> None:
        """Let machines join."""
        self.joined += [(address, kind) for address in addresses]

    def _configure(self) -> None:
        path = self.fleet.config_path(self.cluster)
        content = yaml.safe_load(path.read_text())
        content["docker"]["image"] += f"@{DIGEST}"
        path.write_text(yaml.safe_dump(content))

    def _machine(self, address: str, said: Mapping[str, str]) -> str:
        folder = self.folder / address
        bin_folder = folder / "bin"
        forced = f'ForceCommand PATH={bin_folder}:$PATH exec sh -c "$SSH_ORIGINAL_COMMAND"'
        LocalSshd(folder=folder, options=[forced]).prepare()
        ours = self.folder / "client_key"
        if not ours.exists():
            ours.touch(mode=0o600)
            ours.write_bytes((folder / "client_key").read_bytes())
            shutil.copy(folder / "client_key.pub", f"{ours}.pub")
        shutil.copy(f"{ours}.pub", folder / "client_key.pub")
        bin_folder.mkdir()
        for name, text in STAND_INS.items():
            program = bin_folder / name
            program.write_text(f"#!/bin/sh\n{text.format(folder=folder, cat=shutil.which('cat'))}")
            program.chmod(0o755)
        (folder / "image").write_text(said.get("image", self.image) + "\n")
        (folder / "record").write_text(json.dumps({"ray": said.get("ray", self.ray)}))
        (folder / "df").write_text(said.get("df", ROOMY) + "\n")
        return (folder / "host_key.pub").read_text()

    def _respond(self, asked: Asked) -> Answer:
        path = asked.path.partition("?")[0]
        rows = [
            {
                "node_id": address,
                "state": "ALIVE",
                "is_head_node": False,
                "node_ip": address,
                "labels": {"ray.io/node-group": kind},
                "resources_total": {},
            }
            for address, kind in self.joined
        ]
        documents: dict[str, Any] = {
            "/api/version": {"ray_version": self.ray},
            "/api/v0/nodes": {"data": {"result": {"result": rows}}},
            "/api/cluster_status": {
                "data": {"clusterStatus": REPORT.format(pending="\n".join(self.pending))}
            },
        }
        return Answer(body=json.dumps(documents[path]).encode())

"""A fleet whose machines are Debian's own sshd on this one: entered through a proxy command that
is an sshd itself, as in the sandbox, and listed by a node provider that Ray loads by name."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rayfleet.cluster.heads import Heads
from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.cluster.nodes import known_hosts
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.project import Project
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.support.sshd import PROGRAM, LocalSshd

ROOT = Path(__file__).parents[2]
CLUSTERS = ("us-central2", "europe-west4", "us-east5")


class LoopbackProvider:
    """What Ray asks about the machines of a cluster, answered from the file of ``nodes``."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        self._path = Path(provider_config["nodes"])
        self._cluster = cluster_name

    def _nodes(self) -> dict[str, dict[str, str]]:
        nodes: dict[str, dict[str, str]] = json.loads(self._path.read_text())[self._cluster]
        return nodes

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        kind = tag_filters["ray-node-type"]
        return [name for name, node in self._nodes().items() if node["kind"] == kind]

    def external_ip(self, node_id: str) -> str:
        return node_id

    def host_key(self, node_id: str) -> str:
        return self._nodes()[node_id]["key"]


@dataclass(kw_only=True)
class LoopbackFleet:
    """The fleet, in a project of its own below ``folder``.

    ``proxy_command`` None is an sshd per connection; ``enter`` is the program for that.
    """

    folder: Path
    proxy_command: str | None = None
    user: str = field(default_factory=getpass.getuser)
    nodes: dict[str, dict[str, dict[str, str]]] = field(
        default_factory=lambda: {name: {} for name in CLUSTERS}
    )

    def __post_init__(self) -> None:
        (self.folder / "nodes").mkdir(parents=True)
        # What the sandbox does with `docker exec`; every way in is counted.
        enter = self.enter
        enter.write_text(
            f'#!/bin/sh\ncd {self.folder}/nodes/"$1" || exit 7\necho >> entered\n'
            f"[ ! -e asleep ] || exec sleep 600\n"
            f"exec {PROGRAM} -i -E log -f sshd_config\n"
        )
        enter.chmod(enter.stat().st_mode | stat.S_IXUSR)
        (self.folder / "tasks.py").write_text("from rayfleet.tasks import ns\n")
        text = read_yaml((ROOT / "infra" / "sandbox.yaml").read_text())
        text["clusters"] = {name: text["clusters"][name] for name in CLUSTERS}
        del text["rollout"]
        text["defaults"]["ssh"] = {
            "user": self.user,
            "private_key": str(self.folder / "keys" / "client_key"),
            "proxy_command": f"{shlex.quote(str(enter))} %h"
            if self.proxy_command is None
            else self.proxy_command,
        }
        (self.folder / "infra").mkdir()
        (self.folder / "infra" / "templates").symlink_to(ROOT / "infra" / "templates")
        (self.folder / "Dockerfile").touch()
        text["images"]["cluster"] |= {"dockerfile": "Dockerfile", "context": ["Dockerfile"]}
        self.project.fleet_file.write_text(write_yaml(text, sort_keys=False))
        for name in CLUSTERS:
            self._write_config(name)
        self.save()

    @property
    def enter(self) -> Path:
        """A program that is an sshd of the node that it is given the name of."""
        return self.folder / "enter"

    @cached_property
    def project(self) -> Project:
        return Project(
            root=self.folder,
            fleet_file=self.folder / "infra" / "sandbox.yaml",
            state=self.folder / ".rayfleet",
        )

    @cached_property
    def fleet(self) -> Fleet:
        return load_fleet(
            self.project.fleet_file, root=self.folder, state=self.project.state, look=False
        )

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        return tuple(self.fleet.clusters.values())

    @property
    def known_hosts(self) -> Path:
        """Where the keys of heads are recorded."""
        return known_hosts(self.project, self.fleet)

    def environment(self) -> dict[str, str]:
        """For an operator's commands, which run in ``folder``; Ray must find the provider."""
        return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    def heads(self) -> Heads:
        return Heads(self.project, self.fleet)

    def add_head(self, cluster: str, ending: str = "head-1", *, known: bool = True) -> LocalSshd:
        """A head, in the place of the one before; ``known`` records its key as a start does."""
        nodes = self.nodes[cluster]
        for name in [name for name, node in nodes.items() if node["kind"] == "head"]:
            del nodes[name]
        machine = self._add(cluster, ending, "head")
        if known:
            key = (machine.folder / "host_key.pub").read_text()
            record_host_key(self.known_hosts, self.fleet.clusters[cluster].identity, key)
        return machine

    def add_worker(self, cluster: str, ending: str, *, recorded: bool = True) -> LocalSshd:
        """A worker; ``recorded`` says that its cloud keeps its host key."""
        machine = self._add(cluster, ending, "worker")
        if not recorded:
            self.nodes[cluster][f"rf-{cluster}-{ending}"]["key"] = ""
        self.save()
        return machine

    def save(self) -> None:
        """Let the provider see ``nodes``."""
        (self.folder / "nodes.json").write_text(json.dumps(self.nodes))

    def entered(self, machine: LocalSshd) -> int:
        """How often ``machine`` was entered."""
        path = machine.folder / "entered"
        return len(path.read_text()) if path.exists() else 0

    def _add(self, cluster: str, ending: str, kind: str) -> LocalSshd:
        name = f"rf-{cluster}-{ending}"
        machine = LocalSshd(folder=self.folder / "nodes" / name, alias=name)
        machine.prepare()
        # One operator's key for all of them.
        (self.folder / "keys").mkdir(exist_ok=True)
        ours = self.folder / "keys" / "client_key"
        for suffix in ("", ".pub"):
            key = Path(f"{ours}{suffix}")
            theirs = machine.folder / f"client_key{suffix}"
            if key.exists():
                theirs.write_bytes(key.read_bytes())
            else:
                key.touch(mode=0o600)
                key.write_bytes(theirs.read_bytes())
        key_line = (machine.folder / "host_key.pub").read_text()
        self.nodes[cluster][name] = {"kind": kind, "key": " ".join(key_line.split()[:2])}
        self.save()
        return machine

    def _write_config(self, name: str) -> None:
        cluster = self.fleet.clusters[name]
        path = self.fleet.config_path(cluster)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            write_yaml(
                {
                    "cluster_name": cluster.identity,
                    "provider": {
                        "type": "external",
                        "module": f"{__name__}.{LoopbackProvider.__name__}",
                        "nodes": str(self.folder / "nodes.json"),
                    },
                    "head_node_type": "head_default",
                    "available_node_types": {
                        "head_default": {"min_workers": 0, "node_config": {"image": "none"}}
                    },
                }
            )
        )

"""Clusters that live on the emulated Google Cloud as operators drive them: Ray's launcher and
provider are the real ones, heads are sshds of this machine, and workers come as Ray's autoscaler
would make them."""

from __future__ import annotations

import getpass
import io
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rayfleet.cluster import machines
from rayfleet.cluster.config import LaunchConfig, read_launch_config
from rayfleet.cluster.head import Head
from rayfleet.cluster.heads import Heads
from rayfleet.cluster.launcher import Launcher
from rayfleet.cluster.lifecycle import GateTimes, Lifecycle
from rayfleet.cluster.machines import Machines
from rayfleet.console import Console
from rayfleet.emulator.state import GONE
from rayfleet.fleet.model import AuthMode, Cluster, GatePolicy
from rayfleet.health.garbage import collect
from rayfleet.health.look import Looker
from rayfleet.health.status import show_status
from rayfleet.rollout import change
from rayfleet.rollout.change import Action
from rayfleet.rollout.model import Plan
from rayfleet.rollout.plan.options import Options
from rayfleet.rollout.restart import Restart, run_restart
from rayfleet.rollout.steer import Steering
from rayfleet.waiting import wait_until
from rayfleet.worker.care import Care
from rayfleet.worker.queue import Queue
from tests.support.google import Google
from tests.support.google_cluster import GoogleCluster
from tests.support.leftovers import Littered
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.support.scripted_http import Answer, Asked, ScriptedServer
from tests.support.sshd import PROGRAM, LocalSshd
from tests.support.watched import REPORT

COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
)
# What a head of this machine cannot show: an age of its GCS, jobs, and an image in a registry.
BOOT_SECONDS = 120.0
NOT_HERE = ("health", "age", "autoscaler", "probe")
TABLES = ("instances", "nodes", "queuedResources")


@dataclass(kw_only=True)
class Living:
    """``clusters`` of the production fleet by name, each with the minimum of workers that its
    autoscaler keeps."""

    google: Google
    folder: Path
    patch: pytest.MonkeyPatch
    minimum: Mapping[str, Mapping[str, int]]
    dashboards: dict[str, ScriptedServer] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.littered = Littered(google=self.google, folder=self.folder / "cloud")
        self.sshd = LocalSshd(folder=self.folder / "sshd")
        self.sshd.prepare()
        fleet = self.littered.fleet
        clusters = {name: self._entered(fleet.clusters[name]) for name in self.minimum}
        gates = {gate: GatePolicy(enabled=False) for gate in NOT_HERE}
        gates["workers"] = GatePolicy(interval=0.05)
        policy = replace(fleet.rollout, bake=0.0, gates=gates)
        self.fleet = replace(fleet, clusters=clusters, rollout=policy)
        for name in clusters:
            self._configure(name)
        self._patch()

    def cluster(self, name: str) -> Cluster:
        """One of them."""
        return self.fleet.clusters[name]

    def config(self, name: str) -> LaunchConfig:
        """What is generated for it."""
        return read_launch_config(self.fleet, self.cluster(name))

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        """Let ``edit`` change what is generated for a cluster."""
        path = self.fleet.config_path(self.cluster(name))
        content = read_yaml(path.read_text())
        edit(content)
        path.write_text(write_yaml(content))

    def start(self, *names: str) -> None:
        """``invoke start``."""
        self._run(Action.START, names)

    def stop(self, *names: str) -> None:
        """``invoke stop --yes``."""
        self._run(Action.STOP, names)

    def restart(self, *names: str) -> Plan:
        """``invoke restart --yes --no-preserve-jobs``."""
        words = [word for name in names for word in ("--cluster", name)]
        wish = Restart(
            clusters=[self.cluster(name) for name in names],
            options=Options(preserve_jobs=False),
            command=" ".join(["invoke", "restart", *words]),
            yes=True,
        )
        return run_restart(self.littered.project, self.fleet, self._console(), wish)

    def retry(self, name: str) -> None:
        """``invoke rollouts.retry`` of the last rollout."""
        project = self.littered.project
        steering = Steering(project=project, console=self._console(), fleet=lambda: self.fleet)
        steering.retry("", [name])

    def status(self, name: str) -> str:
        """``invoke status``."""
        out = io.StringIO()
        looker = Looker(
            self._life(Console(out=out, err=io.StringIO())),
            place=self.littered.look,
            now=self.google.cloud.now,
            clock=self.google.clock,
        )
        show_status(looker, [self.cluster(name)], as_json=False)
        return out.getvalue()

    def gc(self, name: str, *, remove: bool) -> dict[str, str]:
        """``invoke gc``: what becomes of each leftover."""
        out = io.StringIO()
        console = Console(out=out, err=io.StringIO())
        garbage = replace(self.littered.garbage, fleet=self.fleet)
        try:
            collect(garbage, [self.cluster(name)], console, remove=remove, as_json=True)
        finally:
            text = out.getvalue() or '{"clusters": []}'
        rows = [row for one in json.loads(text)["clusters"] for row in one["leftovers"]]
        return {row["name"]: row["fate"] for row in rows}

    def care(self, name: str) -> Care:
        """As ``invoke workers.*`` has it; who waits moves the cloud's clock."""
        return Care(
            cluster=name,
            config=self.config(name),
            narrate=self.said.append,
            connect=lambda config: Queue(config, self.google.clock),
        )

    def heads(self) -> Heads:
        """The way into their machines."""
        return Heads(self.littered.project, self.fleet)

    def write_host_key(self, machine: str) -> None:
        """Let a machine write its host key, as at its boot."""
        kind, key, *_ = (self.sshd.folder / "host_key.pub").read_text().split()
        assert self.google.write(machine, f"hostkeys/{kind}", key)

    def _boot_head(self, name: str) -> None:
        """Let the head write its host key once Google has made it."""
        provider = self.provider(name).provider
        head = {"ray-node-type": "head"}
        (machine,) = wait_until(
            lambda: provider.non_terminated_nodes(head),
            what="the head of " + name,
            timeout=BOOT_SECONDS,
            interval=0.05,
        )
        self.write_host_key(machine)

    def provider(self, name: str) -> GoogleCluster:
        """The cluster as Ray's own provider sees it."""
        content = read_yaml(self.fleet.config_path(self.cluster(name)).read_text())
        return GoogleCluster(google=self.google, content=content)

    def autoscale(self, name: str) -> tuple[str, ...]:
        """Make what is missing of the minimum of workers, as the head's autoscaler does."""
        ray = self.provider(name)
        there = [
            labels["ray-user-node-type"]
            for labels in map(ray.provider.node_tags, ray.provider.non_terminated_nodes({}))
            if "ray-user-node-type" in labels
        ]
        made: tuple[str, ...] = ()
        for kind, count in self.minimum[name].items():
            if missing := count - there.count(kind):
                made += ray.add(kind, missing)
        return made

    def finish(self) -> None:
        """Let Google do at last what it accepted and what hung."""
        cloud = self.google.cloud
        with cloud.lock:
            for table in TABLES:
                for row in cloud.state.table(table).values():
                    view = row["view"]
                    if view.get("status") == "STOPPING" or view.get("state") == "DELETING":
                        row["steps"] = [[cloud.now(), GONE]]
                    elif table == "queuedResources" and view["state"]["state"] == "DELETING":
                        row["ends"] = cloud.now()
        self.google.advance(0)

    def inventory(self) -> dict[str, dict[str, str]]:
        """Everything that costs money."""
        return {table: self.google.states(table) for table in TABLES}

    def _life(self, console: Console) -> Lifecycle:
        times = GateTimes(head=120.0, workers=120.0, interval=0.05)
        return Lifecycle(self.littered.project, self.fleet, console, times=times)

    def _console(self) -> Console:
        living = self

        class Heard(io.StringIO):
            def write(self, text: str) -> int:
                living.said.append(text)
                return len(text)

        return Console(out=io.StringIO(), err=Heard())

    def _run(self, action: Action, names: tuple[str, ...]) -> None:
        clusters = [self.cluster(name) for name in names]
        life = self._life(self._console())
        change.run(life, clusters, action, dry_run=False, yes=True, parallel=1)

    def _entered(self, cluster: Cluster) -> Cluster:
        """``cluster``, whose heads are sshds, each with a home of its own."""
        enter = self.folder / "enter"
        enter.write_text(
            f'#!/bin/sh\nmkdir -p {self.folder}/homes/"$1"\n'
            f"exec {PROGRAM} -i -E {self.folder}/sshd.log -f {self.sshd.folder}/sshd_config"
            f' -o "SetEnv HOME={self.folder}/homes/$1"\n'
        )
        enter.chmod(0o755)
        ssh = replace(
            cluster.ssh,
            user=getpass.getuser(),
            private_key=str(self.sshd.folder / "client_key"),
            proxy_command=f"{shlex.quote(str(enter))} %h",
        )
        return replace(cluster, ssh=ssh, auth=replace(cluster.auth, mode=AuthMode.DISABLED))

    def _configure(self, name: str) -> None:
        """The generated config, with commands that this machine survives."""
        ssh = self.cluster(name).ssh

        def edit(content: dict[str, Any]) -> None:
            content.update({key: ["true"] for key in COMMANDS})
            content["auth"] = {
                "ssh_user": ssh.user,
                "ssh_private_key": ssh.private_key,
                "ssh_proxy_command": ssh.proxy_command,
            }
            types = content["available_node_types"]
            for kind in types:
                types[kind]["min_workers"] = self.minimum[name].get(kind, 0)

        self.change(name, edit)

    def _without_container(self, config: LaunchConfig) -> Path:
        """The config for Ray's launcher, which finds no Docker on this machine."""
        content = read_yaml(config.path.read_text())
        del content["docker"]
        path = self.folder / "launched" / config.path.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(write_yaml(content))
        return path

    def _patch(self) -> None:
        """Stand in for what a machine of this one cannot have: a registry, a dashboard on Ray's
        port, a boot that writes host keys, and an autoscaler."""
        living, really_up, really_http = self, Launcher.up, Head.http

        def up(launcher: Launcher, config: LaunchConfig, hear: Callable[[str], None]) -> None:
            name = config.path.stem
            booting = Thread(target=living._boot_head, args=(name,))
            booting.start()
            really_up(launcher, replace(config, path=living._without_container(config)), hear)
            booting.join()
            living.autoscale(name)

        def http(head: Head, port: int, **more: Any) -> Any:
            port = int(living.dashboards[head.address.cluster].host.rpartition(":")[2])
            return really_http(head, port, **more)

        self.patch.setattr(Launcher, "up", up)
        self.patch.setattr(Head, "http", http)
        self.patch.setattr(Machines, "require_image", lambda self: None)
        self.patch.setattr(machines, "LAUNCH_PAUSES", ())
        self.patch.setattr("rayfleet.health.look._installed_ray", lambda: "2.60.0")
        for name in self.minimum:
            server = self.dashboards[name]
            server.respond = lambda asked, name=name: living._respond(name, asked)

    def _respond(self, name: str, asked: Asked) -> Answer:
        """What the dashboard of a head says, by the machines that there are."""
        rows = [{"node_id": "head", "state": "ALIVE", "is_head_node": True}]
        with self.google.cloud.lock:
            views = [row["view"] for row in self.google.cloud.state.table("nodes").values()]
        for view in views:
            labels = view["labels"]
            if labels["ray-cluster-name"] != self.cluster(name).identity:
                continue
            rows += [
                {
                    "node_id": end["ipAddress"],
                    "state": "ALIVE" if view["state"] == "READY" else "DEAD",
                    "node_ip": end["ipAddress"],
                    "labels": {"ray.io/node-group": labels.get("ray-user-node-type", "")},
                }
                for end in view["networkEndpoints"]
            ]
        complete = [{"labels": {}, "resources_total": {}} | row for row in rows]
        documents: dict[str, Any] = {
            "/api/version": {"ray_version": "2.60.0", "session_name": "session_1"},
            "/api/v0/nodes": {"data": {"result": {"result": complete}}},
            "/api/cluster_status": {
                "data": {"clusterStatus": REPORT.format(pending=" (no pending nodes)")}
            },
        }
        document = documents.get(asked.path.partition("?")[0], [])
        return Answer(body=json.dumps(document).encode())

"""An operator's fleet with one cluster: fleet file, generated config, keys, state folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from preserving.machine import Machine, environment
from rayfleet.cluster.known_hosts import record_host_key

CLUSTER = "us-east5"
PROJECT = "rayfleet-bench"
INVOKE = Path(sys.executable).with_name("invoke")

FLEET = """\
project: {project}
outputs: {{pins: "{folder}/pins.yaml", configs: "{folder}/clusters"}}
defaults:
  provider: gcp
  image: cluster
  template: gcp.yaml.j2
  accelerator: v6e
  ssh:
    user: {user}
    private_key: "{folder}/client_key"
    public_key: "{folder}/client_key.pub"
    proxy_command: "{folder}/enter"
  auth: {{mode: disabled}}
images:
  cluster:
    name: marin_cluster
    repository: marin
    dockerfile: docker/Dockerfile.cluster
    context: [docker]
registries:
  host: "{{region}}-docker.pkg.dev"
  regions: [us-east5]
clusters:
  {cluster}: {{zone: us-east5-b, bucket: marin-us-east5}}
"""

CONFIG = """\
cluster_name: {cluster}
provider: {{type: external, module: preserving.provider.OneHead}}
docker: {{image: none}}
head_node_type: head
available_node_types:
  head: {{min_workers: 0, max_workers: 0, resources: {{}}, node_config: {{}}}}
"""

SSHD = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
SetEnv HOME={folder} PATH={path}
"""

# OpenSSH's own server, in the machine that is the head now.
ENTER = """\
#!/bin/sh
exec nsenter --target "$(cat {pid_file})" --pid --net --mount -- \\
    {sshd} -i -e -f {folder}/sshd_config
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Who runs ``invoke``."""

    folder: Path

    @property
    def invoke(self) -> list[str]:
        """The command."""
        return [str(INVOKE)]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the command."""
        return environment() | {
            "INVOKE_FLEET": str(self.folder / "fleet.yaml"),
            "INVOKE_STATE": str(self.folder / "state"),
            # Where Ray finds the provider.
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        }


def make_operator(folder: Path, machine: Machine) -> Operator:
    """Write everything down that an operator of ``machine`` has."""
    (folder / "clusters").mkdir(parents=True)
    for name in ("host_key", "client_key"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd refuses to start without it
    values = {
        "folder": folder,
        "project": PROJECT,
        "cluster": CLUSTER,
        "user": "root",
        "path": f"{Path(sys.executable).parent}:{os.defpath}",
        "pid_file": machine.pid_file,
        "sshd": shutil.which("sshd"),
    }
    (folder / "fleet.yaml").write_text(FLEET.format(**values))
    (folder / "clusters" / f"{CLUSTER}.yaml").write_text(CONFIG.format(**values))
    (folder / "sshd_config").write_text(SSHD.format(**values))
    (folder / "enter").write_text(ENTER.format(**values))
    (folder / "enter").chmod(0o700)
    hosts = folder / "state" / "known_hosts" / PROJECT
    hosts.parent.mkdir(parents=True)
    record_host_key(hosts, CLUSTER, (folder / "host_key.pub").read_text())
    return Operator(folder=folder)

"""An operator of the heads: fleet file, generated configs, state folder, ssh_config."""

from __future__ import annotations

import getpass
import shutil
from dataclasses import dataclass
from pathlib import Path

from preserving.fleet import INVOKE
from preserving.machine import environment

from tailing.heads import Heads

PROJECT = "rayfleet-bench"

FLEET = """\
project: {project}
outputs: {{pins: "{folder}/pins.yaml", configs: "{folder}/clusters"}}
defaults:
  provider: gcp
  image: cluster
  template: gcp.yaml.j2
  accelerator: v6e
  ssh: {{user: {user}, private_key: "{key}", public_key: "{key}.pub"}}
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
"""
CLUSTER = "  {name}: {{zone: us-east5-b, bucket: marin-us-east5}}\n"
CONFIG = """\
cluster_name: {name}
provider: {{type: external, module: tailing.provider.Loopback, address: {host}}}
docker: {{image: none, container_name: ray_docker}}
head_node_type: head
available_node_types:
  head: {{min_workers: 0, max_workers: 0, resources: {{}}, node_config: {{}}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Who runs ``invoke``; the home folder is that of the heads' clients."""

    folder: Path
    home: Path

    @property
    def invoke(self) -> str:
        """The program."""
        return str(INVOKE)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the program, and of every other client."""
        return environment() | {
            "HOME": str(self.home),
            "INVOKE_FLEET": str(self.folder / "fleet.yaml"),
            "INVOKE_STATE": str(self.folder / "state"),
            # Where Ray finds the provider.
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        }


def make_operator(heads: Heads) -> Operator:
    """Write down what an operator of ``heads`` has. The port of a head is in ssh_config, as the
    fleet file knows none."""
    folder = heads.folder / "operator"
    (folder / "clusters").mkdir(parents=True)
    values = {"project": PROJECT, "folder": folder, "user": getpass.getuser()}
    text = FLEET.format(key=heads.client_key, **values)
    for name, host in zip(heads.names, heads.hosts, strict=True):
        text += CLUSTER.format(name=name)
        (folder / "clusters" / f"{name}.yaml").write_text(CONFIG.format(name=name, host=host))
    (folder / "fleet.yaml").write_text(text)
    known = folder / "state" / "known_hosts" / PROJECT
    known.parent.mkdir(parents=True)
    shutil.copy(heads.known_hosts, known)
    return Operator(folder=folder, home=heads.home)

"""A fleet of two clusters in two regions, with files, nodes and a head, as far as the collection
of images in use looks at them."""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rayfleet.cluster.known_hosts import record_host_key
from rayfleet.cluster.nodes import known_hosts
from rayfleet.fleet.model import Cluster, Fleet, Outputs, Registries, Ssh
from rayfleet.project import Project
from tests.support.artifact_registry import PROJECT, fleet_of
from tests.support.file_nodes import MODULE
from tests.support.sshd import LocalSshd

REGIONS = ("us-central2", "us-east5")
CONFIG = """\
cluster_name: {identity}
provider: {{type: external, module: {module}, file: {nodes}}}
docker: {{image: "{image}", container_name: ray_docker}}
head_node_type: head
available_node_types:
  head: {{min_workers: 0, node_config: {{}}}}
"""


@dataclass(frozen=True, kw_only=True)
class ProtectedFleet:
    """Clusters ``us-central2`` and ``us-east5``; every head is ``sshd``, its home that folder."""

    project: Project
    fleet: Fleet
    sshd: LocalSshd

    def config(self, cluster: str, image: str) -> None:
        """Generate a config that names ``image``."""
        path = self.fleet.config_path(self.fleet.clusters[cluster])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            CONFIG.format(
                identity=cluster, module=MODULE, nodes=self.project.state / "nodes", image=image
            )
        )

    def nodes(self, **clusters: Mapping[str, str]) -> None:
        """What the cloud has, by cluster (with ``_`` for ``-``): digests by node; ``head`` is one.

        A cluster that is not named does not answer.
        """
        rows = {
            cluster.replace("_", "-"): {
                name: {"head": name == "head", "digest": digest} for name, digest in nodes.items()
            }
            for cluster, nodes in clusters.items()
        }
        self.project.state.mkdir(parents=True, exist_ok=True)
        (self.project.state / "nodes").write_text(json.dumps(rows))

    def started(self, image: str) -> None:
        """Leave on the head what it was started with."""
        folder = self.sshd.folder / ".rayfleet"
        folder.mkdir(exist_ok=True)
        (folder / "started.yaml").write_text(f"docker: {{image: {image}}}\n")
        (folder / "started.json").write_text(json.dumps({"config": "", "image": image}))

    def image(self, region: str, digest: str = "", tag: str = "") -> str:
        """A whole reference."""
        end = (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
        return f"{self.fleet.registries.hosts[region]}/{PROJECT}/marin/marin_cluster{end}"


def protected_fleet(
    folder: Path, *, hosts: Mapping[str, str] | None = None, api: str = "127.0.0.1:1"
) -> ProtectedFleet:
    """One in ``folder``. The sshd is not started: it is a proxy command, as in the sandbox."""
    sshd = LocalSshd(folder=folder / "sshd")
    sshd.prepare()
    state = folder / "state"
    project = Project(root=folder, fleet_file=folder / "fleet.yaml", state=state)
    plain = fleet_of(REGIONS, api=api)
    ssh = Ssh(
        user=getpass.getuser(),
        private_key=str(sshd.folder / "client_key"),
        proxy_command=sshd.inetd_command,
    )
    (one,) = plain.clusters.values()
    clusters: dict[str, Cluster] = {
        region: replace(one, name=region, identity=region, region=region, ssh=ssh)
        for region in REGIONS
    }
    fleet = replace(
        plain,
        clusters=clusters,
        registries=Registries(
            regions=REGIONS,
            hosts=hosts or {region: f"{region}-docker.pkg.dev" for region in REGIONS},
            api=api,
            cleanup=replace(plain.registries.cleanup, keep_most_recent=1),
        ),
        outputs=Outputs(pins=state / "pins.yaml", configs=state / "clusters"),
    )
    made = ProtectedFleet(project=project, fleet=fleet, sshd=sshd)
    key = (sshd.folder / "host_key.pub").read_text()
    for region in REGIONS:
        record_host_key(known_hosts(project, fleet), region, key)
        made.config(region, made.image(region, tag="never"))
    made.nodes(**{region.replace("-", "_"): {} for region in REGIONS})
    return made

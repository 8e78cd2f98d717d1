"""A generated cluster config as the launcher and the gates need it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayfleet.errors import UsageError
from rayfleet.fleet.model import Cluster, Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """What Ray will be told about one cluster.

    ``provider`` is Ray's own section, passed on as it is. ``image`` is the full reference of
    the head's image; ``digest`` its ``sha256:…``, empty for a bare tag. ``min_workers`` maps a
    node type to its minimum, types without one left out. ``hash`` is of the file's bytes.
    """

    path: Path
    identity: str
    provider: Mapping[str, Any]
    image: str
    min_workers: Mapping[str, int]
    hash: str

    @property
    def digest(self) -> str:
        """The image's digest, or nothing when a bare tag is configured."""
        return self.image.partition("@")[2]

    @property
    def wanted_workers(self) -> int:
        """How many workers the cluster must have at least."""
        return sum(self.min_workers.values())


def read_launch_config(fleet: Fleet, cluster: Cluster) -> LaunchConfig:
    """Read the generated config of ``cluster``.

    Raises:
        UsageError: it has not been generated, or is no config.
    """
    import yaml

    path = fleet.config_path(cluster)
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            f"{cluster.name} has no generated config",
            why=f"there is no {path.name} in {path.parent}",
            next_step="invoke update-configs (after the first invoke cluster-docker)",
        ) from error
    try:
        content = yaml.load(raw, Loader=yaml.CSafeLoader)
        types = content["available_node_types"]
        return LaunchConfig(
            path=path,
            identity=content["cluster_name"],
            provider=content["provider"],
            image=_image(content, types[content["head_node_type"]]),
            min_workers={
                name: node["min_workers"] for name, node in types.items() if node["min_workers"]
            },
            hash=hashlib.sha256(raw).hexdigest(),
        )
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is no cluster config", why=str(error), next_step="invoke update-configs"
        ) from error


def _image(content: Mapping[str, Any], head: Mapping[str, Any]) -> str:
    docker = content.get("docker") or {}
    return str(docker.get("head_image") or docker.get("image") or head["node_config"]["image"])

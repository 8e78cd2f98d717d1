"""A generated cluster config as the launcher and the gates need it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfleet.errors import UsageError
from rayfleet.fleet.model import Cluster, Fleet

FOUND_BY_RAY = frozenset({"CPU", "memory", "object_store_memory"})
"""What Ray looks for on a machine when the config does not state it (Ray 2.60)."""

_OF_OPTION = {"--num-cpus": "CPU", "--num-gpus": "GPU", "--memory": "memory"}
_SPOT = "SPOT"
_ONE_CORE_PER_CHIP = frozenset({"v5litepod", "v6e"})
_MOST_CHIPS_OF_ONE_HOST = 8  # of those; others have 4
_CHIPS_PER_HOST = 4
_WITH_GPUS = re.compile(r"(?:a\d|g\d)\w*-")  # GCP's machine types that bring GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """A kind of node that a cluster may have.

    ``resources`` and ``labels`` are what the config states. ``found`` names resources that a
    machine may have without that; ``more_resources`` and ``more_labels`` say that it may have
    any. ``most`` is how many such nodes there can be, 1 for the head's type. ``preemptible``
    ones the cloud may take back, or not have. ``hosts`` is how many machines make one node: a
    slice of TPUs has several, each a node to Ray.
    """

    name: str
    most: int
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    found: frozenset[str] = FOUND_BY_RAY
    more_resources: bool = False
    more_labels: bool = False
    preemptible: bool = False
    hosts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """What Ray will be told about one cluster.

    ``provider`` is Ray's own section, passed on as it is. ``image`` is the full reference of
    the head's image; ``digest`` its ``sha256:…``, empty for a bare tag. ``container`` is what Ray
    calls its container on every node, empty where it runs on the node itself. ``min_workers``
    maps a node type to its minimum, types without one left out. ``node_types`` are all of them,
    the head's too. ``hash`` is of the file's bytes.
    """

    path: Path
    identity: str
    provider: Mapping[str, Any]
    image: str
    min_workers: Mapping[str, int]
    hash: str
    container: str = ""
    node_types: tuple[NodeType, ...] = ()

    @property
    def digest(self) -> str:
        """The image's digest, or nothing when a bare tag is configured."""
        return self.image.partition("@")[2]


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
            container=container_name(content),
            min_workers={
                name: node["min_workers"] for name, node in types.items() if node["min_workers"]
            },
            hash=hashlib.sha256(raw).hexdigest(),
            node_types=read_node_types(content),
        )
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{path} is no cluster config", why=str(error), next_step="invoke update-configs"
        ) from error


def container_name(content: Mapping[str, Any]) -> str:
    """What a cluster config calls the container that Ray runs in; empty without Docker.

    Raises:
        ValueError: an engine takes no such name.
    """
    name = str((content.get("docker") or {}).get("container_name") or "")
    if name and not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*", name):
        raise ValueError(f"docker.container_name: {name!r} is no name of a container")
    return name


def read_node_types(content: Mapping[str, Any]) -> tuple[NodeType, ...]:
    """The kinds of nodes that a cluster config allows, the head's too, in its order."""
    return tuple(_node_type(content, name) for name in content["available_node_types"])


def _image(content: Mapping[str, Any], head: Mapping[str, Any]) -> str:
    docker = content.get("docker") or {}
    return str(docker.get("head_image") or docker.get("image") or head["node_config"]["image"])


def _node_type(content: Mapping[str, Any], name: str) -> NodeType:
    node = content["available_node_types"][name]
    head = name == content["head_node_type"]
    limit = int(content.get("max_workers", 2))  # Ray's own default
    resources = {key: float(value) for key, value in (node.get("resources") or {}).items()}
    # What Ray's command line says counts on the machine, whatever the config states.
    command = " ".join(content.get(f"{'head' if head else 'worker'}_start_ray_commands") or ())
    options = set(re.findall(r"--[a-z-]+", command))
    there = frozenset(_OF_OPTION[option] for option in options & set(_OF_OPTION))
    machine = node.get("node_config") or {}
    return NodeType(
        name=name,
        most=1 if head else min(int(node.get("max_workers", limit)), limit),
        resources={key: value for key, value in resources.items() if key not in there},
        labels={str(key): str(value) for key, value in (node.get("labels") or {}).items()},
        found=FOUND_BY_RAY | there | _accelerators(machine),
        more_resources="--resources" in options,
        more_labels=bool(options & {"--labels", "--labels-file"}),
        preemptible=_preemptible(machine),
        hosts=_hosts(str(machine.get("acceleratorType", ""))),
    )


def _preemptible(machine: Mapping[str, Any]) -> bool:
    # The API of TPUs has the first, that of machines the second.
    for key in ("schedulingConfig", "scheduling"):
        terms = machine.get(key) or {}
        if terms.get("preemptible") or terms.get("spot") or terms.get("provisioningModel") == _SPOT:
            return True
    return False


def _hosts(accelerator: str) -> int:
    """How many machines a slice of TPUs such as ``v4-16`` has, by the rules of Ray 2.60."""
    kind, _, size = accelerator.partition("-")
    if not (kind and size.isdigit()):
        return 1
    one_core = kind in _ONE_CORE_PER_CHIP
    chips = int(size) if one_core else int(size) // 2
    if one_core and chips <= _MOST_CHIPS_OF_ONE_HOST:
        return 1
    return max(chips // _CHIPS_PER_HOST, 1)


def _accelerators(machine: Mapping[str, Any]) -> frozenset[str]:
    found = set()
    if machine.get("guestAccelerators") or _WITH_GPUS.match(str(machine.get("machineType", ""))):
        found.add("GPU")
    if machine.get("acceleratorType") or machine.get("acceleratorConfig"):
        found.add("TPU")
    return frozenset(found)

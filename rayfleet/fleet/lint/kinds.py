"""What a YAML document is, by its keys: people give a file of one kind where another belongs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

_RAY_KEYS = (
    "auth available_node_types cluster_name docker file_mounts head_node_type idle_timeout_minutes"
    " head_start_ray_commands max_workers provider setup_commands upscaling_speed"
    " worker_start_ray_commands"
)
_FLEET_KEYS = "clusters defaults images jobs outputs project registries rollout"
RAY_KEYS, FLEET_KEYS = frozenset(_RAY_KEYS.split()), frozenset(_FLEET_KEYS.split())


class Kind(StrEnum):
    """Kinds of documents that lint knows."""

    RAY = "a Ray cluster config"
    KUBERAY = "a resource of KubeRay"
    KUBERNETES = "another resource of Kubernetes"
    FLEET = "a fleet file"
    OTHER = "something else"


def kind_of(document: Mapping[str, object]) -> Kind:
    """What ``document`` seems to be; of two kinds of keys, the more frequent counts."""
    version = document.get("apiVersion")
    if isinstance(version, str) and "kind" in document:
        return Kind.KUBERAY if version.startswith("ray.io/") else Kind.KUBERNETES
    ray, fleet = len(RAY_KEYS & document.keys()), len(FLEET_KEYS & document.keys())
    if ray == fleet == 0:
        return Kind.OTHER
    return Kind.RAY if ray > fleet else Kind.FLEET

"""What the installed Ray says of cluster configs: its schema, and what it fills in.

Importing Ray takes a third of a second; finding its files does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from rayfleet.errors import PrerequisiteMissing
from rayfleet.fleet.document import Value

# Below the package ray.autoscaler; those of Ray 2.60's `ray.autoscaler._private.providers`.
DEFAULTS: Mapping[str, str] = {
    **{name: f"{name}/defaults.yaml" for name in ("aliyun", "aws", "azure", "gcp", "local")},
    **{name: f"{name}/defaults.yaml" for name in ("spark", "vsphere")},
    "readonly": "_private/readonly/defaults.yaml",
    "fake_multinode": "_private/fake_multi_node/example.yaml",
    "fake_multinode_docker": "_private/fake_multi_node/example_docker.yaml",
}
PROVIDERS = frozenset({*DEFAULTS, "external", "kuberay"})
"""Every type of provider that Ray 2.60 has."""
_EXTERNAL: dict[str, Value] = {
    "available_node_types": {"ray.head.default": {}, "ray.worker.default": {}},
    "head_node_type": "ray.head.default",
}


@cache
def ray_schema() -> dict[str, Any]:
    """The JSON schema that Ray holds cluster configs against.

    Raises:
        PrerequisiteMissing: Ray is not installed.
    """
    schema: dict[str, Any] = json.loads((_folder() / "ray-schema.json").read_text("utf-8"))
    return schema


@cache
def ray_defaults(provider: str) -> Mapping[str, Value]:
    """What Ray fills in where a config of ``provider`` lacks a key of the top level.

    Empty if Ray has no such provider, or does not ship its defaults.

    Raises:
        PrerequisiteMissing: Ray is not installed.
    """
    if provider == "external":
        return _EXTERNAL
    path = _folder() / DEFAULTS.get(provider, "")
    if not path.is_file():
        return {}
    found: dict[str, Value] = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    return found


def _folder() -> Path:
    found = find_spec("ray")
    if found is None or found.origin is None:
        raise PrerequisiteMissing("Ray is not installed", next_step="invoke doctor")
    return Path(found.origin).parent / "autoscaler"

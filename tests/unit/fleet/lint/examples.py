"""A config without a fault for each provider that `ray up` drives, and ways to spoil it."""

from __future__ import annotations

from pathlib import Path

from rayfleet.fleet.lint.finding import Finding
from rayfleet.fleet.lint.run import lint_files

MARK = "#!"
"""At the end of the line that a finding is expected in."""

COMMANDS = """\
setup_commands:
  - pip install 'ray[default]==2.60.0'
head_start_ray_commands:
  - ray stop
  - RAY_AUTH_MODE=disabled ray start --head --port=6379 --dashboard-host=127.0.0.1 \
--autoscaling-config=~/ray_bootstrap_config.yaml
worker_start_ray_commands:
  - ray stop
  - RAY_AUTH_MODE=disabled ray start --address=$RAY_HEAD_IP:6379
"""
AUTH = """\
auth:
  ssh_user: ubuntu
"""
TYPES = """\
head_node_type: leader
available_node_types:
  leader:
    max_workers: 0
    resources: {CPU: 2}
    node_config: {NODE}
  helper:
    min_workers: 1
    max_workers: 3
    resources: {CPU: 4}
    node_config: {NODE}
"""
DOCKER = """\
docker:
  image: rayproject/ray:2.60.0
  container_name: ray_docker
  run_options:
    - -e RAY_AUTH_MODE=disabled
"""
EXTERNAL = """\
docker: {}
file_mounts: {}
cluster_synced_files: []
initialization_commands: []
head_setup_commands: []
worker_setup_commands: []
"""


def _config(name: str, provider: str, *parts: str) -> str:
    head = f"cluster_name: {name}\nmax_workers: 3\nprovider:\n"
    lines = "".join(f"  {line}\n" for line in provider.strip().splitlines())
    return "".join((head, lines, AUTH, *parts, COMMANDS))


GOOD = {
    "aws": _config(
        "aws-farm",
        "type: aws\nregion: us-west-2\navailability_zone: us-west-2a, us-west-2-lax-1a\n"
        "cache_stopped_nodes: false",
        TYPES.replace("NODE", "InstanceType: m5.large"),
        DOCKER,
    ),
    "azure": _config(
        "azure-farm",
        "type: azure\nlocation: uksouth\nresource_group: farm\nsubscription_id: '0'\n"
        "cache_stopped_nodes: false",
        TYPES.replace("NODE", "azure_arm_parameters: {vmSize: Standard_D2s_v3}"),
    ),
    "external": _config(
        "own-farm",
        "type: external\nmodule: farm.provider.Machines\nanything: goes",
        TYPES.replace("NODE", "size: small"),
        EXTERNAL,
    ),
    "gcp": _config(
        "gcp-farm",
        "type: gcp\nregion: us-west4\navailability_zone: us-west4-a\nproject_id: my-project",
        TYPES.replace("NODE", "machineType: n2-standard-4"),
        DOCKER,
    ),
    "local": _config(
        "home-farm", "type: local\nhead_ip: 10.0.0.1\nworker_ips: [10.0.0.2, 10.0.0.3]"
    ),
    "vsphere": _config(
        "vm-farm",
        "type: vsphere\nvsphere_config: {namespace: farm}",
        TYPES.replace("NODE", "vm_class: small"),
    ),
}


def spoiled(provider: str, edits: dict[str, str]) -> str:
    """A good config in which each text, which occurs once, is replaced."""
    text = GOOD[provider]
    for old, new in edits.items():
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


def lint(folder: Path, text: str, name: str = "config.yaml") -> list[Finding]:
    """What lint says of ``text``, where keys of no machine are looked for."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return list(lint_files([path]))


def marked(text: str) -> list[int]:
    """The lines that end in the mark."""
    return [number for number, line in enumerate(text.splitlines(), 1) if line.endswith(MARK)]

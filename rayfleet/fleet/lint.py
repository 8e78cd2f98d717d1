"""Mistakes that Ray's own validation lets through.

Each was tried against Ray 2.60: its schema is open below ``provider`` and ``node_config``, its
code repairs or drops some values in silence, and others fail only when a VM is up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]

IDENTITY = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)
GCP_KEYS = frozenset(
    {
        "type",
        "region",
        "availability_zone",
        "project_id",
        "cache_stopped_nodes",
        "use_internal_ips",
        "disable_node_updaters",
        "gcp_credentials",
    }
)
SECRET = re.compile(
    r"\b(?:[A-Z0-9_]*(?:TOKEN|PASSWORD|SECRET|API_KEY))=(?!\$|disabled\b)[\"']?[\w+/.-]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\bhf_[A-Za-z0-9]{20,}|\bAIza[\w-]{30,}"
)


def lint_config(config: Config) -> list[str]:
    """What is wrong with a config that already fits Ray's schema; empty if nothing is."""
    checks = (
        _check_identity(config),
        _check_provider(config),
        _check_scaling(config),
        _check_node_types(config),
        _check_docker(config),
        _check_commands(config),
        _check_files(config),
        _check_auth_mode(config),
        _check_secrets(config, ()),
    )
    return [fault for check in checks for fault in check]


def _check_identity(config: Config) -> Iterator[str]:
    name = config["cluster_name"]
    if not IDENTITY.fullmatch(name) or len(name) > 40:
        yield f"cluster_name: {name!r} must be up to 40 of a-z, 0-9 and -, a letter first"


def _check_provider(config: Config) -> Iterator[str]:
    provider = config["provider"]
    if provider["type"] == "gcp":
        for key in sorted(set(provider) - GCP_KEYS):
            yield f"provider.{key}: unknown to the gcp provider, which ignores it"
        for key in ("project_id", "region", "availability_zone"):
            if not provider.get(key):
                yield f"provider.{key}: missing"
        zone, region = provider.get("availability_zone"), provider.get("region")
        if zone and region and not zone.startswith(f"{region}-"):
            yield f"provider.availability_zone: {zone} is not in {region}"
    if provider["type"] == "external" and not provider.get("module"):
        yield "provider.module: missing"
    if ":" in str(provider.get("head_ip", "")):
        yield "provider.head_ip: must be an address without a port"


def _check_scaling(config: Config) -> Iterator[str]:
    if config.get("upscaling_speed") == 0:
        yield "upscaling_speed: 0 means that no worker is ever added"
    if "max_workers" not in config:
        yield "max_workers: missing, so Ray would allow no more than 2"
    limit = config.get("max_workers", 0)
    total = sum(
        one.get("min_workers", 0) for one in config.get("available_node_types", {}).values()
    )
    if total > limit:
        yield f"max_workers: {limit} is below the sum of all min_workers, {total}"


def _check_node_types(config: Config) -> Iterator[str]:
    node_types = config.get("available_node_types", {})
    head = config.get("head_node_type")
    if head not in node_types:
        yield f"head_node_type: {head!r} is not one of available_node_types"
    for name, one in node_types.items():
        where = f"available_node_types.{name}"
        low, high = one.get("min_workers", 0), one.get("max_workers", config.get("max_workers", 0))
        if low < 0:
            yield f"{where}.min_workers: {low} is negative"
        if high < 0:
            yield f"{where}.max_workers: {high} is negative"
        elif low > high:
            yield f"{where}.min_workers: {low} is above max_workers {high}"
        if name == head and (low, one.get("max_workers", 0)) != (0, 0):
            yield f"{where}: the head's type must have min_workers and max_workers 0"


def _check_docker(config: Config) -> Iterator[str]:
    docker = config.get("docker")
    if not docker:
        return
    if not (docker.get("image") or (docker.get("head_image") and docker.get("worker_image"))):
        yield "docker.image: missing"
    if not docker.get("container_name"):
        yield "docker.container_name: missing"


def _check_commands(config: Config) -> Iterator[str]:
    for key in COMMANDS:
        for index, command in enumerate(config.get(key) or ()):
            if re.match(r"\s*conda activate\b[^;&|]*$", command):
                yield f"{key}.{index}: every command has a shell of its own; this activates nothing"
            if "--dashboard-host=0.0.0.0" in command:
                yield f"{key}.{index}: the dashboard would be open to the network; use 127.0.0.1"
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        if not config.get(key):
            yield f"{key}: missing, so Ray's default would open the dashboard and set no auth mode"


def _check_files(config: Config) -> Iterator[str]:
    if "cluster_synced_files" not in config and config["provider"]["type"] == "external":
        yield "cluster_synced_files: missing, and an external provider gets no defaults"
    for remote, local in (config.get("file_mounts") or {}).items():
        if not Path(str(local)).expanduser().exists():
            yield f"file_mounts.{remote}: there is no {local} on this machine"


def _check_auth_mode(config: Config) -> Iterator[str]:
    """Ray 2.60 guesses the mode from files that lie about, differently on head and worker."""
    docker = config.get("docker") or {}
    shared = [str(option) for option in docker.get("run_options") or ()]
    for role in ("head", "worker"):
        commands = config.get(f"{role}_start_ray_commands") or ()
        options = [*shared, *map(str, docker.get(f"{role}_run_options") or ())]
        if commands and not any("RAY_AUTH_MODE=" in text for text in (*options, *commands)):
            yield f"{role}_start_ray_commands: RAY_AUTH_MODE is not set; say token or disabled"


def _check_secrets(value: object, trail: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, str) and SECRET.search(value):
        yield f"{'.'.join(trail)}: holds what looks like a secret; fetch it on the machine instead"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _check_secrets(item, (*trail, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check_secrets(item, (*trail, str(index)))

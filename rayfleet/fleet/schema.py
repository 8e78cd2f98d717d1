"""The shape of a fleet file: which keys there are, and what each looks like.

These classes only say what may be written. What it must mean is said in check.py, and the
values that the rest of rayfleet works with are those of model.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from rayfleet.fleet.document import Trail
from rayfleet.fleet.model import (
    AuthMode,
    Compression,
    NotifyKind,
    OnFailure,
    Provider,
    Unhealthy,
)

CLOSED = {"extra": "forbid"}

# What messages show to who leaves a key out or writes nonsense.
EXAMPLES: Mapping[str, str] = {
    "user": "ray",
    "private_key": "~/.ssh/id_ed25519",
    "public_key": "~/.ssh/id_ed25519.pub",
    "proxy_command": "nc -x proxy:1080 %h %p",
    "mode": "token",
    "secret": "RAY_AUTH_TOKEN",
    "name": "marin_cluster",
    "repository": "marin",
    "dockerfile": "docker/Dockerfile.cluster",
    "context": "[docker]",
    "base_image": "debian:bookworm-slim",
    "compression": "gzip",
    "delete_older_than": "30d",
    "keep_most_recent": "16",
    "host": '"{region}-docker.pkg.dev"',
    "regions": "[us-central2]",
    "cleanup": "{delete_older_than: 30d}",
    "min": "0",
    "max": "1024",
    "name_prefix": "marin-",
    "provider": "gcp",
    "image": "cluster",
    "template": "gcp.yaml.j2",
    "accelerator": "v5e",
    "max_workers": "1024",
    "ssh": "{user: ray}",
    "auth": "{mode: token, secret: RAY_AUTH_TOKEN}",
    "zone": "us-east5-b",
    "bucket": "marin-us-east5",
    "identity": "marin-us-east5",
    "region": "us-east5",
    "tag": '"20251209"',
    "ray": '"2.53.0"',
    "workers": "{base: {min: 1, max: 4}}",
    "order": "[us-east5]",
    "waves": '[1, "25%", "100%"]',
    "parallel": "2",
    "parallel_per_region": "1",
    "max_failures": "0",
    "max_untouched": "0",
    "on_failure": "stop",
    "unhealthy": "fail",
    "bake": "10m",
    "gates": "{workers: {timeout: 30m}}",
    "enabled": "false",
    "interval": "2s",
    "timeout": "10m",
    "successes": "1",
    "run": "echo ok",
    "command": "[scripts/check.sh]",
    "notify": "{kind: slack, url_env: RAYFLEET_WEBHOOK}",
    "kind": "slack",
    "url_env": "RAYFLEET_WEBHOOK",
    "pins": "infra/images.lock.yaml",
    "configs": "infra/clusters",
    "project": "hai-gcp-models",
    "images": "{cluster: {name: marin_cluster, …}}",
    "registries": "{host: …, regions: […]}",
    "clusters": "{us-east5: {zone: us-east5-b, …}}",
    "defaults": "{provider: gcp}",
    "rollout": "{order: [us-east5]}",
    "outputs": "{pins: …}",
    "jobs": '{infrastructure: ["cleanup-*"]}',
    "infrastructure": '["cleanup-*"]',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SshEntry:
    """``ssh:`` of the defaults or of a cluster."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    user: str | None = None
    private_key: str | None = None
    public_key: str | None = None
    proxy_command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthEntry:
    """``auth:`` of the defaults or of a cluster."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    mode: AuthMode | None = None
    secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEntry:
    """One family of ``images:``."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    name: str
    repository: str
    dockerfile: str
    context: list[str]
    base_image: str = "debian:bookworm-slim"
    compression: Compression = Compression.GZIP


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupEntry:
    """``registries.cleanup:``."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    delete_older_than: str = "30d"
    keep_most_recent: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistriesEntry:
    """``registries:``."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    host: str
    regions: list[str]
    cleanup: CleanupEntry = field(default_factory=CleanupEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersEntry:
    """One slice of ``workers:``."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    min: int = 0
    max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsEntry:
    """``defaults:``: what clusters that do not say otherwise have."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    name_prefix: str = ""
    provider: Provider | None = None
    image: str | None = None
    template: str | None = None
    accelerator: str | None = None
    max_workers: int = 1024
    ssh: SshEntry = field(default_factory=SshEntry)
    auth: AuthEntry = field(default_factory=AuthEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEntry:
    """One cluster of ``clusters:``."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    zone: str
    bucket: str
    identity: str | None = None
    region: str | None = None
    provider: Provider | None = None
    image: str | None = None
    tag: str = ""
    ray: str = ""
    template: str | None = None
    accelerator: str | None = None
    max_workers: int | None = None
    workers: dict[str, WorkersEntry] = field(default_factory=dict)
    ssh: SshEntry = field(default_factory=SshEntry)
    auth: AuthEntry = field(default_factory=AuthEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEntry:
    """One gate of ``rollout.gates:``; check.py reads the durations."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    enabled: bool = True
    interval: Any = None
    timeout: Any = None
    successes: int | None = None
    run: str = ""
    command: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyEntry:
    """``rollout.notify:``."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    kind: NotifyKind
    url_env: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEntry:
    """``rollout:``; waves are counts or percentages, which check.py reads, as it does ``bake``."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    order: list[str] = field(default_factory=list)
    waves: list[Any] = field(default_factory=lambda: [1, "25%", "100%"])
    parallel: int = 2
    parallel_per_region: int = 1
    max_failures: int = 0
    max_untouched: int = 0
    on_failure: OnFailure = OnFailure.STOP
    unhealthy: Unhealthy = Unhealthy.FAIL
    bake: Any = "10m"
    gates: dict[str, GateEntry] = field(default_factory=dict)
    notify: NotifyEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsEntry:
    """``jobs:``."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    infrastructure: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsEntry:
    """``outputs:``: where machine-written files go."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    pins: str = "infra/images.lock.yaml"
    configs: str = "infra/clusters"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEntry:
    """The whole file."""

    __pydantic_config__: ClassVar[Any] = CLOSED
    project: str
    images: dict[str, ImageEntry]
    registries: RegistriesEntry
    clusters: dict[str, ClusterEntry]
    defaults: DefaultsEntry = field(default_factory=DefaultsEntry)
    rollout: RolloutEntry = field(default_factory=RolloutEntry)
    jobs: JobsEntry = field(default_factory=JobsEntry)
    outputs: OutputsEntry = field(default_factory=OutputsEntry)


def keys_at(trail: Trail) -> tuple[str, ...]:
    """The keys that may stand below ``trail``; none where the file's author names them."""
    entry = _class_at(trail)
    return tuple(item.name for item in fields(entry)) if is_dataclass(entry) else ()


def example_at(trail: Trail) -> str:
    """What may be written at ``trail``, or nothing if it is no key of the schema."""
    known = trail and trail[-1] in keys_at(trail[:-1])
    return EXAMPLES[str(trail[-1])] if known else ""


def _class_at(trail: Trail) -> object:
    here: object = FleetEntry
    for step in trail:
        if isinstance(here, type) and is_dataclass(here):
            here = _bare(get_type_hints(here).get(str(step)))
        else:
            here = _bare(get_args(here)[-1]) if get_origin(here) in (dict, list) else None
    return here


def _bare(kind: object) -> object:
    """``X`` for ``X | None``."""
    return get_args(kind)[0] if isinstance(kind, UnionType) else kind

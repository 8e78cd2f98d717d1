"""The fleet as frozen values. What a field means and its unit is said here, once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path


class Provider(StrEnum):
    """Where a cluster's machines come from."""

    GCP = "gcp"
    SANDBOX = "sandbox"


class AuthMode(StrEnum):
    """Ray's own values of RAY_AUTH_MODE (Ray 2.52 and later)."""

    TOKEN = "token"  # noqa: S105 (a mode, not a secret)
    DISABLED = "disabled"


FIRST_WITH_TOKENS = (2, 52)
RAY_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9A-Za-z]{1,20}){0,3}")


def knows_tokens(ray: str) -> bool:
    """Whether ``ray``, a version as in RAY_VERSION, has token authentication. An older Ray ignores
    RAY_AUTH_MODE and lets everybody in."""
    major, minor = ray.split(".")[:2]
    return (int(major), int(minor)) >= FIRST_WITH_TOKENS


class Compression(StrEnum):
    """How the layers of a published image are compressed; Docker before 23.0 pulls no zstd."""

    GZIP = "gzip"
    ZSTD = "zstd"


class OnFailure(StrEnum):
    """What follows when the failure budget of a rollout is spent."""

    STOP = "stop"
    ROLLBACK_FAILED = "rollback-failed"
    ROLLBACK_ALL = "rollback-all"


class Unhealthy(StrEnum):
    """What to do with a cluster whose head is not healthy before it is touched."""

    FAIL = "fail"
    SKIP = "skip"
    REPAIR = "repair"


class NotifyKind(StrEnum):
    """What a webhook understands."""

    SLACK = "slack"
    DISCORD = "discord"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """How heads are reached. Paths may start with ``~``; ``proxy_command`` may hold ``%h``."""

    user: str = "ray"
    private_key: str = ""
    public_key: str = ""
    proxy_command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """Ray token authentication; ``secret`` is the name in the secret store, not the token."""

    mode: AuthMode = AuthMode.TOKEN
    secret: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFamily:
    """One image that clusters run. Each family has a LATEST pin of its own.

    ``name`` is the image's name inside ``repository``; ``dockerfile`` is relative to the
    project; ``context`` lists the files and folders (relative to the project) that the build
    sees, and nothing else; ``base_image`` becomes the build argument BASE_IMAGE: an
    image by its reference, or another family, which means what that one's pin names.
    """

    family: str
    name: str
    repository: str
    dockerfile: str
    context: tuple[str, ...]
    base_image: str = "debian:bookworm-slim"
    compression: Compression = Compression.GZIP


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """What a repository deletes and keeps; ``keep_most_recent`` counts versions, not tags."""

    delete_older_than: timedelta = timedelta(days=30)
    keep_most_recent: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Registries:
    """One registry per region.

    ``hosts`` maps a region to ``host[:port]``. It is empty for a sandbox that is not up.
    ``api`` is the address of the Artifact Registry API; empty means Google's own.
    """

    regions: tuple[str, ...]
    hosts: Mapping[str, str]
    api: str = ""
    cleanup: Cleanup = field(default_factory=Cleanup)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How many workers of one slice type; ``max_count`` is Ray's max_workers of the type."""

    min_count: int = 0
    max_count: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One Ray cluster.

    ``name`` is what operators type. ``identity`` is Ray's ``cluster_name`` and must not change
    while the cluster runs. ``image`` is the key of an image family; ``tag`` pins a fixed tag
    of it instead of the family's LATEST (empty: LATEST). ``workers`` has one entry per slice
    type, ``base`` being the accelerator's base slice. ``ray`` is Ray's version in the image of a
    fixed tag; empty where that is not known.
    """

    name: str
    identity: str
    provider: Provider
    region: str
    zone: str
    accelerator: str
    bucket: str
    image: str
    template: str
    workers: Mapping[str, Workers]
    max_workers: int
    ssh: Ssh
    auth: Auth
    tag: str = ""
    ray: str = ""


GATES = (
    "ssh",
    "health",
    "version",
    "image",
    "config",
    "age",
    "workers",
    "autoscaler",
    "probe",
)
"""The gates that every started cluster must pass, by the names that the fleet file has for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """What the fleet file says of one gate; None and empty leave the gate's own default.

    ``interval`` and ``timeout`` are seconds, ``successes`` in a row open the gate. ``run`` is
    the entrypoint of the probe job. ``command`` is the argv of a gate of the fleet's own.
    """

    enabled: bool = True
    interval: float | None = None
    timeout: float | None = None
    successes: int | None = None
    run: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Who hears of a rollout: ``url_env`` names the environment variable with the URL."""

    kind: NotifyKind
    url_env: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPolicy:
    """How the fleet is changed, unless the command line says otherwise.

    ``order`` is changed first, one by one; the rest follows in ``waves`` (counts or '25%').
    ``parallel`` clusters change at once, ``per_region`` of them in one region (0: no limit).
    ``max_failures`` is how many clusters may fail after they were touched, ``max_untouched``
    how many before, until nothing new is started. ``bake`` is in seconds per wave. ``gates``
    has what was written of each gate, by its name.
    """

    order: tuple[str, ...] = ()
    waves: tuple[int | str, ...] = (1, "25%", "100%")
    parallel: int = 2
    per_region: int = 1
    max_failures: int = 0
    max_untouched: int = 0
    on_failure: OnFailure = OnFailure.STOP
    unhealthy: Unhealthy = Unhealthy.FAIL
    bake: float = 600.0
    gates: Mapping[str, GatePolicy] = field(default_factory=dict)
    notify: Notify | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Machine-written files: the pins, and the folder of generated cluster configs."""

    pins: Path
    configs: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlace:
    """What the sandbox told us when it came up (``<state>/sandbox/endpoints.json``).

    ``credentials`` is a 0600 file of registry passwords by host; ``private_key`` opens its VMs.
    """

    id: str
    network: str
    engine: str
    credentials: Path
    private_key: Path
    public_key: Path
    registry_ports: Mapping[str, int]
    api: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The whole fleet, as one file describes it.

    ``infrastructure_jobs`` are globs of submission ids: jobs of the clusters themselves, which
    no restore gives back.
    """

    project: str
    source: Path
    images: Mapping[str, ImageFamily]
    registries: Registries
    clusters: Mapping[str, Cluster]
    rollout: RolloutPolicy
    outputs: Outputs
    sandbox: SandboxPlace | None = None
    infrastructure_jobs: tuple[str, ...] = ()

    @property
    def is_sandbox(self) -> bool:
        """True when every cluster of the fleet lives in the sandbox."""
        return all(cluster.provider is Provider.SANDBOX for cluster in self.clusters.values())

    def config_path(self, cluster: Cluster) -> Path:
        """Where the generated Ray cluster config of ``cluster`` lies."""
        return self.outputs.configs / f"{cluster.name}.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """LATEST of one image family: ``digest`` (``sha256:…``) is empty before the first publish.

    ``published`` is ISO 8601 UTC; ``commit`` is the full commit the image was built from. ``ray``
    is Ray's version in it, of an image that was built elsewhere: those built here know tokens.
    """

    tag: str
    digest: str = ""
    published: str = ""
    commit: str = ""
    ray: str = ""

    @property
    def reference(self) -> str:
        """``tag@sha256:…``, or the bare tag when there is no digest yet."""
        return f"{self.tag}@{self.digest}" if self.digest else self.tag

"""The Docker engine as the sandbox uses it: the only module here that talks to it.

(The node provider does, too, but it runs inside Ray.)
"""

from __future__ import annotations

import io
import ipaddress
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from rayfleet.errors import PrerequisiteMissing, ToolFailed
from rayfleet.sandbox.removal import remove_container
from rayfleet.sandbox.vm import CLUSTER_LABEL, KIND_LABEL, SANDBOX_LABEL, TAG_PREFIX

if TYPE_CHECKING:
    from docker import DockerClient

DEFAULT_ENGINE = "unix:///var/run/docker.sock"
# RFC 2544 sets this block aside for benchmarks: no VPN and no office network uses it.
ADDRESS_SPACE = ipaddress.ip_network("198.18.0.0/15")
TIMEOUT = 60  # seconds for one answer of the engine
PORT_TAKEN = ("port is already allocated", "address already in use")


def engine_url() -> str:
    """The engine to use: DOCKER_HOST, else the default socket."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_ENGINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A container of the sandbox's own: a registry."""

    name: str
    image: str
    region: str
    port: int
    environment: Mapping[str, str]
    mounts: Mapping[str, str]
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A container as it is now. ``port`` is the host port of a service, 0 for a VM."""

    name: str
    kind: str
    state: str
    cluster: str = ""
    role: str = ""
    region: str = ""
    address: str = ""
    image: str = ""
    port: int = 0


class PortTaken(ToolFailed):
    """Somebody else listens on the port that a service was to have."""


@dataclass
class Engine:
    """One engine, seen by one sandbox: everything it makes carries the sandbox's label."""

    url: str
    sandbox: str
    labels: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.labels = {SANDBOX_LABEL: self.sandbox}

    @cached_property
    def client(self) -> DockerClient:
        """The SDK's client; connecting is left to the first call."""
        from docker import DockerClient

        return DockerClient(base_url=self.url, timeout=TIMEOUT)

    def version(self) -> str:
        """The engine's version.

        Raises:
            PrerequisiteMissing: it does not answer.
        """
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        try:
            return str(self.client.version()["Version"])
        except (DockerException, RequestException, OSError) as error:
            raise PrerequisiteMissing(
                f"no Docker engine answers on {self.url}",
                why=_cause(error),
                next_step="invoke sandbox.up (as root on Debian it installs and starts one)",
            ) from error

    # --- network -------------------------------------------------------------------------

    def ensure_network(self, name: str) -> None:
        """Make the bridge network ``name`` in a free /24 of :data:`ADDRESS_SPACE`."""
        from docker.errors import APIError
        from docker.types import IPAMConfig, IPAMPool

        if self.client.networks.list(names=[f"^{name}$"]):
            return
        subnets = list(ADDRESS_SPACE.subnets(new_prefix=24))
        start = int(self.sandbox, 16) % len(subnets)
        for subnet in subnets[start:] + subnets[:start]:
            pool = IPAMPool(subnet=str(subnet))
            try:
                self.client.networks.create(
                    name,
                    driver="bridge",
                    check_duplicate=True,
                    ipam=IPAMConfig(pool_configs=[pool]),
                    labels=self.labels,
                )
                return
            except APIError as error:
                if "overlap" not in str(error):
                    raise ToolFailed(f"network {name} was refused", why=_cause(error)) from error
        raise ToolFailed(f"no free subnet for network {name}", why=f"all of {ADDRESS_SPACE} taken")

    # --- services and VMs ----------------------------------------------------------------

    def rows(self) -> tuple[Row, ...]:
        """Every container of this sandbox, stopped ones included, in order of names."""
        found = self.client.api.containers(
            all=True, filters={"label": f"{SANDBOX_LABEL}={self.sandbox}"}
        )
        return tuple(sorted((_row(entry) for entry in found), key=lambda row: row.name))

    def ensure_service(self, service: Service) -> None:
        """Have ``service`` running on its port, whatever state its container is in.

        Raises:
            PortTaken: another process has the port.
            ToolFailed: the engine refused for another reason.
        """
        existing = next((row for row in self.rows() if row.name == service.name), None)
        if existing is not None and existing.state == "running":
            return
        if existing is not None:
            self.remove(service.name)
        from docker.errors import APIError

        try:
            self.client.containers.run(
                service.image,
                name=service.name,
                detach=True,
                init=True,
                user=service.user,
                environment=dict(service.environment),
                ports={"5000/tcp": ("127.0.0.1", service.port)},
                volumes={k: {"bind": v, "mode": "rw"} for k, v in service.mounts.items()},
                labels=self.labels | {KIND_LABEL: "registry", "rayfleet.region": service.region},
            )
        except APIError as error:
            self.remove(service.name)
            if any(text in str(error) for text in PORT_TAKEN):
                raise PortTaken(f"port {service.port} is taken", why=service.name) from error
            raise ToolFailed(f"container {service.name}", why=_cause(error)) from error

    def remove(self, name: str) -> None:
        """Kill and remove a container, at once; one that is gone is fine.

        Raises:
            ToolFailed: the engine refuses it.
        """
        from docker.errors import APIError

        try:
            remove_container(self.client, name)
        except APIError as error:
            raise ToolFailed(
                f"container {name} stays", why=_cause(error), next_step=f"docker rm --force {name}"
            ) from error

    def last_words(self, name: str) -> str:
        """The end of what a container printed, for an error message."""
        return str(self.client.containers.get(name).logs(tail=5).decode(errors="replace")).strip()

    # --- images --------------------------------------------------------------------------

    def has_image(self, tag: str) -> bool:
        """Whether the engine holds ``tag``."""
        from docker.errors import ImageNotFound

        try:
            self.client.images.get(tag)
        except ImageNotFound:
            return False
        return True

    def pull_as(self, source: str, tag: str) -> bool:
        """Pull ``source`` and give it the name ``tag``; False when it cannot be had."""
        from docker.errors import APIError
        from requests.exceptions import RequestException

        with suppress(APIError, RequestException):
            self.client.images.pull(source).tag(tag)
            return True
        return False

    def import_image(self, archive: IO[bytes], tag: str) -> None:
        """Make the image ``tag`` of a tar archive of a root file system."""
        name, _, version = tag.partition(":")
        answer = self.client.api.import_image_from_stream(
            archive, repository=name, tag=version, changes=['CMD ["bash"]']
        )
        if "errorDetail" in str(answer):
            raise ToolFailed(f"image {tag} was not imported", why=str(answer)[-300:])

    def build_image(self, dockerfile: str, tag: str) -> None:
        """Build a Dockerfile that needs no context, with the host's network."""
        from docker.errors import APIError, BuildError

        try:
            self.client.images.build(
                fileobj=io.BytesIO(dockerfile.encode()), tag=tag, network_mode="host", rm=True
            )
        except BuildError as error:
            last = [str(line.get("stream", "")).strip() for line in error.build_log]
            raise ToolFailed(
                f"image {tag} was not built", why="\n  ".join([str(error.msg), *last[-8:]])
            ) from error
        except APIError as error:
            raise ToolFailed(f"image {tag} was not built", why=_cause(error)) from error

    # --- the end -------------------------------------------------------------------------

    def remove_network(self, name: str) -> None:
        """Remove the network ``name`` if it is there."""
        for network in self.client.networks.list(names=[f"^{name}$"]):
            network.remove()

    def remove_volumes(self) -> None:
        """Remove this sandbox's volumes."""
        for volume in self.client.volumes.list(
            filters={"label": f"{SANDBOX_LABEL}={self.sandbox}"}
        ):
            volume.remove(force=True)

    def remove_images(self, hosts: Iterable[str]) -> None:
        """Forget the images that were pulled from or pushed to ``hosts`` (``host:port``)."""
        from docker.errors import APIError

        prefixes = tuple(f"{host}/" for host in hosts)
        # Not client.images.list(): it fails when another process removes an image meanwhile.
        for image in self.client.api.images() if prefixes else ():
            for name in (*(image["RepoTags"] or ()), *(image["RepoDigests"] or ())):
                if name.startswith(prefixes):
                    with suppress(APIError):
                        self.client.images.remove(name, noprune=False)

    def leftovers(self) -> tuple[str, ...]:
        """Names of containers, networks and volumes of this sandbox that still exist."""
        label = {"label": f"{SANDBOX_LABEL}={self.sandbox}"}
        networks = [str(network.name) for network in self.client.networks.list(filters=label)]
        volumes = [str(volume.name) for volume in self.client.volumes.list(filters=label)]
        return (*(row.name for row in self.rows()), *networks, *volumes)


def _row(entry: Mapping[str, Any]) -> Row:
    labels = entry["Labels"]
    networks = entry.get("NetworkSettings", {}).get("Networks", {})
    ports = [port["PublicPort"] for port in entry.get("Ports", ()) if "PublicPort" in port]
    return Row(
        name=entry["Names"][0].lstrip("/"),
        kind=labels.get(KIND_LABEL, ""),
        state=entry["State"],
        cluster=labels.get(CLUSTER_LABEL, ""),
        role=labels.get(f"{TAG_PREFIX}ray-node-type", ""),
        region=labels.get("rayfleet.region", ""),
        address=next((network["IPAddress"] for network in networks.values()), ""),
        image=entry["Image"],
        port=ports[0] if ports else 0,
    )


def _cause(error: BaseException) -> str:
    text = str(getattr(error, "explanation", None) or error)
    return text.splitlines()[0][:300] if text else type(error).__name__

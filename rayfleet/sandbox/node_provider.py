"""Ray's ``external`` node provider of the sandbox: a VM is a container of the cluster image.

Ray loads it by name, on the operator's side for heads and, inside a head, for workers; the
head reaches the same engine through its socket. It must import nothing but ray and docker.

A node's id is its container's name, which is also its address for the operator: SSH goes
through ``docker exec -i NAME /usr/sbin/sshd -i``. Inside the sandbox's network it is the
container's IP. Tags that never change are labels; the ones that Ray updates (status, hashes)
are a file in the container, because labels of a container are fixed.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import NODE_KIND_HEAD, TAG_RAY_NODE_KIND

from rayfleet.sandbox.removal import remove_container
from rayfleet.sandbox.vm import (
    CLUSTER_LABEL,
    HEAD_CREDENTIALS,
    SANDBOX_LABEL,
    TAG_PREFIX,
    TAGS_FILE,
    TOKEN_FILE,
    VM_COMMAND,
    File,
    labels_of,
    tar_of,
    untar,
    version_at,
)

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

ENGINE_TIMEOUT = 120  # seconds; creating a VM may pull its image
BOOT_SECONDS = 20.0  # a VM that is not up by then is Ray's own to wait for
BOOT_INTERVAL = 0.05
# A paused VM hangs, but it is there. One that was made and never ran, or stopped, is not.
LIVING = ("running", "paused", "restarting")
REMAINS = ("created", "exited", "dead", "removing")
AUTHORIZED_KEYS = ".ssh/authorized_keys"
# Base64 of JSON: name, size, mode, mtime (docs.docker.com, Engine API, ContainerArchiveInfo).
FILE_STAT = "X-Docker-Container-Path-Stat"
# The time of all tags that an image of ours from before November 2026 wrote.
UNTIMED = b"1970-01-01T00:00:00Z"


def _not_about_defaults(record: logging.LogRecord) -> bool:
    """False for Ray's complaint, twice every five seconds, about the empty fields of its own
    defaults for external providers: it would be all that an operator sees of a head's log."""
    return "empty legacy field" not in record.getMessage()


logging.getLogger("ray.autoscaler._private.util").addFilter(_not_about_defaults)


class SandboxNodeProvider(NodeProvider):
    """Nodes of one cluster of one sandbox.

    ``provider_config`` holds ``sandbox`` (its id), ``network``, ``engine`` (URL of its socket),
    ``credentials``, ``public_key`` and, where nodes need one, ``token`` (paths on the operator's
    side) and ``bucket``.
    """

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._local = threading.local()
        self._seen: dict[str, tuple[str, dict[str, str]]] = {}

    # --- what Ray asks -----------------------------------------------------------------

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """Names of this cluster's running VMs that carry all of ``tag_filters``."""
        return [
            name
            for name in self._names(LIVING)
            if tag_filters.items() <= self.node_tags(name).items()
        ]

    def nodes_for_teardown(self, tag_filters: dict[str, str]) -> list[str]:
        """Like :meth:`non_terminated_nodes`, stopped and half-made VMs included."""
        names = self._names((*LIVING, *REMAINS))
        if not tag_filters:
            return names
        return [name for name in names if tag_filters.items() <= self.node_tags(name).items()]

    def is_running(self, node_id: str) -> bool:
        """Whether the VM runs."""
        container = self._find(node_id)
        return container is not None and container.status in LIVING

    def is_terminated(self, node_id: str) -> bool:
        """Whether the VM is gone or stopped."""
        return not self.is_running(node_id)

    def node_tags(self, node_id: str) -> dict[str, str]:
        """All tags of the VM; empty when it is gone."""
        container = self._find(node_id)
        if container is None:
            return {}
        fixed = {
            key.removeprefix(TAG_PREFIX): value
            for key, value in container.labels.items()
            if key.startswith(TAG_PREFIX)
        }
        return fixed | self._changing_tags(container)

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        """Add ``tags`` to the VM's tags, or replace their values."""
        container = self._find(node_id)
        if container is None:
            return
        merged = self._changing_tags(container) | tags
        self._put(container, [File(TAGS_FILE, json.dumps(merged).encode(), mode=0o644)])

    def external_ip(self, node_id: str) -> str:
        """The address for the operator: the container's name (see the module's text)."""
        return node_id

    def internal_ip(self, node_id: str) -> str:
        """The VM's IP in the sandbox's network; empty when it is gone."""
        container = self._find(node_id)
        if container is None:
            return ""
        networks = container.attrs["NetworkSettings"]["Networks"]
        return str(networks[self.provider_config["network"]]["IPAddress"])

    def create_node(
        self, node_config: dict[str, Any], tags: dict[str, str], count: int
    ) -> dict[str, Any]:
        """Start ``count`` VMs of ``node_config["image"]``; returns their names once they are up.

        Leftovers of a launch that was cut short (containers that never ran) go first.
        """
        self._sweep()
        head = tags.get(TAG_RAY_NODE_KIND) == NODE_KIND_HEAD
        self._pull(node_config["image"])
        started = [self._start(node_config, tags, head) for _ in range(count)]
        for name in started:
            self._await_boot(name)
        return {name: {} for name in started}

    def terminate_node(self, node_id: str) -> None:
        """Remove the VM at once; one that is gone already is fine."""
        remove_container(self._engine(), node_id)

    def prepare_for_head_node(self, cluster_config: dict[str, Any]) -> dict[str, Any]:
        """The config as the head sees it: it reaches workers directly, by IP."""
        auth = {k: v for k, v in cluster_config["auth"].items() if k != "ssh_proxy_command"}
        provider = cluster_config["provider"] | {"credentials": HEAD_CREDENTIALS}
        if "token" in provider:
            provider["token"] = TOKEN_FILE
        return cluster_config | {"auth": auth, "provider": provider}

    # --- what rayfleet asks, beyond Ray's interface --------------------------------------

    def host_key(self, node_id: str) -> str:
        """The VM's public host key, ``ssh-ed25519 AAAA…``, read from the node itself.

        Empty while the VM has not made it yet.
        """
        container = self._find(node_id)
        content = self._read(container, "/etc/ssh/ssh_host_ed25519_key.pub") if container else b""
        return " ".join(content.decode(errors="replace").split()[:2])

    def image_digest(self, node_id: str) -> str:
        """The digest (``sha256:…``) that the engine resolved the VM's image by; empty when the
        VM is gone or was made of a bare tag."""
        container = self._find(node_id)
        return str(container.attrs["Config"]["Image"]).partition("@")[2] if container else ""

    # --- below: the engine -----------------------------------------------------------------

    def _engine(self) -> DockerClient:
        """One client per thread: Ray calls from many, and a client is not safe for that."""
        client: DockerClient | None = getattr(self._local, "client", None)
        if client is None:
            from docker import DockerClient

            client = DockerClient(base_url=self.provider_config["engine"], timeout=ENGINE_TIMEOUT)
            self._local.client = client
        return client

    def _names(self, states: tuple[str, ...]) -> list[str]:
        labels = [
            f"{SANDBOX_LABEL}={self.provider_config['sandbox']}",
            f"{CLUSTER_LABEL}={self.cluster_name}",
        ]
        rows = self._engine().api.containers(
            all=True, filters={"label": labels, "status": list(states)}
        )
        return sorted(row["Names"][0].lstrip("/") for row in rows if row["Names"])

    def _find(self, name: str) -> Container | None:
        from docker.errors import NotFound

        try:
            return self._engine().containers.get(name)
        except NotFound:
            return None

    def _sweep(self) -> None:
        for name in self._names(REMAINS):
            remove_container(self._engine(), name)

    def _pull(self, image: str) -> None:
        """Pull by digest from the region's registry, unless the engine has the image."""
        from docker.errors import ImageNotFound

        client = self._engine()
        try:
            client.images.get(image)
        except ImageNotFound:
            client.images.pull(image, auth_config=self._login(image.partition("/")[0]))

    def _login(self, host: str) -> dict[str, str] | None:
        path = Path(self.provider_config["credentials"]).expanduser()
        if not path.is_file():
            return None
        login: dict[str, str] | None = json.loads(path.read_text()).get(host)
        return login

    def _start(self, node_config: Mapping[str, Any], tags: Mapping[str, str], head: bool) -> str:
        config = self.provider_config
        kind = "head" if head else "worker"
        name = f"rf-{config['sandbox']}-{self.cluster_name}-{kind}-{secrets.token_hex(3)}"
        volumes = {self._bucket(): {"bind": "/bucket", "mode": "rw"}}
        if head:
            socket = config["engine"].removeprefix("unix://")
            volumes[socket] = {"bind": "/var/run/docker.sock", "mode": "rw"}
        container = self._engine().containers.create(
            node_config["image"],
            command=[VM_COMMAND],
            name=name,
            hostname=name[:63],
            user="root",
            init=True,
            network=config["network"],
            labels=labels_of(config["sandbox"], self.cluster_name, tags),
            volumes=volumes,
            shm_size=node_config.get("shm_size", "512m"),
        )
        self._put(container, self._identity_files(head))
        container.start()
        return name

    def _await_boot(self, name: str) -> None:
        """Wait until the VM has its host key, as a cloud waits for its own operation: Ray, which
        tries SSH at once, would come back only five seconds later."""
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline and self.is_running(name):
            if self.host_key(name):
                return
            time.sleep(BOOT_INTERVAL)

    def _bucket(self) -> str:
        """The volume that stands for the region's bucket, shared by the clusters there."""
        name = f"rf-{self.provider_config['sandbox']}-{self.provider_config['bucket']}"
        self._engine().volumes.create(name, labels={SANDBOX_LABEL: self.provider_config["sandbox"]})
        return name

    def _identity_files(self, head: bool) -> list[File]:
        """What a cloud's metadata server would hand out: who may log in, Ray's token, and,
        on a head, the right to pull images for workers."""
        on_operator = Path(self.provider_config.get("public_key", "")).expanduser()
        source = on_operator if on_operator.is_file() else Path.home() / AUTHORIZED_KEYS
        files = [File(f"/home/ray/{AUTHORIZED_KEYS}", source.read_bytes(), mode=0o600, ray=True)]
        if token := self.provider_config.get("token"):
            files.append(File(TOKEN_FILE, version_at(Path(token)).read_bytes(), 0o600, ray=True))
        credentials = Path(self.provider_config["credentials"]).expanduser()
        if head and credentials.is_file():
            files.append(File(HEAD_CREDENTIALS, credentials.read_bytes(), mode=0o600, ray=True))
        return files

    def _changing_tags(self, container: Container) -> dict[str, str]:
        """The tags in the VM's file, which is read only when it is another one than last time.

        Ray asks several times a second; the engine starts a process for each read (64 ms of a
        processor with 20.10) and none for a look at the file (1.4 ms).
        """
        name = str(container.name)
        stamp = self._stat(name, TAGS_FILE)
        seen = self._seen.get(name)
        if seen and seen[0] == stamp:
            return dict(seen[1])
        content = self._read(container, TAGS_FILE)
        tags = dict(json.loads(content)) if content else {}
        if UNTIMED not in b64decode(stamp):
            self._seen[name] = (stamp, tags)
        return dict(tags)

    def _stat(self, name: str, path: str) -> str:
        """What the engine says of a file, its time included; empty when there is none."""
        api = self._engine().api
        url = f"{api.base_url}/v{api.api_version}/containers/{name}/archive"
        answer = api.head(url, params={"path": path}, timeout=ENGINE_TIMEOUT)
        return str(answer.headers.get(FILE_STAT, "")) if answer.ok else ""

    def _read(self, container: Container, path: str) -> bytes:
        from docker.errors import NotFound

        if not self._stat(str(container.name), path):
            return b""
        try:
            chunks, _ = container.get_archive(path)
            return untar(b"".join(chunks))
        except NotFound:
            return b""

    def _put(self, container: Container, files: list[File]) -> None:
        from docker.errors import NotFound

        try:
            container.put_archive("/", tar_of(files, now=time.time()))
        except NotFound:
            return

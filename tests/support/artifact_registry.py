"""The sandbox's Artifact Registry API as a child process, and a fleet that uses it."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.console import Console
from rayfleet.fleet.model import (
    Auth,
    AuthMode,
    Cleanup,
    Cluster,
    Fleet,
    ImageFamily,
    Outputs,
    Provider,
    Registries,
    RolloutPolicy,
    Ssh,
)
from rayfleet.registry.client import Place
from rayfleet.waiting import wait_until
from tests.support.registry import LocalRegistry

if TYPE_CHECKING:
    from google.cloud import artifactregistry_v1 as ar

PROJECT = "some-project"
START_SECONDS = 60.0
STOP_SECONDS = 20.0


def family(name: str = "cluster", *, repository: str = "marin") -> ImageFamily:
    """An image family whose images go to ``repository``."""
    return ImageFamily(
        family=name,
        name=f"marin_{name}",
        repository=repository,
        dockerfile="Dockerfile",
        context=("docker",),
    )


def fleet_of(
    regions: Sequence[str],
    *,
    api: str = "",
    provider: Provider = Provider.SANDBOX,
    families: Sequence[ImageFamily] = (family(),),
    keep: int = 16,
    days: int = 30,
) -> Fleet:
    """A fleet with one cluster and a registry in each of ``regions``."""
    cluster = Cluster(
        name="one",
        identity="one",
        provider=provider,
        region=regions[0],
        zone=f"{regions[0]}-b",
        accelerator="cpu",
        bucket="bucket",
        image="cluster",
        template="sandbox.yaml.j2",
        workers={},
        max_workers=0,
        ssh=Ssh(),
        auth=Auth(mode=AuthMode.DISABLED),
    )
    return Fleet(
        project=PROJECT,
        source=Path("fleet.yaml"),
        images={each.family: each for each in families},
        registries=Registries(
            regions=tuple(regions),
            hosts={},
            api=api,
            cleanup=Cleanup(delete_older_than=timedelta(days=days), keep_most_recent=keep),
        ),
        clusters={cluster.name: cluster},
        rollout=RolloutPolicy(),
        outputs=Outputs(pins=Path("pins.yaml"), configs=Path("configs")),
    )


@dataclass(kw_only=True)
class ApiServer:
    """The API server on a free port of 127.0.0.1, which later starts keep."""

    folder: Path
    registries: Mapping[str, LocalRegistry]
    interval: float = 60.0
    address: str = "127.0.0.1:0"
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> str:
        """What the server printed since its last start."""
        return (self.folder / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it and return once it listens."""
        self.address = self._spawn_until(r"listening on (\S+)")

    def start_in_vain(self) -> int:
        """Start it where it cannot listen and return its exit code."""
        process = self._spawn()
        try:
            return process.wait(timeout=START_SECONDS)
        finally:
            process.kill()

    def end(self, how: signal.Signals) -> int:
        """Send it ``how``, wait, and return its exit code. Ending twice is fine."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        return process.wait(timeout=STOP_SECONDS)

    def _spawn_until(self, pattern: str) -> str:
        process = self._process = self._spawn()

        def found() -> str:
            match = re.search(pattern, self.log)
            if match is None and process.poll() is not None:
                raise AssertionError(f"the API server ended at once:\n{self.log}")
            return match.group(1) if match else ""

        return wait_until(
            found,
            what="the API server to listen",
            timeout=START_SECONDS,
            interval=0.05,
            reason=lambda: self.log,
        )

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._write_config()
        with (self.folder / "server.log").open("wb") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rayfleet.sandbox.artifact_registry",
                    "--config",
                    str(self.folder / "config.json"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _write_config(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        passwords = {
            each.host: {"username": each.username, "password": each.password}
            for each in self.registries.values()
        }
        (self.folder / "credentials.json").write_text(json.dumps(passwords))
        config = {
            "project": PROJECT,
            "listen": self.address,
            "state": str(self.folder / "state"),
            "credentials": str(self.folder / "credentials.json"),
            "interval_seconds": self.interval,
            "regions": {
                region: {"host": each.host, "storage": str(each.folder / "store")}
                for region, each in self.registries.items()
            },
        }
        (self.folder / "config.json").write_text(json.dumps(config))


def raw_client(server: ApiServer) -> ar.ArtifactRegistryClient:
    """Google's client, as a user of the API would make it."""
    import grpc
    from google.cloud import artifactregistry_v1 as ar
    from google.cloud.artifactregistry_v1.services.artifact_registry import transports

    channel = grpc.insecure_channel(server.address, options=[("grpc.enable_http_proxy", 0)])
    return ar.ArtifactRegistryClient(
        transport=transports.ArtifactRegistryGrpcTransport(channel=channel)
    )


def place(region: str) -> Place:
    """The repository marin of ``region``."""
    return Place(project=PROJECT, region=region, repository="marin")


def quiet() -> Console:
    """A console that keeps what it is told."""
    return Console(out=io.StringIO(), err=io.StringIO())

"""The sandbox's Artifact Registry API: ``python -m rayfleet.sandbox.artifact_registry``.

A gRPC server on loopback for the regions of one sandbox. ``--config`` names a JSON file::

    {"project": "P", "listen": "127.0.0.1:PORT", "state": "DIR", "credentials": "FILE",
     "interval_seconds": 60,
     "regions": {"us-east5": {"host": "127.0.0.1:5001", "storage": "DIR of the registry"}}}

``credentials`` holds ``{host: {"username", "password"}}``. It logs to stderr and ends on
SIGTERM; all that it knows is in ``state``, so a killed server comes back the same.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import signal
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import PrerequisiteMissing, RayfleetError, UsageError
from rayfleet.image.oci.http import is_loopback
from rayfleet.sandbox.artifact_registry_service import ArtifactRegistryService, handlers
from rayfleet.sandbox.registry_storage import FirstSeen, RegistryStorage
from rayfleet.sandbox.repository_book import RepositoryBook
from rayfleet.sandbox.sweeper import RegionRegistry, Shelves, Sweeper

if TYPE_CHECKING:
    import grpc

    from rayfleet.image.oci.credentials import Credentials

SWEEP_SECONDS = 60.0
STOP_SECONDS = 5.0
THREADS = 8

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionConfig:
    """Where one region's registry listens and where its storage folder is."""

    host: str
    storage: Path
    credentials: Credentials | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the server is started with; ``interval`` is seconds between two sweeps."""

    project: str
    listen: str
    state: Path
    regions: Mapping[str, RegionConfig]
    interval: float = SWEEP_SECONDS


def main(argv: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code tells how it ended."""
    parser = argparse.ArgumentParser(prog="artifact_registry")
    parser.add_argument("--config", type=Path, required=True)
    arguments = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        serve(read_config(arguments.config))
    except RayfleetError as error:
        # One line: whoever started us shows the log's last one.
        log.error("%s", " ".join(str(error).split()))
        return int(error.exit_code)
    return 0


def read_config(path: Path) -> Config:
    """The configuration in ``path``.

    Raises:
        UsageError: it is not what the module's description says.
    """
    from rayfleet.image.oci.credentials import Credentials

    try:
        data = json.loads(path.read_text())
        passwords = json.loads(Path(data["credentials"]).read_text())
        known = {host: Credentials(**entry) for host, entry in passwords.items()}
        return Config(
            project=data["project"],
            listen=_loopback(data["listen"]),
            state=Path(data["state"]),
            interval=float(data.get("interval_seconds", SWEEP_SECONDS)),
            regions={
                region: RegionConfig(
                    host=each["host"],
                    storage=Path(each["storage"]),
                    credentials=known.get(each["host"]),
                )
                for region, each in data["regions"].items()
            },
        )
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}", why=str(error.strerror)) from error
    except KeyError as error:
        raise UsageError(f"{path} lacks {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        # Not the error's own text, which may quote a password.
        raise UsageError(f"{path} or its credentials file is damaged") from error


def serve(config: Config) -> None:
    """Serve on ``config.listen`` and carry policies out, until SIGTERM or SIGINT.

    Raises:
        PrerequisiteMissing: the port is taken.
        RayfleetError: the state is damaged.
    """
    ending = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: ending.set())
    book = RepositoryBook(config.state / "repositories.json")
    shelves = Shelves(_registries(config), FirstSeen(config.state / "first-seen.json"))
    sweeper = Sweeper(book, shelves, interval=config.interval)
    service = ArtifactRegistryService(config.project, book, shelves, on_policies=sweeper.wake)
    server, address = _bound_server(config.listen, service)
    server.start()
    sweeper.start()
    log.info("listening on %s", address)
    ending.wait()
    server.stop(STOP_SECONDS).wait()
    sweeper.stop(STOP_SECONDS)
    log.info("ended")


def _loopback(listen: str) -> str:
    if not re.search(r":\d+$", listen) or not is_loopback(listen):
        raise UsageError(f"{listen} is no loopback address with a port")
    return listen


def _registries(config: Config) -> Mapping[str, RegionRegistry]:
    from rayfleet.image.oci.client import RegistryClient

    return {
        region: RegionRegistry(
            host=each.host,
            storage=RegistryStorage(each.storage),
            deleter=RegistryClient(each.host, each.credentials),
        )
        for region, each in config.regions.items()
    }


def _bound_server(listen: str, service: ArtifactRegistryService) -> tuple[grpc.Server, str]:
    import grpc

    # Without so_reuseport=0 two servers could share the port, each with its own state.
    server = grpc.server(
        ThreadPoolExecutor(max_workers=THREADS),
        handlers=handlers(service),
        options=[("grpc.so_reuseport", 0)],
    )
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise PrerequisiteMissing(
            f"cannot listen on {listen}",
            why="another program does",
            next_step="invoke sandbox.down, then invoke sandbox.up",
        ) from error
    return server, f"{listen.rpartition(':')[0]}:{port}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

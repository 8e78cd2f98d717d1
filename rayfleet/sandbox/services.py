"""Bring a sandbox up, look at it, take it down. Every step looks first, then does what is
missing, so that a second run after a kill at any moment ends the same."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from rayfleet.auth.begin import ensure_token
from rayfleet.console import Console
from rayfleet.errors import ToolFailed, UsageError
from rayfleet.files import ensure_folder
from rayfleet.fleet.model import AuthMode, Fleet
from rayfleet.locks import exclusive
from rayfleet.sandbox.api_process import ApiProcess, free_port
from rayfleet.sandbox.base_image import REGISTRY_IMAGE, ensure_base_image, ensure_registry_image
from rayfleet.sandbox.engine import Engine, PortTaken, Row, Service, engine_url
from rayfleet.sandbox.engine_install import ensure_engine
from rayfleet.sandbox.place import (
    Place,
    ensure_key,
    ensure_password,
    user_and_group,
    write_credentials,
    write_endpoints,
)
from rayfleet.secret.store import FileSecret
from rayfleet.waiting import wait_until

PORT_TRIES = 5
REGISTRY_TIMEOUT = 30  # seconds until a started registry answers


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox of one state folder, for the fleet that lives in it."""

    place: Place
    fleet: Fleet
    console: Console

    @classmethod
    def of(cls, fleet: Fleet, state: Path, console: Console) -> Sandbox:
        """The sandbox of ``fleet``.

        Raises:
            UsageError: the fleet is a real one; there is nothing of it to start here.
        """
        if not fleet.is_sandbox:
            raise UsageError(
                f"{fleet.source.name} is not a sandbox fleet",
                why="its clusters live in a real cloud",
                next_step="INVOKE_FLEET=infra/sandbox.yaml invoke sandbox.up",
            )
        return cls(Place(state / "sandbox"), fleet, console)

    def up(self) -> None:
        """Have everything running that the fleet's clusters need.

        Raises:
            PrerequisiteMissing: no engine, or no way to a base image; says what to do.
            Locked: another run brings this sandbox up or down right now.
        """
        with self._lock():
            with self.console.phase("engine"):
                engine = ensure_engine(self.place.id, self.console)
            with self.console.phase("base image"):
                ensure_base_image(engine, self.console)
                ensure_registry_image(engine, self.console)
            with self.console.phase("network and registries"):
                ensure_key(self.place)
                self._tokens()
                engine.ensure_network(self.place.network)
                ports = self._registries(engine)
            with self.console.phase("artifact registry"):
                api = ApiProcess(self.place).ensure(self.fleet.project, ports)
            write_endpoints(self.place, engine=engine.url, ports=ports, api=api)

    def down(self) -> tuple[str, ...]:
        """Remove all that :meth:`up` and the clusters made, the state folder's part included;
        returns the names of what was removed. The engine and the shared images stay.

        Raises:
            ToolFailed: something is still there afterwards.
        """
        with self._lock():
            engine = self._engine()
            gone = engine.leftovers()
            ApiProcess(self.place).stop()
            rows = engine.rows()
            # Heads first: a head's autoscaler would replace the workers.
            for row in sorted(rows, key=lambda row: row.role != "head"):
                self.console.event(f"removing {row.name}")
                engine.remove(row.name)
            engine.remove_images(f"127.0.0.1:{row.port}" for row in rows if row.port)
            # An autoscaler may have been in the middle of a launch when its head went.
            for row in engine.rows():
                engine.remove(row.name)
            engine.remove_network(self.place.network)
            engine.remove_volumes()
            left = engine.leftovers()
            if left:
                raise ToolFailed(
                    "the sandbox is not all gone",
                    why=", ".join(left),
                    next_step="invoke sandbox.down",
                )
            shutil.rmtree(self.place.folder, ignore_errors=True)
            tokens = self.place.folder.parent / "tokens" / self.fleet.project
            shutil.rmtree(tokens, ignore_errors=True)
        return gone

    def rows(self) -> tuple[Row, ...]:
        """The sandbox's containers as they are now."""
        return self._engine().rows()

    def engine_version(self) -> str:
        """The version of the engine in use."""
        return self._engine().version()

    def api(self) -> ApiProcess:
        """The Artifact Registry API's process."""
        return ApiProcess(self.place)

    def preempt(self, cluster: str, node: str = "") -> str:
        """Kill a worker of ``cluster`` (``node``, else the first) as a cloud does: no notice.

        Returns its name.

        Raises:
            UsageError: there is no such worker.
        """
        workers = [
            row.name
            for row in self.rows()
            if row.cluster == cluster and row.role == "worker" and row.state == "running"
        ]
        if node and node not in workers:
            raise UsageError(
                f"{cluster} has no running worker {node}",
                why=f"it has {', '.join(workers) or 'none'}",
                next_step="invoke sandbox.status",
            )
        if not workers:
            raise UsageError(
                f"{cluster} has no running worker",
                next_step=f"invoke status --cluster {cluster}",
            )
        victim = node or workers[0]
        self._engine().remove(victim)
        return victim

    def _engine(self) -> Engine:
        engine = Engine(url=engine_url(), sandbox=self.place.id)
        engine.version()
        return engine

    def _lock(self) -> AbstractContextManager[None]:
        return exclusive(self.place.folder.parent, "sandbox", next_step="invoke sandbox.status")

    def _registries(self, engine: Engine) -> dict[str, int]:
        """Have one registry per region running; returns region to port."""
        password = ensure_password(self.place)
        ports = {region: self._registry(engine, region) for region in self._regions()}
        write_credentials(self.place, [f"127.0.0.1:{port}" for port in ports.values()], password)
        for region, port in ports.items():
            self._await_registry(engine, region, port)
        return ports

    def _tokens(self) -> None:
        """Have a token for every cluster that wants one."""
        for cluster in self.fleet.clusters.values():
            if cluster.auth.mode is AuthMode.TOKEN:
                ensure_token(self.fleet, FileSecret(self.place.secrets / cluster.auth.secret))

    def _regions(self) -> tuple[str, ...]:
        return self.fleet.registries.regions

    def _registry(self, engine: Engine, region: str) -> int:
        self.console.event(f"registry of {region}")
        ensure_folder(self.place.storage(region))
        port = self._last_port(region) or free_port()
        for _ in range(PORT_TRIES):
            service = self._service(region, port)
            with suppress(PortTaken):
                engine.ensure_service(service)
                return next(row.port for row in engine.rows() if row.name == service.name)
            port = free_port()
        raise ToolFailed(
            f"no free port for the registry of {region}", next_step="invoke sandbox.up"
        )

    def _last_port(self, region: str) -> int:
        with suppress(OSError, ValueError, KeyError):
            return int(json.loads(self.place.endpoints.read_text())["registry_ports"][region])
        return 0

    def _service(self, region: str, port: int) -> Service:
        return Service(
            name=f"rf-{self.place.id}-registry-{region}",
            image=REGISTRY_IMAGE,
            region=region,
            port=port,
            environment={
                "REGISTRY_HTTP_ADDR": "0.0.0.0:5000",
                "REGISTRY_AUTH": "htpasswd",
                "REGISTRY_AUTH_HTPASSWD_REALM": "rayfleet-sandbox",
                "REGISTRY_AUTH_HTPASSWD_PATH": "/auth/htpasswd",
                "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": "/storage",
                "REGISTRY_STORAGE_DELETE_ENABLED": "true",
                "REGISTRY_LOG_LEVEL": "warn",
            },
            mounts={
                str(self.place.storage(region).resolve()): "/storage",
                str(self.place.htpasswd.parent.resolve()): "/auth",
            },
            user=user_and_group(),
        )

    def _await_registry(self, engine: Engine, region: str, port: int) -> None:
        """Wait until the registry asks for a password, which it does when it is ready."""
        import urllib3

        pool = urllib3.PoolManager(retries=False, timeout=2)

        def ready() -> bool:
            with suppress(urllib3.exceptions.HTTPError):
                return bool(pool.request("GET", f"http://127.0.0.1:{port}/v2/").status == 401)
            return False

        name = f"rf-{self.place.id}-registry-{region}"
        wait_until(
            ready,
            what=f"the registry of {region}",
            timeout=REGISTRY_TIMEOUT,
            interval=0.2,
            reason=lambda: engine.last_words(name),
            next_step="invoke sandbox.up",
        )

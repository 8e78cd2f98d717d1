"""Ray's own provider of Google Cloud, with its clients pointed at the emulator.

A config says it so::

    provider: {type: external, module: rayfleet.emulator.provider.EmulatedProvider,
               emulator: "http://127.0.0.1:port", ...}

and has the rest of what ``type: gcp`` has. Nothing of Ray's provider is replaced but the address
of the APIs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rayfleet.google_api import client

if TYPE_CHECKING:
    GCPNodeProvider: Any = object
else:
    from ray.autoscaler._private.gcp.node_provider import GCPNodeProvider

_pointing = threading.RLock()


@contextmanager
def pointed_at(url: str) -> Iterator[None]:
    """Let every client that Ray makes for Google Cloud in this process talk to ``url``."""
    with _pointing:
        config: Any = import_module("ray.autoscaler._private.gcp.config")
        real = config.discovery

        def build(name: str, version: str, credentials: Any = None, **options: Any) -> Any:
            if "discoveryServiceUrl" in options:
                options["discoveryServiceUrl"] = f"{url}/$discovery/rest"
            place = f"{url}/compute/v1/" if name == "compute" else f"{url}/"
            if credentials is None:
                return client(name, version, place, **options)
            options["client_options"] = {"api_endpoint": place}
            return real.build(name, version, credentials=credentials, **options)

        config.discovery = SimpleNamespace(build=build)
        try:
            yield
        finally:
            config.discovery = real


class EmulatedProvider(GCPNodeProvider):  # type: ignore[misc] # Ray has no types
    """``emulator`` is the URL; ``poll_interval`` (seconds, 5 in Ray) is how long Ray waits
    between two looks at an operation."""

    def _construct_clients(self) -> None:
        with pointed_at(self.provider_config["emulator"]):
            super()._construct_clients()
        interval = self.provider_config.get("poll_interval")
        for resource in self.resources.values() if interval is not None else ():
            resource.wait_for_operation = partial(
                resource.wait_for_operation, poll_interval=interval
            )

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        """Ray's own bootstrap."""
        with pointed_at(cluster_config["provider"]["emulator"]):
            resolved: dict[str, Any] = GCPNodeProvider.bootstrap_config(cluster_config)
        return resolved

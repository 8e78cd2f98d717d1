"""The removal of a container, by the operator or by the autoscaler on a head.

It must import nothing but docker: a head's image has no more of rayfleet than this folder.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docker import DockerClient

SECONDS = 20.0
INTERVAL = 0.2
UNDER_WAY = 409  # somebody else (the autoscaler, `sandbox.down`) is removing it now
# Docker 20.10 said "unlinkat ...: directory not empty" once in many thousand removals, perhaps
# because it wrote there for somebody else meanwhile. What is left goes when asked again.
BUSY = "failed to remove root filesystem"


def remove_container(client: DockerClient, name: str) -> None:
    """Kill and remove the container ``name``; one that is gone, or just going, is fine.

    Raises:
        APIError: the engine refuses it; where that may pass, for :data:`SECONDS`.
    """
    from docker.errors import APIError, NotFound

    end = time.monotonic() + SECONDS
    while True:
        try:
            client.api.remove_container(name, force=True, v=True)
        except NotFound:
            return
        except APIError as error:
            if error.status_code == UNDER_WAY:
                return
            if BUSY not in str(error) or time.monotonic() >= end:
                raise
            time.sleep(INTERVAL)
        else:
            return

"""Where Ray runs on a node: in a container on a VM of Google Cloud, directly in the sandbox.

The pieces here are of shell (POSIX sh). ``timeout`` because a Docker engine that hangs must not
hang who asks.
"""

from __future__ import annotations

import shlex

CONTAINER = "ray_docker"
"""What Ray's launcher calls the container on a VM of Google Cloud (infra/templates)."""

IMAGE = f"docker inspect --format '{{{{.Config.Image}}}}' {CONTAINER}"
"""A command that prints the reference of the container's image."""

IS_RUNNING = (
    "[ \"$(timeout 20 docker inspect --format '{{.State.Running}}' "
    f'{CONTAINER} 2>/dev/null)" = true ]'
)
"""A test: true where the container runs."""


def entering(*options: str) -> str:
    """A line that makes ``"$@"`` the words before a command that is to run where Ray runs.

    ``options`` are those of ``docker exec``; without a container there are no words.
    """
    words = shlex.join(["docker", "exec", *options, CONTAINER])
    return f"if {IS_RUNNING}; then set -- {words}; else set --; fi"


def where_ray_runs(command: str, *, terminal: bool = False) -> str:
    """``command``, a line for ``sh``, as one that runs it where Ray runs; with nothing to run, a
    login shell there. ``terminal`` says that there is one to hand on."""
    words = ["sh", "-c", command] if command else ["bash", "--login"]
    return f'{entering("-it" if terminal else "-i")}\nexec "$@" {shlex.join(words)}'

"""The start-up script of a worker that Ray did not make, from the cluster's generated config."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import resources
from typing import Any

from rayfleet.cluster.config import container_name
from rayfleet.fleet.accelerators import TPU_HOST_CPUS

# Those of a container that Docker restarts by itself, which the script does instead.
_OF_OTHERS = re.compile(r"--(?:rm|restart)(?:[= ]|\Z)")
_START = partial(re.compile(r"\bray start\b").sub, "ray start --block")


def startup_script(content: Mapping[str, Any]) -> str:
    """The script for the cluster whose generated config is ``content``. No secret is in it: the
    config's own commands fetch them on the machine.

    It differs whenever what it would start differs, the image above all.
    """
    provider, docker = content["provider"], content["docker"]
    single = {
        "CLUSTER": content["cluster_name"],
        "PROJECT": provider["project_id"],
        "ZONE": provider["availability_zone"],
        "IMAGE": image_of(content),
        "CONTAINER": container_name(content),
        "OPERATOR": content.get("auth", {}).get("ssh_user", ""),
        # Ray finds the chips itself, also those of slices that the config does not have.
        "RESOURCES": json.dumps({"CPU": TPU_HOST_CPUS}),
    }
    options = [*docker.get("run_options", ()), *docker.get("worker_run_options", ())]
    setup = [
        *content.get("setup_commands", ()),
        *content.get("worker_setup_commands", ()),
        *map(_START, content["worker_start_ray_commands"]),
    ]
    lines = [
        "#!/usr/bin/env bash",
        *(f"readonly {name}={shlex.quote(str(value))}" for name, value in single.items()),
        # As Ray's launcher hands them on: words for a shell.
        f"readonly OPTIONS=({' '.join(one for one in options if not _OF_OTHERS.match(one))})",
        _array("INITIALIZATION", content.get("initialization_commands", ())),
        _array("SETUP", setup),
    ]
    body = resources.files("rayfleet.worker").joinpath("startup.sh").read_text()
    return "\n".join(lines) + "\n" + body


def image_of(content: Mapping[str, Any]) -> str:
    """The full reference of the workers' image."""
    docker = content["docker"]
    return str(docker.get("worker_image") or docker["image"])


def _array(name: str, values: Iterable[str]) -> str:
    return f"readonly {name}=({' '.join(shlex.quote(str(value)) for value in values)})"

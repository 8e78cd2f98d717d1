"""What a fleet on this machine needs on top."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

from rayfleet.doctor.local import GIB, machine_install
from rayfleet.doctor.machine import Machine
from rayfleet.doctor.report import Check, ok, warn
from rayfleet.fleet.model import Fleet
from rayfleet.project import Project

# Measured: a head with Ray's dashboard and one worker take 1.2 GB.
CLUSTER_MEMORY = 2 * GIB


def sandbox_checks(
    fleet: Fleet, project: Project, machine: Machine
) -> Mapping[str, Callable[[], Check]]:
    """The checks for clusters in containers, by name."""
    return {
        "memory": partial(memory_check, fleet, machine),
        "base image": partial(base_image_check, machine),
        "sandbox": partial(sandbox_check, fleet, project),
    }


def memory_check(fleet: Fleet, machine: Machine) -> Check:
    """There is memory for all clusters of the fleet side by side."""
    memory, needed = machine.memory_bytes(), CLUSTER_MEMORY * len(fleet.clusters)
    found = f"{memory / GIB:.0f} GiB for {len(fleet.clusters)} clusters"
    if memory >= needed:
        return ok("memory", found)
    fewer = "restart fewer clusters at a time: invoke restart --cluster NAME"
    return warn("memory", f"{found}, {needed // GIB} advised", fewer)


def base_image_check(machine: Machine) -> Check:
    """A base image can be had even where none can be pulled: debootstrap makes one."""
    if machine.which("debootstrap") is not None:
        return ok("base image", "pulled, or made with debootstrap")
    if os.geteuid() == 0 and machine.which("apt-get") is not None:
        return ok("base image", "pulled, or made with debootstrap, which sandbox.up installs")
    found = "must be pulled: there is no debootstrap"
    return warn("base image", found, machine_install(machine, "debootstrap"))


def sandbox_check(fleet: Fleet, project: Project) -> Check:
    """The sandbox is up."""
    if fleet.sandbox is None:
        return warn("sandbox", "not up", "invoke sandbox.up")
    return ok("sandbox", f"{fleet.sandbox.id}, in {project.shown(project.state)}")

"""Look at everything the tasks of a fleet need, all at once and each with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from rayfleet.doctor.google import google_checks
from rayfleet.doctor.local import local_checks
from rayfleet.doctor.machine import Machine, ThisMachine
from rayfleet.doctor.report import Check, Report, missing
from rayfleet.doctor.sandbox import sandbox_checks
from rayfleet.fleet.model import Fleet
from rayfleet.image.build.builder import Builder
from rayfleet.image.engine import ImageEngine
from rayfleet.project import Project

CHECK_SECONDS = 20.0

Probe = Callable[[], Check]


def examine(
    fleet: Fleet,
    project: Project,
    *,
    machine: Machine | None = None,
    find_builder: Callable[[], Builder] | None = None,
) -> Report:
    """Check what the tasks of ``fleet`` need on ``machine`` (default: this one)."""
    machine = machine or ThisMachine()
    find_builder = find_builder or ImageEngine().find_builder
    probes = dict(local_checks(fleet, project, machine, find_builder))
    if fleet.is_sandbox:
        probes |= sandbox_checks(fleet, project, machine)
    else:
        probes |= google_checks(fleet)
    return Report(checks=run_all(list(probes.items()), timeout=CHECK_SECONDS))


def run_all(probes: Sequence[tuple[str, Probe]], *, timeout: float) -> tuple[Check, ...]:
    """Run named probes side by side; one that has no answer in ``timeout`` seconds is missing."""
    answers: dict[str, Check] = {}

    def ask(name: str, probe: Probe) -> None:
        try:
            answers[name] = probe()
        except Exception as error:  # a check that breaks is a finding, too
            answers[name] = missing(name, f"{type(error).__name__}: {error}", "invoke doctor")

    # Daemons, so that a probe that hangs for good does not keep the process alive.
    threads = [threading.Thread(target=ask, args=probe, daemon=True) for probe in probes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    late = f"no answer within {timeout:.0f} s"
    return tuple(answers.get(name) or missing(name, late, "invoke doctor") for name, _ in probes)

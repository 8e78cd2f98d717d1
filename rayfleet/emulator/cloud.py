"""The emulated cloud: one place for its state, its clock, its limits and its faults."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfleet.emulator.clock import EmulatedClock
from rayfleet.emulator.discovery import Method
from rayfleet.emulator.faults import Fault, Faults
from rayfleet.emulator.state import State

PROJECT_NUMBER = "100000000001"
NETWORK = 127 << 24
FIRST_ADDRESS = NETWORK + (64 << 16)  # 127.64.0.0 up: nothing else of a test is there


@dataclass(slots=True, kw_only=True)
class Durations:
    """How long things take, in seconds of the cloud's clock."""

    boot: float = 20.0
    shut_down: float = 30.0
    delete: float = 30.0
    tpu_create: float = 60.0
    tpu_delete: float = 40.0
    change: float = 2.0
    queue: float = 30.0


@dataclass(kw_only=True)
class Cloud:
    """What all parts of the emulator share. ``lock`` is held while a request is carried out.

    ``quotas`` maps (what, where) to how many there may be: what is ``CPUS`` in a region, or
    chips of a TPU generation (``v4``, ``v4 preemptible``) in a zone. ``stockouts`` holds the pairs
    of (a machine type or accelerator type, a zone) that are not to be had now.
    """

    project: str
    state: State = field(default_factory=State)
    clock: EmulatedClock = field(default_factory=EmulatedClock)
    faults: Faults = field(default_factory=Faults)
    durations: Durations = field(default_factory=Durations)
    quotas: dict[tuple[str, str], int] = field(default_factory=dict)
    stockouts: set[tuple[str, str]] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @classmethod
    def open(cls, project: str, folder: Path | None, clock: EmulatedClock | None = None) -> Cloud:
        """The cloud whose state is in ``folder``; a new one when it has none."""
        state = State.read(folder / "state.json" if folder else None)
        cloud = cls(project=project, state=state, clock=clock or EmulatedClock())
        cloud.clock.seconds = max(cloud.clock.seconds, state.counters.get("seconds", 0))
        return cloud

    def now(self) -> float:
        """The time in the cloud, in seconds since the epoch."""
        return self.clock.now()

    def address(self) -> str:
        """An address of its own for a machine, on loopback."""
        value = FIRST_ADDRESS + self.state.next("address")
        return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))

    def number(self) -> str:
        """An id as Google gives them out."""
        return str(4_000_000_000_000_000_000 + self.state.next("number"))

    def save(self) -> None:
        """Keep state and time for the next process."""
        self.state.counters["seconds"] = int(self.clock.seconds)
        self.state.save()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that passed the checks of its form.

    ``name`` is the resource's full name as the path has it (``projects/p/zones/z/instances/n``),
    ``ids`` are the path's parameters, and ``fault`` what is to go wrong with its operation.
    """

    cloud: Cloud
    method: Method
    name: str
    ids: Mapping[str, str]
    query: Mapping[str, str]
    body: dict[str, Any]
    fault: Fault | None = None

"""Which gates a fleet has, and how it asks them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.rollout.gates.gate import Gate, GateTimes

if TYPE_CHECKING:
    from rayfleet.cluster.config import LaunchConfig
    from rayfleet.project import Project
    from rayfleet.rollout.gates.subject import Subject


def gates_for(fleet: Fleet, *, root: Path) -> tuple[Gate, ...]:
    """New gates for one cluster of ``fleet``; its own commands run in ``root``."""
    raise NotImplementedError


def times_for(fleet: Fleet) -> Mapping[str, GateTimes]:
    """How each gate of ``fleet`` is asked, by name."""
    raise NotImplementedError


def subject_for(
    project: Project,
    fleet: Fleet,
    cluster: Cluster,
    *,
    rollout: str,
    config: LaunchConfig | None = None,
    before: Mapping[str, int] | None = None,
    emptied: float | None = None,
) -> Subject:
    """The subject for ``cluster`` as it is; see :class:`~rayfleet.rollout.gates.subject.Wanted`."""
    raise NotImplementedError


def trouble(subject: Subject) -> str:
    """What is wrong with a cluster that was well, in one line; empty when nothing is. Quick."""
    raise NotImplementedError

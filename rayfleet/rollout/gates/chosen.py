"""Which gates a fleet has, and how it asks them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rayfleet.errors import Unreachable
from rayfleet.fleet.model import Cluster, Fleet, GatePolicy
from rayfleet.rollout.gates.capacity import AUTOSCALER, WORKERS
from rayfleet.rollout.gates.command import Command
from rayfleet.rollout.gates.gate import Gate, GateTimes, Verdict
from rayfleet.rollout.gates.probe import ENTRYPOINT, Probe
from rayfleet.rollout.gates.run import read_gate
from rayfleet.rollout.gates.running import AGE, CONFIG, HEALTH, IMAGE, SSH, VERSION
from rayfleet.rollout.gates.subject import Subject, Wanted

if TYPE_CHECKING:
    from rayfleet.cluster.config import LaunchConfig
    from rayfleet.cluster.head import Head
    from rayfleet.project import Project

DEFAULTS: Mapping[str, GateTimes] = {
    "workers": GateTimes(interval=1.0, timeout=600.0),
    "autoscaler": GateTimes(interval=1.0, timeout=600.0),
    "probe": GateTimes(interval=0.5, timeout=180.0),
}
"""Where the fleet file says nothing; all others have the defaults of GateTimes."""


def gates_for(fleet: Fleet, *, root: Path) -> tuple[Gate, ...]:
    """New gates for one cluster of ``fleet``; its own commands run in ``root``."""
    policies = fleet.rollout.gates
    probe = policies.get("probe", GatePolicy()).run or ENTRYPOINT
    own = (
        Command(name=name, command=policy.command, root=root)
        for name, policy in policies.items()
        if policy.command
    )
    everything: tuple[Gate, ...] = (
        SSH,
        HEALTH,
        VERSION,
        IMAGE,
        CONFIG,
        AGE,
        WORKERS,
        AUTOSCALER,
        Probe(entrypoint=probe),
        *own,
    )
    return tuple(gate for gate in everything if policies.get(gate.name, GatePolicy()).enabled)


def times_for(fleet: Fleet) -> Mapping[str, GateTimes]:
    """How each gate of ``fleet`` is asked, by name."""
    policies = fleet.rollout.gates
    return {
        gate.name: _times(policies.get(gate.name, GatePolicy()), DEFAULTS.get(gate.name))
        for gate in gates_for(fleet, root=Path())
    }


def _times(policy: GatePolicy, default: GateTimes | None) -> GateTimes:
    default = default or GateTimes()
    return GateTimes(
        interval=default.interval if policy.interval is None else policy.interval,
        timeout=default.timeout if policy.timeout is None else policy.timeout,
        successes=default.successes if policy.successes is None else policy.successes,
    )


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
    """The subject for ``cluster`` as it is; see :class:`~rayfleet.rollout.gates.subject.Wanted`.

    ``config`` is read from the fleet's folder of configs unless it is given.

    Raises:
        UsageError: there is no such config.
    """
    from rayfleet.cluster.config import read_launch_config
    from rayfleet.cluster.nodes import Nodes, address_of
    from rayfleet.secret.tokens import credential_of

    config = config or read_launch_config(fleet, cluster)
    nodes = Nodes(config)
    reached: list[str] = []  # the head's node: the cloud is asked for it once per connection

    def connect() -> Head:
        from rayfleet.cluster.head import Head

        reached[:] = [nodes.head()]
        if not reached[0]:
            raise Unreachable(f"{cluster.name} has no head")
        return Head.open(address_of(project, fleet, cluster, config, nodes.address(reached[0])))

    def image_digest() -> str:
        return nodes.image_digest(reached[0]) if reached and reached[0] else ""

    wanted = Wanted(
        rollout=rollout, cluster=cluster, config=config, before=before or {}, emptied=emptied
    )
    token = credential_of(project, fleet, cluster)
    return Subject(wanted, connect, token=token, image_digest=image_digest)


def trouble(subject: Subject) -> str:
    """What is wrong with a cluster that was well, in one line; empty when nothing is. Quick."""
    subject.refresh()
    for gate in (SSH, HEALTH, VERSION):
        reading = read_gate(gate, subject)
        if reading.verdict is not Verdict.PASS:
            return f"{gate.name}: {reading.detail}"[:300]
    return ""

"""Ask all gates of one cluster until every one is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rayfleet.rollout.gates.gate import Gate, GateTimes
from rayfleet.rollout.model import Output

if TYPE_CHECKING:
    from rayfleet.rollout.gates.subject import Subject
    from rayfleet.waiting import Clock


def run_gates(
    gates: Sequence[Gate],
    subject: Subject,
    *,
    times: Mapping[str, GateTimes],
    narrate: Callable[[str], None],
    clock: Clock | None = None,
) -> Output:
    """Ask ``gates`` in turn, over one connection, until all are open.

    Gates that need none other run side by side, so that this takes as long as the slowest.
    Returns ``{"passed": {gate: detail}, "workers": {type: joined}, "ray": version}``.

    Raises:
        Inconclusive: a gate could not say yes or no in time.
        Unreachable: a gate did not open in time.
        ToolFailed: a gate said no. Each names the gate, what it last said and the next command.
    """
    raise NotImplementedError

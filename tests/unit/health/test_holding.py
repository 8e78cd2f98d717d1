"""What counts as left behind, against an independent model of what must stay."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rayfleet.health.holding import (
    AT_REST,
    LOST,
    STOPPED,
    Holding,
    Holdings,
    Kind,
    leftovers,
    node_of_rule,
    removable,
)

NOW = 1_000_000.0
US = "marin-us-east5"
VM_STATES = (
    *("PROVISIONING", "STAGING", "RUNNING", "STOPPING", "SUSPENDING", "SUSPENDED"),
    *("REPAIRING", "TERMINATED", "STOPPED", "DEPROVISIONING", "PENDING_STOP", ""),
)
SLICE_STATES = (
    *("STATE_UNSPECIFIED", "CREATING", "READY", "RESTARTING", "REIMAGING", "DELETING", "REPAIRING"),
    *("STOPPED", "STOPPING", "STARTING", "PREEMPTED", "TERMINATED", "HIDING", "HIDDEN"),
    *("UNHIDING", "UNKNOWN", ""),
)
QUEUED_STATES = (
    *("STATE_UNSPECIFIED", "CREATING", "ACCEPTED", "PROVISIONING", "FAILED", "DELETING", "ACTIVE"),
    *("SUSPENDING", "SUSPENDED", "WAITING_FOR_RESOURCES", ""),
)


@pytest.mark.parametrize(
    ("rule", "node"),
    [
        (f"tpu-pod-ray-{US}-worker-0123abcd-tpu", f"ray-{US}-worker-0123abcd-tpu"),
        (f"tpu-pod-ray-{US}-worker-0123abcd-tpu-ssh-22", f"ray-{US}-worker-0123abcd-tpu"),
        (f"ray-{US}-head-0123abcd-compute", f"ray-{US}-head-0123abcd-compute"),
        (f"tpu-pod-ray-{US}-a-worker-0123abcd-tpu", ""),  # of a longer identity
        (f"tpu-pod-ray-{US}-worker-0123abcd-tpux", ""),
        (f"tpu-pod-ray-{US}-worker-0123abc-tpu", ""),
        (f"tpu-pod-ray-x-ray-{US}-worker-0123abcd-tpu", ""),
        (f"allow-ray-{US}-worker-0123abcd-tpu", ""),
        (f"tpu-pod-ray-{US}", ""),
        ("default-allow-ssh", ""),
    ],
)
def test_a_rule_is_ours_by_the_whole_name_of_a_node(rule: str, node: str) -> None:
    assert node_of_rule(US, rule) == node


def test_a_dot_in_an_identity_is_a_dot() -> None:
    assert node_of_rule("a.b", "ray-a.b-head-01234567-compute")
    assert not node_of_rule("a.b", "ray-axb-head-01234567-compute")


def node(number: int) -> str:
    return f"ray-{US}-worker-{number:08x}-tpu"


def world(seed: int) -> Holdings:
    """Some things in any states, with any ties between them."""
    dice = random.Random(seed)  # noqa: S311
    slices = [
        Holding(
            kind=Kind.SLICE,
            name=node(number),
            state=dice.choice(SLICE_STATES),
            queued=dice.choice(["", "q0", "q1", "q9"]),
        )
        for number in range(dice.randrange(5))
    ]
    queued = [
        Holding(
            kind=Kind.QUEUED,
            name=f"q{number}",
            state=dice.choice(QUEUED_STATES),
            nodes=tuple(node(dice.randrange(7)) for _ in range(dice.randrange(3))),
            kept=dice.choice(["", "", "shared"]),
        )
        for number in range(dice.randrange(3))
    ]
    machines = [
        Holding(
            kind=Kind.VM,
            name=f"vm{number}",
            state=dice.choice(VM_STATES),
            kept=dice.choice(["", "", "protected"]),
        )
        for number in range(dice.randrange(4))
    ]
    rules = [
        Holding(
            kind=Kind.FIREWALL,
            name=dice.choice(
                [f"tpu-pod-{node(dice.randrange(9))}", node(number), f"allow-{number}"]
            ),
            state="in force",
            created=dice.choice([None, NOW - 10, NOW - 3599, NOW - 3600, NOW - 1e6]),
        )
        for number in range(dice.randrange(4))
    ]
    things = [*slices, *queued, *machines, *rules]
    dice.shuffle(things)
    others = frozenset(node(dice.randrange(9)) for _ in range(dice.randrange(2)))
    return Holdings(things=tuple(things), others=others)


def must_stay(thing: Holding, whole: Holdings) -> bool:
    """Said once more, the other way round: what may not go under any circumstances."""
    if thing.kept:
        return True
    of = {one.name: one for one in whole.things if one.kind is not Kind.FIREWALL}
    if thing.kind is Kind.VM:
        return thing.state not in ("TERMINATED", "STOPPED", "SUSPENDED")
    if thing.kind is Kind.SLICE:
        request = of.get(thing.queued)
        busy = request is not None and request.state not in ("FAILED", "SUSPENDED")
        return busy or thing.state not in ("PREEMPTED", "STOPPED", "TERMINATED")
    if thing.kind is Kind.QUEUED:
        dead = ("PREEMPTED", "STOPPED", "TERMINATED")
        uses = any(name in of and of[name].state not in dead for name in thing.nodes)
        return uses or thing.state not in ("FAILED", "SUSPENDED")
    names = {*of, *whole.others, *(name for one in whole.things for name in one.nodes)}
    mentioned = any(name in thing.name for name in names)
    ours = any(thing.name.endswith(node(number)) for number in range(9))
    young = thing.created is None or thing.created > NOW - 3600
    return young or mentioned or not ours or thing.name.startswith("allow-")


def test_nothing_that_must_stay_goes_and_nothing_else_stays() -> None:
    gone = 0
    for seed in range(10_000):
        whole = world(seed)
        going = {id(one.holding) for one in removable(leftovers(US, whole, now=NOW))}
        for thing in whole.things:
            assert (id(thing) in going) != must_stay(thing, whole), (seed, thing)
        gone += len(going)
    assert gone > 5_000


def test_what_is_unknown_to_us_is_never_left_behind() -> None:
    for kind in Kind:
        thing = Holding(kind=kind, name=node(1), state="A_STATE_OF_NEXT_YEAR", created=NOW)
        assert removable(leftovers(US, Holdings(things=(thing,)), now=NOW)) == ()


def test_what_runs_is_never_among_the_states_that_are_left_behind() -> None:
    for state in ("RUNNING", "READY", "CREATING", "STAGING", "PROVISIONING", "STARTING", "ACTIVE"):
        assert state not in STOPPED | LOST | AT_REST
        thing = Holding(kind=Kind.SLICE, name="x", state=state)
        assert leftovers(US, Holdings(things=(thing, replace(thing, kind=Kind.VM))), now=NOW) == ()

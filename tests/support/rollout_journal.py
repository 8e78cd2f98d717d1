"""A journal that a test writes by hand, and what the state machine makes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rayfleet.rollout.fold import apply, begin
from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.machine import Decision, decide
from rayfleet.rollout.model import Direction, Output, Plan, Settings, Step, Wave, steps_of
from rayfleet.rollout.state import ClusterState, Outcome, Result, Way
from tests.support.rollout_examples import make_plan, make_target

EPOCH = datetime(2026, 11, 21, tzinfo=UTC)
FORWARD, BACK = Direction.FORWARD, Direction.BACK


def staged(*waves: str, canaries: int = 0, **limits: Any) -> Plan:
    """A plan with clusters of one letter, each in a region of its own: ``staged("a", "bc")`` has
    two waves. The first ``canaries`` of them are canaries."""
    made = [
        Wave(name=f"wave {number}", clusters=tuple(names), canary=number < canaries)
        for number, names in enumerate(waves)
    ]
    targets = [replace(make_target(f"{name}-{name}"), cluster=name) for name in "".join(waves)]
    return make_plan(made, targets, settings=Settings(**limits))


class Journal:
    """Takes records one by one, a second after each other; ``state`` is what they come to."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.state = begin(plan)
        self.records: list[Record] = []
        self.say(Kind.BEGUN, data={"by": "ana@ops-1"})

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return (EPOCH + timedelta(seconds=len(self.records))).timestamp()

    def say(
        self,
        kind: Kind,
        cluster: str = "",
        *,
        direction: Direction = FORWARD,
        step: Step | None = None,
        data: Output | None = None,
    ) -> None:
        """One record."""
        number = len(self.records) + 1
        record = Record(
            number=number,
            at=EPOCH + timedelta(seconds=number),
            kind=kind,
            cluster=cluster,
            direction=direction,
            step=step,
            data=data or {},
        )
        self.records.append(record)
        self.state = apply(self.plan, self.state, record)

    def go(
        self,
        *clusters: str,
        direction: Direction = FORWARD,
        killed: Step | None = None,
        fails: Step | None = None,
        outcome: Outcome = Outcome.DONE,
    ) -> None:
        """Clusters go their way, from where they are, until a step is ``killed`` or ``fails``."""
        for name in clusters:
            self.say(Kind.HELD, name, direction=direction)
            way = self.way(name, direction)
            for step in steps_of(self.plan.targets[name], self.plan.settings, direction):
                if step in way.outputs:
                    continue
                self.say(Kind.INTENT, name, direction=direction, step=step)
                if step is killed:
                    return
                if step is fails:
                    error = {"what": "broken", "code": 2}
                    self.say(Kind.FAILED, name, direction=direction, step=step, data=error)
                    break
                self.say(Kind.DONE, name, direction=direction, step=step)
            self.end(name, outcome, direction=direction)

    def end(self, cluster: str, outcome: Outcome, *, direction: Direction = FORWARD) -> None:
        """A cluster has ended in a direction."""
        data = {"outcome": outcome.value}
        self.say(Kind.CLUSTER, cluster, direction=direction, data=data)
        if outcome not in {Outcome.FAILED, Outcome.INCONCLUSIVE}:
            self.say(Kind.RELEASED, cluster, direction=direction)

    def fail(self, *clusters: str, step: Step = Step.START, direction: Direction = FORWARD) -> None:
        """Clusters fail in a step after they were touched."""
        for name in clusters:
            self.go(name, direction=direction, fails=step, outcome=Outcome.FAILED)

    def ask(self, verb: str, *clusters: str, full: bool = False) -> None:
        """An operator asks for something."""
        data = {"verb": verb, "clusters": list(clusters), "by": "bo@ops-2", "full": full}
        self.say(Kind.REQUEST, data=data)

    def baked(self, wave: int) -> None:
        """The bake of a wave is over."""
        self.say(Kind.BAKED, data={"wave": wave})

    def rest(self) -> None:
        """Write down the end that has been decided on."""
        decision = self.decide()
        if decision.result is not None:
            self.say(Kind.FINISHED, data={"result": decision.result.value})
        else:
            assert decision.pause
            self.say(Kind.PAUSED, data={"reason": decision.pause})

    def resume(self) -> None:
        """A new process takes it up."""
        self.say(Kind.BEGUN, data={"by": "ana@ops-1"})

    def decide(self, *in_flight: str) -> Decision:
        """What is to be done now."""
        return decide(self.plan, self.state, now=self.now, in_flight=in_flight)

    def starts(self, *in_flight: str) -> list[str]:
        """Who is to be started now: ``a`` forward, ``<a`` back."""
        started = self.decide(*in_flight).start
        return [name if direction is FORWARD else f"<{name}" for name, direction in started]

    @property
    def result(self) -> Result | None:
        """The result that has been decided on."""
        return self.decide().result

    def cluster(self, name: str) -> ClusterState:
        """One cluster's state."""
        return self.state.clusters[name]

    def way(self, name: str, direction: Direction = FORWARD) -> Way:
        """One cluster's way; an empty one if there is none."""
        return self.cluster(name).way(direction) or Way()

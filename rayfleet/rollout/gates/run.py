"""Ask all gates of one cluster until every one is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rayfleet.errors import PrerequisiteMissing, RayfleetError, ToolFailed, Unreachable, UsageError
from rayfleet.rollout.gates.gate import Gate, GateTimes, Reading, Verdict
from rayfleet.rollout.model import Output
from rayfleet.rollout.performer import Inconclusive
from rayfleet.waiting import Clock, SystemClock

if TYPE_CHECKING:
    from rayfleet.rollout.gates.subject import Subject

_LONGEST_DETAIL = 300


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
    clock = clock or SystemClock()
    asked = [_Asked(gate, times.get(gate.name, GateTimes()), narrate) for gate in gates]
    with ExitStack() as stack:
        for one in asked:
            stack.callback(one.gate.close, subject)
        while True:
            subject.refresh()
            for one in asked:
                if _due(one, asked, clock.monotonic()):
                    one.look(subject, clock)
            left = [one for one in asked if not one.open]
            if not left:
                return _output(asked, subject)
            now = clock.monotonic()
            due = [now if _due(one, asked, now) else one.next for one in left if one.asking(asked)]
            clock.sleep(max(min(due) - now, 0.0))


def read_gate(gate: Gate, subject: Subject) -> Reading:
    """What ``gate`` says now, errors included."""
    from rayfleet.job.dashboard import Unauthorized

    try:
        return gate.check(subject)
    except (Unauthorized, UsageError, PrerequisiteMissing) as error:
        return Reading(Verdict.FAIL, _brief(error), error.next_step)
    except RayfleetError as error:
        return Reading(Verdict.NOT_YET, _brief(error))


@dataclass
class _Asked:
    """A gate that is being asked. Times are those of the clock."""

    gate: Gate
    times: GateTimes
    narrate: Callable[[str], None]
    begun: float | None = None
    next: float = float("-inf")
    row: int = 0
    last: Reading = field(default_factory=lambda: Reading(Verdict.NOT_YET))

    @property
    def open(self) -> bool:
        return self.row >= self.times.successes

    def asking(self, asked: Sequence[_Asked]) -> bool:
        """Whether all that it needs is open; a gate that nobody chose holds up none."""
        return all(other.open for other in asked if other.gate.name in self.gate.needs)

    def look(self, subject: Subject, clock: Clock) -> None:
        """Ask once; raise when that was the last time and the answer is not yes."""
        if self.begun is None:
            self.begun = clock.monotonic()
        reading = read_gate(self.gate, subject)
        reading = Reading(reading.verdict, reading.detail[:_LONGEST_DETAIL], reading.next_step)
        passed = reading.verdict is Verdict.PASS
        self.row = self.row + 1 if passed else 0
        if reading != self.last:
            self.narrate(f"gate {self.gate.name}: {reading.detail or reading.verdict}")
        self.last = reading
        now = clock.monotonic()
        # Not past the end, so that a long interval has its last look then.
        self.next = min(now + self.times.interval, self.begun + self.times.timeout)
        if reading.verdict is Verdict.FAIL or (
            not self.open and now >= self.begun + self.times.timeout
        ):
            raise self._error(subject)

    def _error(self, subject: Subject) -> RayfleetError:
        name, what = subject.name, f"the gate {self.gate.name}"
        seconds, detail = f"{self.times.timeout:.0f} s", self.last.detail
        logs = f"invoke tail-logs --cluster {name} --no-follow --tail 30"
        if self.last.verdict is Verdict.FAIL:
            return ToolFailed(
                f"{name}: {what} says no", why=detail, next_step=self.last.next_step or logs
            )
        if self.last.verdict is Verdict.UNKNOWN:
            return Inconclusive(
                f"{name}: {what} could not say yes or no within {seconds}",
                why=detail,
                next_step=f"{logs}; if it is well: invoke rollouts.promote "
                f"{subject.wanted.rollout}",
            )
        return Unreachable(
            f"{name}: {what} did not open within {seconds}", why=detail, next_step=logs
        )


def _due(one: _Asked, asked: Sequence[_Asked], now: float) -> bool:
    return not one.open and one.asking(asked) and now >= one.next


def _output(asked: Sequence[_Asked], subject: Subject) -> Output:
    return {
        "passed": {one.gate.name: one.last.detail for one in asked},
        "workers": dict(subject.joined),
        "ray": subject.ray,
    }


def _brief(error: RayfleetError) -> str:
    return " ".join(f"{error.what}: {error.why}".split()) if error.why else error.what

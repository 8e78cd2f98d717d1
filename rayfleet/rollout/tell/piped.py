"""A rollout as lines, for pipes and logs of CI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.model import Direction, Output, Plan
from rayfleet.rollout.state import State
from rayfleet.rollout.tell.facts import MOVING, cluster_seconds, standing, summary, waves_of
from rayfleet.rollout.tell.words import one_line, safe, spell
from rayfleet.rollout.tell.writer import HURRY_SECONDS, Writer

QUIET_SECONDS = 60.0
"""How long a cluster may say nothing until a detail of it is told as well."""

LAST_SECONDS = 10.0
"""How long the end waits for a reader of the narration that does not read."""


class Piped:
    """One line per end of a step, outcome, wave, bake and pause, each with the seconds since
    the rollout began (``begun``, for one that is taken up again). ``say`` narrates a line; it
    is called from a thread of its own.
    """

    def __init__(
        self,
        plan: Plan,
        say: Callable[[str], None],
        *,
        begun: datetime | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._plan = plan
        self._now = now
        self._writer = Writer(say, name="narration")
        self._waves = waves_of(plan)
        self._first = begun
        self._begun: dict[str, datetime] = {}
        self._heard: dict[str, datetime] = {}
        self._seen: set[int] = set()

    def hear(self, record: Record, state: State) -> None:
        """Tell of the record, if it is news."""
        if self._first is None:
            self._first = record.at
        for line in self._lines(record, state):
            self._tell(record.at, line)
        if record.cluster:
            self._heard[record.cluster] = record.at

    def detail(self, cluster: str, text: str) -> None:
        """Tell of a cluster that has been silent for long."""
        now = self._now()
        heard = self._heard.get(cluster)
        if heard is None or (now - heard).total_seconds() < QUIET_SECONDS:
            return
        self._heard[cluster] = now
        self._tell(now, f"{cluster}: {one_line(text)}")

    def close(self, *, hurry: bool = False) -> None:
        """Wait until all is told."""
        self._writer.close(HURRY_SECONDS if hurry else LAST_SECONDS)

    def _tell(self, at: datetime, text: str) -> None:
        seconds = (at - self._first).total_seconds() if self._first else 0.0
        self._writer.line(f"{seconds:8.1f} s  {text}")

    def _lines(self, record: Record, state: State) -> Iterator[str]:
        data = record.data
        match record.kind:
            case Kind.BEGUN:
                verb = "begun" if record.number == 1 else "taken up again"
                yield f"rollout {self._plan.id} {verb} by {one_line(data.get('by', 'unknown'))}"
            case Kind.INTENT:
                self._begun[record.cluster] = record.at
                yield from self._wave(record)
            case Kind.DONE:
                yield f"{_step(record)} done{self._took(record)}"
            case Kind.FAILED:
                yield from self._failed(record)
            case Kind.CLUSTER:
                yield self._outcome(record, state)
            case Kind.BAKING:
                yield f"{self._wave_name(data)} bakes{_for(data, record.at)}"
            case Kind.BAKED:
                yield f"{self._wave_name(data)} has baked"
            case Kind.REQUEST:
                names = data.get("clusters") or ()
                which = " ".join(map(str, names)) if isinstance(names, list | tuple) else ""
                asked = f"{data.get('verb', '')} {which}".strip()
                yield f"asked for by {one_line(data.get('by', 'unknown'))}: {one_line(asked)}"
            case Kind.PAUSED:
                yield f"paused: {one_line(data.get('reason', ''))} ({summary(state)})"
            case Kind.FINISHED:
                yield f"finished: {one_line(data.get('result', ''))} ({summary(state)})"

    def _wave(self, record: Record) -> Iterator[str]:
        number = self._waves.get(record.cluster)
        if number is None or number in self._seen or record.direction is Direction.BACK:
            return
        self._seen.add(number)
        wave = self._plan.waves[number]
        names, waves = ", ".join(wave.clusters), len(self._plan.waves)
        yield f"wave {number + 1} of {waves}, {wave.name}: {names}"

    def _wave_name(self, data: Output) -> str:
        number = data.get("wave")
        return f"wave {number + 1}" if isinstance(number, int) else "a wave"

    def _took(self, record: Record) -> str:
        begun = self._begun.pop(record.cluster, None)
        return f" in {spell((record.at - begun).total_seconds())}" if begun else ""

    def _failed(self, record: Record) -> Iterator[str]:
        what, why = (one_line(safe(record.data.get(key, ""))) for key in ("what", "why"))
        cause = ": ".join(part for part in (what, why) if part)
        yield f"{_step(record)} FAILED{self._took(record)}: {cause}"
        if following := one_line(safe(record.data.get("next", ""))):
            yield f"{record.cluster}: next: {following}"

    def _outcome(self, record: Record, state: State) -> str:
        cluster = state.clusters[record.cluster]
        took = cluster_seconds(cluster, record.at)
        ended = sum(
            standing(each) not in MOVING and each.forward is not None
            for each in state.clusters.values()
        )
        text = f"{record.cluster}: {standing(cluster)}"
        text += f" after {spell(took)}" if took else ""
        return f"{text} ({ended} of {len(state.clusters)} clusters have ended)"


def _step(record: Record) -> str:
    back = "back: " if record.direction is Direction.BACK else ""
    return f"{record.cluster}: {back}{record.step or 'a step'}"


def _for(data: Output, at: datetime) -> str:
    until = data.get("until")
    return f" for {spell(until - at.timestamp())}" if isinstance(until, int | float) else ""

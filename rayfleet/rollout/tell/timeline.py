"""When each step of each cluster ran, as the journal tells it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from rayfleet.rollout.journal.records import Kind, Record
from rayfleet.rollout.model import Direction, Step
from rayfleet.rollout.state import Outcome


class Fate(StrEnum):
    """How one try of a step ended. CUT: the process that did it was killed."""

    DONE = "done"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    CUT = "cut off"
    RUNNING = "under way"


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One try of one step; ``number`` counts from 1. ``why`` is its error's first line."""

    step: Step
    direction: Direction
    begun: datetime
    ended: datetime
    fate: Fate
    number: int = 1
    why: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max((self.ended - self.begun).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One process that drove the rollout. ``end`` says how it ended: the reason of a pause, the
    result, or empty for one that was killed (``ended`` is its last record then)."""

    by: str
    begun: datetime
    ended: datetime
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bake:
    """A wave that was watched. ``whole`` is False while it is, or when it was broken off."""

    wave: int
    begun: datetime
    ended: datetime
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The whole rollout in time. ``lanes`` has the tries of each cluster in their order."""

    lanes: Mapping[str, tuple[Try, ...]] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()
    bakes: tuple[Bake, ...] = ()
    requests: tuple[Record, ...] = ()

    @property
    def seconds(self) -> float:
        """From the first record to the last, breaks included."""
        if not self.sessions:
            return 0.0
        return (self.sessions[-1].ended - self.sessions[0].begun).total_seconds()


def trace(records: Iterable[Record]) -> Timeline:
    """The timeline of a journal."""
    tracer = _Tracer()
    for record in records:
        tracer.take(record)
    return tracer.result()


def down_seconds(tries: Iterable[Try]) -> float | None:
    """How long a cluster had no head: from each stop to the end of the start that follows it.

    None when it was never stopped. A stop without such a start counts to the last try's end.
    """
    total, since, last = 0.0, None, None
    stopped = False
    for each in tries:
        last = each.ended
        if each.step is Step.STOP:
            stopped = True
            since = since or each.begun
        elif each.step is Step.START and each.fate is Fate.DONE and since is not None:
            total += (each.ended - since).total_seconds()
            since = None
    if since is not None and last is not None:
        total += (last - since).total_seconds()
    return max(total, 0.0) if stopped else None


class _Tracer:
    def __init__(self) -> None:
        self._open: dict[str, tuple[Record, int]] = {}
        self._counts: dict[tuple[str, Direction, Step], int] = {}
        self._lanes: dict[str, list[Try]] = {}
        self._sessions: list[Session] = []
        self._by: tuple[str, datetime] | None = None
        self._bakes: list[Bake] = []
        self._baking: dict[int, datetime] = {}
        self._requests: list[Record] = []
        self._last: datetime | None = None

    def take(self, record: Record) -> None:
        match record.kind:
            case Kind.BEGUN:
                self._cut_off(self._last or record.at)
                self._by = str(record.data.get("by", "")), record.at
            case Kind.INTENT if record.step is not None:
                key = record.cluster, record.direction, record.step
                self._counts[key] = self._counts.get(key, 0) + 1
                self._open[record.cluster] = record, self._counts[key]
            case Kind.DONE:
                self._close(record, Fate.DONE)
            case Kind.FAILED:
                self._close(record, Fate.FAILED, why=str(record.data.get("what", "")))
            case Kind.CLUSTER:
                self._ended(record)
            case Kind.BAKING:
                self._baking[_wave(record)] = record.at
            case Kind.BAKED:
                self._end_bake(_wave(record), record.at, whole=True)
            case Kind.REQUEST:
                self._requests.append(record)
            case Kind.PAUSED:
                self._end(record.at, str(record.data.get("reason", "")) or "paused")
            case Kind.FINISHED:
                self._end(record.at, str(record.data.get("result", "")) or "finished")
        self._last = record.at

    def result(self) -> Timeline:
        if self._last is not None:
            running = self._by is not None
            self._cut_off(self._last, fate=Fate.RUNNING if running else Fate.CUT)
        return Timeline(
            lanes={name: tuple(tries) for name, tries in self._lanes.items()},
            sessions=tuple(self._sessions),
            bakes=tuple(self._bakes),
            requests=tuple(self._requests),
        )

    def _close(self, record: Record, fate: Fate, *, why: str = "") -> None:
        intent, number = self._open.pop(record.cluster, (record, 1))
        step = record.step or intent.step
        if step is None:
            return
        # A cluster that fails while its wave bakes has a FAILED record without an intent.
        made = Try(
            step=step,
            direction=intent.direction,
            begun=intent.at,
            ended=record.at,
            fate=fate,
            number=number,
            why=why,
        )
        self._lanes.setdefault(record.cluster, []).append(made)

    def _ended(self, record: Record) -> None:
        lane = self._lanes.get(record.cluster)
        if record.data.get("outcome") == Outcome.INCONCLUSIVE and lane:
            lane[-1] = replace(lane[-1], fate=Fate.INCONCLUSIVE)

    def _end_bake(self, wave: int, at: datetime, *, whole: bool) -> None:
        begun = self._baking.pop(wave, None)
        if begun is not None:
            self._bakes.append(Bake(wave=wave, begun=begun, ended=at, whole=whole))

    def _cut_off(self, at: datetime, *, fate: Fate = Fate.CUT) -> None:
        """Nobody has said how the running session ended: it did with its last record."""
        for cluster, (intent, number) in self._open.items():
            if intent.step is None:
                continue
            self._lanes.setdefault(cluster, []).append(
                Try(
                    step=intent.step,
                    direction=intent.direction,
                    begun=intent.at,
                    ended=at,
                    fate=fate,
                    number=number,
                )
            )
        self._open.clear()
        if self._by is not None:
            self._end(at, "")

    def _end(self, at: datetime, how: str) -> None:
        for wave in tuple(self._baking):
            self._end_bake(wave, at, whole=False)
        if self._by is not None:
            by, begun = self._by
            self._sessions.append(Session(by=by, begun=begun, ended=at, end=how))
        self._by = None


def _wave(record: Record) -> int:
    number = record.data.get("wave")
    return number if isinstance(number, int) else -1

"""The gates of the workers: enough have joined, and the autoscaler gets what it asks for.

A cloud may have no preemptible machines to give, so that all of them are never demanded: of
those it is enough that the autoscaler has asked for the rest of the minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

from rayfleet.cluster.live import Workers
from rayfleet.rollout.gates.gate import Question, Reading, Verdict
from rayfleet.rollout.gates.scaling import Scaling
from rayfleet.rollout.gates.subject import Subject

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One node type with a minimum: what there is of it. ``asked`` is what is under way, at
    least; ``refused`` are the latest failures, in Ray's words."""

    kind: str
    wanted: int
    workers: Workers
    asked: int
    refused: tuple[str, ...]
    preemptible: bool
    hosts: int

    @property
    def short(self) -> bool:
        """Whether neither enough have joined nor, if that will do, the rest is under way."""
        if self.workers.whole >= self.wanted:
            return False
        return not (self.preemptible and (self.asked or self.workers.partial))

    def text(self) -> str:
        """For people: ``1 of 4 tpu_worker, 3 asked for``."""
        parts = [f"{self.workers.whole} of {self.wanted} {self.kind}"]
        if self.workers.partial:
            parts.append(f"{self.workers.partial} with only some of their {self.hosts} hosts")
        if self.workers.whole < self.wanted and self.asked:
            parts.append(f"at least {self.asked} asked for")
        if self.short and self.refused:
            parts.append(self.refused[0])
        return ", ".join(parts)


def needs_of(subject: Subject) -> tuple[Need, ...]:
    """Every node type that must have workers, as it stands."""
    minimum = subject.wanted.config.min_workers
    if not minimum:
        return ()
    workers = subject.workers()
    enough = all(workers.get(kind, Workers()).whole >= count for kind, count in minimum.items())
    scaling = Scaling() if enough else subject.scaling() or Scaling()
    found = []
    for kind, wanted in minimum.items():
        node_type = subject.wanted.node_type(kind)
        found.append(
            Need(
                kind=kind,
                wanted=wanted,
                workers=workers.get(kind, Workers()),
                asked=scaling.asked.get(kind, 0),
                refused=scaling.failures.get(kind, ()),
                preemptible=node_type is not None and node_type.preemptible,
                hosts=node_type.hosts if node_type else 1,
            )
        )
    return tuple(found)


def workers(subject: Subject) -> Reading:
    """The minimum of every node type has joined, or is under way where it is preemptible.

    A cluster that had workers and has got none is no success, whatever was asked for; and one
    that lacks only what its cloud refuses is no failure of what was changed. Either is for a
    person to judge.
    """
    needs = needs_of(subject)
    before = subject.wanted.before
    if not needs:
        return Reading(Verdict.PASS, f"no minimum{_had(sum(before.values()))}")
    text = _listed(needs) + _had(sum(before.get(need.kind, 0) for need in needs))
    short = [need for need in needs if need.short]
    if short:
        refused = all(need.preemptible and need.refused for need in short)
        return Reading(Verdict.UNKNOWN if refused else Verdict.NOT_YET, text)
    none = not any(need.workers.hosts for need in needs)
    if none and any(before.get(need.kind) for need in needs):
        return Reading(Verdict.UNKNOWN, f"none has joined yet: {text}")
    return Reading(Verdict.PASS, text)


def autoscaler(subject: Subject) -> Reading:
    """The autoscaler runs and reports, and its failures leave no node type short."""
    if not subject.inside().autoscaler:
        return Reading(Verdict.NOT_YET, "its process does not run on the head")
    scaling = subject.scaling()
    if scaling is None:
        return Reading(Verdict.NOT_YET, "it has not reported yet")
    failing = [need for need in needs_of(subject) if need.short and need.refused]
    if failing:
        return Reading(Verdict.UNKNOWN, _listed(failing))
    count = sum(map(len, scaling.failures.values()))
    return Reading(Verdict.PASS, f"recent failures: {count}" if count else "no recent failures")


def _listed(needs: list[Need] | tuple[Need, ...]) -> str:
    # Those that lack something first: a message is cut at its end.
    ordered = sorted(needs, key=lambda need: need.workers.whole >= need.wanted)
    rest = len(ordered) - _MOST_NAMED
    more = f"; and {rest} types more" if rest > 0 else ""
    return "; ".join(need.text() for need in ordered[:_MOST_NAMED]) + more


def _had(count: int) -> str:
    return f" ({count} before)" if count else ""


WORKERS = Question(name="workers", needs=("health",), ask=workers)
AUTOSCALER = Question(name="autoscaler", needs=("health",), ask=autoscaler)

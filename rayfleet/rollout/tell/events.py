"""``--json``: a rollout as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from rayfleet.job.redaction import redacted
from rayfleet.rollout.journal.records import Record
from rayfleet.rollout.model import Output, Plan
from rayfleet.rollout.state import State
from rayfleet.rollout.tell.facts import cluster_seconds, failures, standing, waves_of
from rayfleet.rollout.tell.jobs import fates_of
from rayfleet.rollout.tell.writer import HURRY_SECONDS, Writer

PAUSED = "paused"
INTERRUPTED = "interrupted"
UNFINISHED = "not finished"
"""It goes on, or its process was killed: its journal alone does not tell."""


class Events:
    """One line of JSON per record, as the journal has it but for secrets, then one summary.

    ``write`` prints a line on stdout and flushes; it is called from a thread of its own.
    ``report`` is the path of the report that the summary names.
    """

    def __init__(self, plan: Plan, write: Callable[[str], None], *, report: str = "") -> None:
        self._plan = plan
        self._report = report
        self._writer = Writer(write, name="events")
        self._begun: datetime | None = None
        self._last: tuple[Record, State] | None = None

    def hear(self, record: Record, state: State) -> None:
        """Print the record."""
        self._begun = self._begun or record.at
        self._last = record, state
        self._writer.line(replace(record, data=_masked(record.data)).line())

    def detail(self, cluster: str, text: str) -> None:
        """Details are no events."""

    def close(self, *, hurry: bool = False) -> None:
        """Print the summary and wait until all is written or nobody reads any more."""
        if self._last is not None:
            record, state = self._last
            self._last = None
            document = summary_document(self._plan, state, at=record.at, report=self._report)
            self._writer.line(json.dumps(document, separators=(",", ":")))
        self._writer.close(HURRY_SECONDS if hurry else None)


def _masked(data: Output) -> Output:
    """``data`` without what looks like a secret, as deep as it goes."""
    return {key: _masked_value(value) for key, value in data.items()}


def _masked_value(value: object) -> object:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list | tuple):
        return [_masked_value(each) for each in value]
    return _masked(value) if isinstance(value, Mapping) else value


def result_word(state: State, *, otherwise: str = UNFINISHED) -> str:
    """How a rollout has ended, or that it is paused, or ``otherwise``."""
    if state.result is not None:
        return state.result.value
    return PAUSED if state.paused else otherwise


def began(state: State) -> datetime | None:
    """When the first cluster was begun."""
    ways = (cluster.forward for cluster in state.clusters.values())
    return min((way.begun for way in ways if way is not None and way.begun), default=None)


def summary_document(
    plan: Plan, state: State, *, at: datetime, report: str = ""
) -> dict[str, object]:
    """The last line of ``--json``, and what a webhook gets. The keys are stable.

    ``at`` is when the run ended.
    """
    waves, wrong = waves_of(plan), failures(plan, state)
    clusters = {}
    for name, wave in waves.items():
        cluster = state.clusters[name]
        took = cluster_seconds(cluster, at)
        own = [failure for failure in wrong if failure.cluster == name]
        clusters[name] = {
            "wave": plan.waves[wave].name,
            "outcome": standing(cluster).value,
            "seconds": None if took is None else round(took, 3),
            "jobs": [fate.document() for fate in fates_of(plan, plan.targets[name], cluster)],
            "failures": [
                {
                    "direction": failure.direction.value,
                    "step": failure.step.value if failure.step else None,
                    "what": failure.what,
                    "why": failure.why,
                    "next": failure.next,
                }
                for failure in own
            ],
        }
    begun = began(state)
    return {
        "kind": "summary",
        "rollout": plan.id,
        "result": result_word(state, otherwise=INTERRUPTED),
        "reason": state.paused,
        "clusters": clusters,
        "seconds": round((at - begun).total_seconds(), 3) if begun else 0.0,
        "report": report,
    }

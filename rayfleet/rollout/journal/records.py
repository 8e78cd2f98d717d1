"""One record of the journal: a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from rayfleet.rollout.model import Direction, Output, Step


class Kind(StrEnum):
    """What a record tells.

    BEGUN: a process took up the rollout (``data``: ``by``, ``pid``, ``host``), again for each
    resume. HELD, RELEASED: the lock of a cluster. INTENT, NOTE, DONE, FAILED: of one step of one
    cluster; NOTE is what a step has to know of itself should it be killed, ``data`` of DONE is
    its output, and of FAILED ``what``, ``why``, ``next`` and ``code``. CLUSTER: a cluster has
    ended in one direction (``data``: ``outcome``, an Outcome). BAKING, BAKED: of the wave
    ``data["wave"]``; BAKING has ``until`` (seconds since 1970). REQUEST: what an operator asked
    for (``data``: ``verb``, ``clusters``, ``by``). PAUSED (``data``: ``reason``) and
    FINISHED (``data``: ``result``) close a run.
    """

    BEGUN = "begun"
    HELD = "held"
    INTENT = "intent"
    NOTE = "note"
    DONE = "done"
    FAILED = "failed"
    RELEASED = "released"
    CLUSTER = "cluster"
    BAKING = "baking"
    BAKED = "baked"
    REQUEST = "request"
    PAUSED = "paused"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record. ``number`` counts from 1; ``at`` is when it was written, UTC."""

    number: int
    at: datetime
    kind: Kind
    cluster: str = ""
    direction: Direction = Direction.FORWARD
    step: Step | None = None
    data: Output = field(default_factory=dict)

    def line(self) -> str:
        """The record as its line, without the line's end."""
        document: dict[str, object] = {
            "number": self.number,
            "at": self.at.isoformat(timespec="milliseconds"),
            "kind": self.kind.value,
        }
        if self.cluster:
            document |= {"cluster": self.cluster, "direction": self.direction.value}
        if self.step is not None:
            document["step"] = self.step.value
        if self.data:
            document["data"] = dict(self.data)
        return json.dumps(document, separators=(",", ":"))


def parse_record(line: str) -> Record:
    """Read one line of a journal.

    Raises:
        ValueError: it is none.
    """
    try:
        row = json.loads(line)
        return Record(
            number=int(row["number"]),
            at=datetime.fromisoformat(row["at"]).astimezone(UTC),
            kind=Kind(row["kind"]),
            cluster=str(row.get("cluster", "")),
            direction=Direction(row.get("direction", Direction.FORWARD)),
            step=Step(row["step"]) if "step" in row else None,
            data=_mapping(row.get("data", {})),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no record of a journal: {error!r}") from error


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError("data is no object")
    return value

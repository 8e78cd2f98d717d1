"""The mark of a rollout on a head: it keeps operators of other machines away from the cluster.

Their leases are on their own disks; a head is what all of them see. The mark goes with the head,
and the rollout marks the next one as soon as that lets it in. Whoever changes a cluster reads the
mark first; between two heads, and on a head that answers nobody, there is none to read.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from rayfleet.errors import Locked, Unreachable

if TYPE_CHECKING:
    from rayfleet.cluster.head import Head

FILE = "~/.rayfleet/held.json"
ASK_TIMEOUT = 20.0  # seconds per question to a head


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Whose a cluster is: the rollout's id, ``user@host``, and since when (ISO 8601, UTC)."""

    rollout: str
    operator: str
    since: str

    def describe(self) -> str:
        """Whose it is, in a few words."""
        return f"rollout {self.rollout} of {self.operator} since {self.since}"


def place_mark(head: Head, mark: Mark) -> None:
    """Mark ``head`` unless it bears this rollout's mark already.

    Raises:
        Locked: it bears another's.
        Unreachable: it could not be marked.
    """
    text = shlex.quote(json.dumps(asdict(mark)))
    # A link is made whole or not at all, and never over another: of two operators one wins.
    result = head.run(
        f"mkdir -p ~/.rayfleet && printf %s {text} > {FILE}.$$ && "
        f"{{ ln {FILE}.$$ {FILE} 2>/dev/null; rm -f {FILE}.$$; cat {FILE}; }}",
        timeout=ASK_TIMEOUT,
    )
    if result.code != 0:
        raise Unreachable(
            f"{head.address.cluster}: the head could not be marked", why=result.stderr[-300:]
        )
    there = _parsed(result.stdout)
    if there.rollout != mark.rollout:
        raise _refusal(head.address.cluster, there)


def read_mark(head: Head) -> Mark | None:
    """The mark on ``head``; None when there is none. A damaged one is of an unknown rollout."""
    result = head.run(f"cat {FILE}", timeout=ASK_TIMEOUT)
    return _parsed(result.stdout) if result.code == 0 else None


def refuse_marked(head: Head) -> None:
    """Do nothing on a cluster whose head bears the mark of a rollout, whoever's it is.

    Raises:
        Locked: it does.
        Unreachable: the head does not answer.
    """
    there = read_mark(head)
    if there is not None:
        raise _refusal(head.address.cluster, there)


def remove_mark(head: Head, *, rollout: str) -> None:
    """Take the mark of ``rollout`` from ``head``, if it is there."""
    there = read_mark(head)
    if there is not None and there.rollout == rollout:
        head.run(f"rm -f {FILE}", timeout=ASK_TIMEOUT)


def _parsed(text: str) -> Mark:
    try:
        row = json.loads(text)
        return Mark(**{field.name: str(row[field.name]) for field in fields(Mark)})
    except (ValueError, KeyError, TypeError):
        return Mark(rollout="UNKNOWN", operator="somebody", since="an unknown time")


def _refusal(cluster: str, mark: Mark) -> Locked:
    return Locked(
        f"{cluster} is part of a rollout of another operator or machine",
        why=f"its head bears the mark of {mark.describe()}",
        next_step=f"ask {mark.operator}; if nothing is left of that rollout: "
        f"invoke rollouts.unlock --cluster {cluster}",
    )

"""What many nodes said, the same shown once (as ``clush -b`` does)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rayfleet.cluster.execute import Outcome
from rayfleet.cluster.fanout import reason


def gathered(outcomes: Sequence[Outcome]) -> Iterator[tuple[Outcome, ...]]:
    """The outcomes of commands that ran, those together that printed the same and ended alike, in
    the order in which each was first seen."""
    groups: dict[tuple[str, bytes, bytes], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.code is not None or outcome.stdout or outcome.stderr:
            alike = (outcome.ending, outcome.stdout, outcome.stderr)
            groups.setdefault(alike, []).append(outcome)
    return (tuple(group) for group in groups.values())


def as_text(outcomes: Sequence[Outcome], clean: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Every group under a line with its nodes; ``clean`` makes bytes fit for where they go."""
    for group in gathered(outcomes):
        first = group[0]
        said = clean(_whole(first.stdout) + _whole(first.stderr))
        notes = [first.ending, "" if said else "no output"]
        note = ", ".join(note for note in notes if note)
        names = ", ".join(outcome.target.name for outcome in group)
        yield f"--- {names}{f': {note}' if note else ''}\n".encode() + said


def as_rows(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """One row for JSON per node; ``code`` is null where the command did not end by itself, and
    ``error`` says why. Bytes that are no UTF-8 are replaced."""
    return [
        {
            "name": outcome.target.name,
            "cluster": outcome.target.cluster,
            "region": outcome.target.region,
            "node": outcome.target.node,
            "code": outcome.code,
            "error": outcome.error and reason(outcome.error),
            "seconds": round(outcome.seconds, 3),
            "stdout": outcome.stdout.decode(errors="replace"),
            "stderr": outcome.stderr.decode(errors="replace"),
        }
        for outcome in outcomes
    ]


def _whole(output: bytes) -> bytes:
    return output if not output or output.endswith(b"\n") else output + b"\n"

"""Which backups of jobs rollouts may still need."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from rayfleet.errors import RayfleetError
from rayfleet.files import refusing
from rayfleet.rollout.journal.records import parse_record
from rayfleet.rollout.journal.store import Rollout, Rollouts


def needed_backups(state: Path, ids: Collection[str]) -> Mapping[str, str]:
    """Those of the backups ``ids`` that a rollout of the state folder ``state`` may still give
    jobs back from, each with why.

    That is every backup that the journal of an unfinished rollout names, and of a finished one
    those of clusters that it has not released. A journal that cannot be read counts as
    unfinished.

    Raises:
        PrerequisiteMissing: the rollouts cannot be listed, or a journal cannot be opened.
    """
    needed: dict[str, str] = {}
    for rollout in Rollouts(state).all():
        text, why = _named(rollout)
        needed |= {backup: why for backup in ids if backup not in needed and backup in text}
    return needed


def _named(rollout: Rollout) -> tuple[str, str]:
    """The text that names what ``rollout`` needs, and why it does."""
    path = rollout.journal.path
    with refusing(path, action="read"):
        text = path.read_text(errors="replace") if path.exists() else ""
    try:
        state = rollout.state()
    except (RayfleetError, ValueError):
        return text, f"rollout {rollout.id} cannot be read (invoke rollouts.show {rollout.id})"
    if state.result is None:
        return text, f"rollout {rollout.id} is not finished"
    held = {name for name, cluster in state.clusters.items() if cluster.held}
    lines = (line for line in _lines(text) if held and parse_record(line).cluster in held)
    return "\n".join(lines), f"rollout {rollout.id} has not released {', '.join(sorted(held))}"


def _lines(text: str) -> Iterator[str]:
    """The whole lines: of the last one a writer that was killed may have left a part."""
    yield from text.split("\n")[:-1]

"""The common time axis of a page: breaks between runs are shortened. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rayfleet.rollout.tell.timeline import Session

BREAK_WIDTH = 5.0
"""Percent of the axis that a shortened break takes."""

MOST_BREAKS_WIDTH = 35.0
SHORTEST_BREAK = 30.0
"""Seconds; a shorter pause between two runs is drawn as it is."""

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
MOST_TICKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of time, in seconds since 1970, and where it lies, in percent."""

    begun: float
    ended: float
    left: float
    right: float
    shortened: bool = False


class Axis:
    """Maps moments to percent of the axis' width."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.pieces = _pieces(sessions)

    def place(self, moment: datetime) -> float:
        """Where ``moment`` lies, 0 to 100."""
        at = moment.timestamp()
        for piece in self.pieces:
            if at <= piece.ended:
                share = (at - piece.begun) / max(piece.ended - piece.begun, 1e-9)
                return piece.left + min(max(share, 0.0), 1.0) * (piece.right - piece.left)
        return 100.0

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Places and labels: the time of day, UTC, in full steps."""
        whole = [piece for piece in self.pieces if not piece.shortened]
        seconds = sum(piece.ended - piece.begun for piece in whole)
        step = next((each for each in _STEPS if seconds / each <= MOST_TICKS), _STEPS[-1])
        form = "%H:%M" if step >= 60 else "%H:%M:%S"
        found = []
        for piece in whole:
            at = (piece.begun // step + 1) * step
            while at < piece.ended:
                moment = datetime.fromtimestamp(at, UTC)
                found.append((self.place(moment), moment.strftime(form)))
                at += step
        return _apart(found)


def _apart(ticks: Sequence[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
    """Without those whose labels would touch each other or the edge."""
    kept: list[tuple[float, str]] = []
    for place, label in ticks:
        if 3 <= place <= 96 and (not kept or place - kept[-1][0] >= 7):
            kept.append((place, label))
    return tuple(kept)


def _pieces(sessions: Sequence[Session]) -> tuple[Piece, ...]:
    if not sessions:
        return (Piece(begun=0.0, ended=1.0, left=0.0, right=100.0),)
    spans: list[tuple[float, float, bool]] = []
    for session in sessions:
        begun, ended = session.begun.timestamp(), session.ended.timestamp()
        if spans:
            gap = begun - spans[-1][1]
            spans.append((spans[-1][1], begun, gap > SHORTEST_BREAK))
        spans.append((begun, max(ended, begun), False))
    breaks = sum(shortened for *_, shortened in spans)
    width = min(BREAK_WIDTH, MOST_BREAKS_WIDTH / breaks) if breaks else 0.0
    seconds = sum(ended - begun for begun, ended, shortened in spans if not shortened)
    scale = (100.0 - breaks * width) / max(seconds, 1e-9)
    pieces, left = [], 0.0
    for begun, ended, shortened in spans:
        right = left + (width if shortened else (ended - begun) * scale)
        pieces.append(Piece(begun=begun, ended=ended, left=left, right=right, shortened=shortened))
        left = right
    return tuple(pieces)

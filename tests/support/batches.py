"""Batches of log lines, and a sink that remembers them."""

from __future__ import annotations

from rayfleet.cluster.heads import Target
from rayfleet.log.output.sink import Batch

DATED = b"2026-11-20 08:16:46,816\tINFO monitor.py:1 -- started\n"
CPP = b"[2026-11-20 08:16:47,500 W 24232 24232] (raylet) main.cc:283: slow\n"
TRACE = b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bad\n'
MOMENT = 1795162606.816
"""The time of DATED, when the node's clock is at UTC."""


def at(seconds: float, text: str = "", level: str = "INFO") -> bytes:
    """A line that was logged ``seconds`` after 08:16:40."""
    second, milli = divmod(round(seconds * 1000), 1000)
    return f"2026-11-20 08:16:{40 + second},{milli:03d}\t{level} a.py:1 -- {text}\n".encode()


def batch(
    lines: bytes,
    cluster: str = "eu",
    file: str = "monitor.log",
    *,
    node: str = "head",
    start: int = 0,
    end: int | None = None,
    utc_offset: int = 0,
    cut: bool = False,
) -> Batch:
    """A batch of ``lines``; without ``end``, nothing was filtered out."""
    return Batch(
        cluster=cluster,
        region="europe-west4",
        node=node,
        file=file,
        role="autoscaler",
        lines=lines,
        start=start,
        end=start + len(lines) if end is None else end,
        utc_offset=utc_offset,
        cut=cut,
    )


def head_of(cluster: str) -> Target:
    """The head of ``cluster``."""
    return Target(cluster=cluster, region="", node="head", name=cluster)


class Kept:
    """A sink that remembers what it was told."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.told: list[str] = []

    @property
    def lines(self) -> bytes:
        """All lines that came."""
        return b"".join(batch.lines for batch in self.batches)

    def write(self, batch: Batch) -> None:
        """Keep ``batch``."""
        self.batches.append(batch)

    def idle(self) -> None:
        """Remember it."""
        self.told.append("idle")

    def joined(self, target: Target) -> None:
        """Remember it."""
        self.told.append(f"joined {target.name}")

    def caught_up(self, target: Target) -> None:
        """Remember it."""
        self.told.append(f"caught up {target.name}")

    def ended(self, target: Target) -> None:
        """Remember it."""
        self.told.append(f"ended {target.name}")

    def close(self) -> None:
        """Remember it."""
        self.told.append("close")

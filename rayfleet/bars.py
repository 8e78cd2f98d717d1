"""How far each region is: bars on a terminal, a line per event elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rayfleet.console import Console

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.progress import Progress, TaskID
    from rich.table import Table

REFRESH_PER_SECOND = 8
# Where nothing moves: how long a region that is at work may say nothing, in seconds.
QUIET_SECONDS = 15.0
# Columns of a terminal from which there is room for the rate, and for the words.
WIDTH_FOR_RATE = 70
WIDTH_FOR_WORDS = 100
FAILED = "failed"


@dataclass
class Tally:
    """How far one region is; safe to use from several threads. All sizes are bytes.

    ``missing`` is what has to be sent of the blobs looked for so far, ``moved`` what of it is
    under way or through, ``sent`` what is through. ``present`` was there before.
    """

    region: str
    tell: Callable[[str], None] = lambda text: None
    clock: Callable[[], float] = time.monotonic
    blobs: int = 0
    blobs_sent: int = 0
    blobs_present: int = 0
    missing: int = 0
    moved: int = 0
    sent: int = 0
    present: int = 0
    state: str = ""
    _told: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self._told = self.clock()

    def expect(self) -> None:
        """One more blob is looked for."""
        with self._lock:
            self.blobs += 1

    def found(self, size: int) -> None:
        """A blob was there."""
        with self._lock:
            self.blobs_present += 1
            self.present += size

    def all_found(self, blobs: int, size: int) -> None:
        """All the blobs were there, ``size`` bytes together; none had to be looked for."""
        with self._lock:
            self.blobs = self.blobs_present = blobs
            self.present = size

    def recount(self) -> None:
        """All blobs are looked for again."""
        with self._lock:
            self.blobs = self.blobs_sent
            self.blobs_present = self.present = 0

    def lacks(self, size: int) -> None:
        """A blob has to be sent."""
        with self._lock:
            self.missing += size

    def move(self, count: int) -> None:
        """``count`` bytes went out; negative when an upload starts again."""
        with self._lock:
            self.moved += count

    def finish(self, size: int) -> None:
        """A blob was sent."""
        with self._lock:
            self.blobs_sent += 1
            self.sent += size
            overdue = self.clock() - self._told > QUIET_SECONDS
        if overdue:
            self.announce()

    def announce(self) -> None:
        """Tell how far the region is."""
        self._told = self.clock()
        self.tell(f"{self.region}: {self.text()}")

    def set_state(self, state: str) -> None:
        """What the region does now, for its bar."""
        self.state = state

    def text(self) -> str:
        """How far it is, in words."""
        with self._lock:
            if self.blobs and self.blobs == self.blobs_present:
                return f"all {self.blobs} blobs were there"
            count = f"{self.blobs_sent} of {self.blobs} blobs sent, {readable(self.sent)}"
            return count + (f"; {self.blobs_present} were there" if self.blobs_present else "")


@dataclass
class Layers:
    """How many raw bytes of an image's layers have been compressed so far."""

    count: int = 0
    done: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, count: int) -> None:
        """``count`` bytes more."""
        with self._lock:
            self.count += count


@contextmanager
def bars(console: Console, tallies: Sequence[Tally], layers: Layers) -> Iterator[None]:
    """Show the tallies while the block runs, if the console has a terminal."""
    with console.stage() as terminal:
        if terminal is None:
            yield
            return
        from rich.live import Live

        display = _Display(terminal, tallies, layers)
        with Live(
            get_renderable=display.render,
            console=terminal,
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
        ):
            yield


class _Display:
    """One bar per region, and one line for the layers that are being compressed."""

    def __init__(self, terminal: RichConsole, tallies: Sequence[Tally], layers: Layers) -> None:
        self._tallies = tallies
        self._layers = layers
        self._progress = _progress(terminal)
        self._tasks: dict[str, TaskID] = {
            tally.region: self._progress.add_task(tally.region, total=None, words="")
            for tally in tallies
        }
        self._layers_task = self._progress.add_task("compress", total=None, words="")

    def render(self) -> Table:
        """The bars as they are now."""
        for tally in self._tallies:
            self._progress.update(
                self._tasks[tally.region],
                total=tally.missing if tally.blobs else None,
                completed=tally.moved,
                description=f"{tally.region} {FAILED}" if tally.state == FAILED else tally.region,
                words=_words(tally),
            )
        self._progress.update(
            self._layers_task,
            completed=self._layers.count,
            visible=self._layers.count > 0 and not self._layers.done,
        )
        return self._progress.make_tasks_table(self._progress.tasks)


def _progress(terminal: RichConsole) -> Progress:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TransferSpeedColumn,
    )

    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=max(5, min(40, terminal.width - 60))),
        DownloadColumn(),
    ]
    if terminal.width >= WIDTH_FOR_RATE:
        columns.append(TransferSpeedColumn())
    if terminal.width >= WIDTH_FOR_WORDS:
        columns.append(TextColumn("{task.fields[words]}", markup=False))
    return Progress(*columns, console=terminal, auto_refresh=False)


def _words(tally: Tally) -> str:
    there = f"{readable(tally.present)} were there" if tally.present else ""
    state = "" if tally.state == FAILED else tally.state
    return ", ".join(part for part in (state, there) if part)


def readable(count: int) -> str:
    """A number of bytes for people: ``254 MB``, ``5.2 MB``, ``12 kB``."""
    if count >= 10_000_000:
        return f"{count / 1e6:.0f} MB"
    if count >= 100_000:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.0f} kB" if count >= 1000 else f"{count} B"

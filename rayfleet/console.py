"""What the operator sees: data on stdout, narration on stderr, bars only on a terminal.

``NO_COLOR``, ``FORCE_COLOR``, ``TERM=dumb`` and pipes are honoured (by rich). Nothing that is said
here steers a terminal, whoever's words are in it: see :mod:`rayfleet.harmless`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from rayfleet.errors import Declined
from rayfleet.harmless import may_be_shown, printable, writable

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import Group
    from rich.status import Status

Line: TypeAlias = Sequence[tuple[str, str]]
"""One line of a moving display: pieces of text, each with a style of rich, or none."""


@dataclass
class Console:
    """Where a task speaks. One per run; safe to use from several threads.

    ``phases`` keeps (name, seconds) of every finished phase, in order.
    """

    out: IO[str] = field(default_factory=lambda: sys.stdout)
    err: IO[str] = field(default_factory=lambda: sys.stderr)
    phases: list[tuple[str, float]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _status: Status | None = field(default=None, repr=False)
    _prefix: list[str] = field(default_factory=list, repr=False)
    _lent: RichConsole | None = field(default=None, repr=False)

    @property
    def interactive(self) -> bool:
        """True when a person can be asked: stdin and the narration are a terminal."""
        return sys.stdin is not None and sys.stdin.isatty() and self.err.isatty()

    def say(self, text: str) -> None:
        """Narrate one line on stderr."""
        text = printable(text)
        with self._lock:
            terminal = self._lent or (self._status and self._status.console)
            if terminal:
                terminal.print(text, markup=False, highlight=False, soft_wrap=True)
                return
            self.err.write(text + "\n")
            self.err.flush()

    def event(self, text: str) -> None:
        """Narrate a step inside a phase: the moving line on a terminal, a line elsewhere."""
        text = printable(text)
        with self._lock:
            if self._status is not None:
                room = self._status.console.width - len(self._prefix[-1]) - 6
                self._status.update(f"{_escaped(self._prefix[-1])}: {_escaped(text[:room])}")
                return
            self.say(f"  {text}")

    def detail(self, text: str) -> None:
        """Narrate a small step: on a terminal's moving line only, nothing elsewhere."""
        if self._status is not None:
            self.event(text)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Narrate ``name`` while the block runs and its time in seconds when it ends."""
        name = printable(name)
        start = time.monotonic()
        self._enter(name)
        outcome = "failed"
        try:
            yield
            outcome = "done"
        finally:
            seconds = time.monotonic() - start
            self._leave()
            self.phases.append((name, seconds))
            self.say(f"{name}: {outcome} in {seconds:.1f} s")

    def data(self, text: str) -> None:
        """Print data, a line or several, on stdout: in a pipe as it is, so that a log can be kept,
        and harmless where a terminal is or may be the end of it."""
        text = printable(text) if may_be_shown(self.out, os.environ) else writable(text)
        with self._lock:
            self.out.write(text + "\n")
            self.out.flush()

    def json(self, value: Any) -> None:
        """Print one JSON document on stdout."""
        self.data(json.dumps(value, indent=2, sort_keys=False, default=str))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table on stdout: as wide as it needs in a pipe, folded on a terminal."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(*headers, box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for row in rows:
            table.add_row(*(_escaped(printable(str(cell))) for cell in row))
        console = self._rich(self.out)
        if not self.out.isatty():
            unbounded = console.options.update(width=10_000)
            console.width = console.measure(table, options=unbounded).maximum
        with self._lock:
            console.print(table)
            self.out.flush()

    def confirm(self, question: str, *, yes: bool, refused_next: str) -> None:
        """Ask before something destructive; ``yes`` answers in advance.

        Raises:
            Declined: the answer was not yes, or nobody is there to ask.
        """
        if yes:
            return
        if not self.interactive:
            raise Declined(question, why="nobody to ask here", next_step=refused_next)
        with self._lock, self.paused():
            self.err.write(f"{printable(question)} [y/N] ")
            self.err.flush()
            answer = sys.stdin.readline().strip().lower()
        if answer not in {"y", "yes"}:
            raise Declined(question, why="declined", next_step=refused_next)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the moving line of a phase still while the block uses the terminal."""
        status = self._status
        if status is not None:
            status.stop()
        try:
            yield
        finally:
            if status is not None:
                status.start()

    @contextmanager
    def stage(self) -> Iterator[RichConsole | None]:
        """Lend the terminal of a phase to another moving display; None where nothing may move.

        Whatever is said meanwhile goes above that display.
        """
        status = self._status
        if status is None or not status.console.is_interactive:
            yield None
            return
        with self.paused():
            yield status.console

    @contextmanager
    def live(
        self, frame: Callable[[int, int], Sequence[Line]], *, per_second: float
    ) -> Iterator[bool]:
        """Show the lines of ``frame(width, height)`` below all that is said in the block.

        The last frame stays. Gives False where nothing may move, and shows nothing there. Not
        to be used within a phase.
        """
        terminal = self._rich(self.err) if self.err.isatty() else None
        if terminal is None or not terminal.is_interactive or self._status is not None:
            yield False
            return
        from rich.live import Live

        with Live(
            get_renderable=lambda: _group(frame(terminal.width, terminal.height)),
            console=terminal,
            refresh_per_second=per_second,
            redirect_stdout=self.out.isatty(),
        ):
            self._lent = terminal
            try:
                yield True
            finally:
                self._lent = None

    def phase_times(self) -> Mapping[str, float]:
        """Seconds of each finished phase, rounded to 0.1."""
        return {name: round(seconds, 1) for name, seconds in self.phases}

    def _enter(self, name: str) -> None:
        with self._lock:
            self._prefix.append(name)
            if self.err.isatty() and self._status is None and self._lent is None:
                self._status = self._rich(self.err).status(_escaped(name))
                self._status.start()
            else:
                self.say(f"{name}: started")

    def _leave(self) -> None:
        with self._lock:
            self._prefix.pop()
            if self._status is not None and not self._prefix:
                self._status.stop()
                self._status = None

    def _rich(self, stream: IO[str]) -> RichConsole:
        from rich.console import Console as RichConsole

        class Honest(RichConsole):
            def on_broken_pipe(self) -> None:
                """Rich would end the program with 1, and lead stdout astray, whatever broke."""
                raise BrokenPipeError

        return Honest(file=stream, highlight=False)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _group(lines: Sequence[Line]) -> Group:
    from rich.console import Group
    from rich.text import Text

    shown = ([(printable(text), style) for text, style in line] for line in lines)
    return Group(*(Text.assemble(*line, no_wrap=True, overflow="ellipsis") for line in shown))

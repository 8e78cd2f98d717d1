"""Follow the same logs on many nodes at once.

One thread per node reads it over one connection and puts whole lines into one bounded outbox;
the caller's thread writes them. A writer that stalls fills the outbox, the readers then stop
reading, SSH's window fills, and the program on the node waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rayfleet.cluster.heads import Target
from rayfleet.errors import PartialFailure, RayfleetError, Unreachable, UsageError
from rayfleet.log.events import CaughtUp, Ended, Event, Lines, Notice, Reached, Trouble
from rayfleet.log.outbox import Outbox
from rayfleet.log.output.sink import Enough, Sink
from rayfleet.log.source import (
    Backoff,
    Connect,
    NoSuchLog,
    Request,
    Source,
    Start,
    boot_time,
    list_logs,
)

if TYPE_CHECKING:
    from rayfleet.cluster.channel import Stream
    from rayfleet.cluster.head import Head

MAX_NODES = 256
IDLE_SECONDS = 0.1
JOIN_SECONDS = 2.0
DROPPED_SECONDS = 2.0  # between two notices of what was dropped


def start_program(head: Head, request: Request) -> Stream:
    """Start the program that reads logs on the node ``head``."""
    from rayfleet.log.remote import program

    return head.stream(program.command(), given=program.payload(request))


@dataclass(kw_only=True)
class Follower:
    """Reads the logs of ``targets`` and writes them to ``sink``.

    ``request`` is what each node is asked for, but where to go on. ``connect`` opens a node, and
    is asked again after every lost connection, because the node may have been replaced. ``say``
    narrates. With ``drop``, lines that come faster than they are written are dropped, and
    counted. ``now`` is a clock in seconds that goes on while this machine sleeps. ``sink`` and
    ``say`` are used in the thread of :meth:`run` only.
    """

    targets: Sequence[Target]
    request: Request
    connect: Connect
    sink: Sink
    say: Callable[[str], None]
    drop: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    start: Start = start_program
    now: Callable[[], float] = boot_time

    def run(self) -> None:
        """Write until the files end or, when following, until Ctrl-C or the sink has enough.

        When following, a node that is lost, or cannot be reached at first, is tried again for
        ever, unless none could be reached.

        Raises:
            UsageError: too many nodes.
            Unreachable: no node could be read; the error itself when there is only one.
            PartialFailure: some nodes could not be read to the end.
            BrokenPipeError: nobody reads what is written.
            RayfleetError: what the sink raises.
        """
        if len(self.targets) > MAX_NODES:
            raise UsageError(
                f"{len(self.targets)} nodes are too many at once",
                why=f"the limit is {MAX_NODES}",
                next_step="choose some with --cluster",
            )
        outbox = Outbox[Event](self.targets, drop=self.drop)
        progress = _Progress(self.targets)
        with self._sources(outbox):
            try:
                self._write_all(outbox, progress)
            except Enough:
                self.sink.close()
                return
            except RayfleetError:
                self.sink.close()
                raise
            except KeyboardInterrupt:
                # For a follower this is the normal end.
                if not self.request["follow"]:
                    raise
                self.sink.close()
                return
            self.sink.close()
        progress.judge(self.say)

    @contextmanager
    def _sources(self, outbox: Outbox[Event]) -> Iterator[None]:
        sources = [
            Source(
                target,
                self.request,
                connect=self.connect,
                start=self.start,
                outbox=outbox,
                backoff=self.backoff,
                now=self.now,
            )
            for target in self.targets
        ]
        try:
            for source in sources:
                source.start()
            yield
        finally:
            outbox.close()
            for source in sources:
                source.stop()
            deadline = time.monotonic() + JOIN_SECONDS
            for source in sources:
                source.join(max(deadline - time.monotonic(), 0))

    def _write_all(self, outbox: Outbox[Event], progress: _Progress) -> None:
        tell_at = time.monotonic() + DROPPED_SECONDS
        while not progress.over:
            taken = outbox.take(IDLE_SECONDS)
            if taken is None:
                self.sink.idle()
            else:
                self._handle(*taken, progress)
            if self.drop and time.monotonic() >= tell_at:
                self._tell_dropped(outbox)
                tell_at = time.monotonic() + DROPPED_SECONDS
        self._tell_dropped(outbox)

    def _handle(self, target: Target, event: Event, progress: _Progress) -> None:
        match event:
            case Lines(batch):
                self.sink.write(batch)
            case Notice(text):
                self.say(text)
            case Reached():
                progress.reached(target)
            case CaughtUp():
                self.sink.caught_up(target)
            case Trouble(error):
                progress.failed(target, error)
                if len(self.targets) > 1:
                    self.say(error.text())
                # Nobody may wait for its first lines.
                self.sink.caught_up(target)
            case Ended(error):
                if error is not None and not isinstance(error, RayfleetError):
                    raise error
                told = progress.ended(target, error)
                told = told or isinstance(error, NoSuchLog)  # which is told once, at the end
                if error is not None and len(self.targets) > 1 and not told:
                    self.say(error.text())
                self.sink.ended(target)

    def _tell_dropped(self, outbox: Outbox[Event]) -> None:
        for target, lines in outbox.dropped().items():
            self.say(f"{target.name}: {lines} lines were dropped, they came faster than we write")


class _Progress:
    """How the nodes stand: which were reached, which have ended, which failed and why."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self._left = set(targets)
        self._failures: dict[Target, RayfleetError] = {}
        self._any_reached = False

    @property
    def over(self) -> bool:
        """Whether nothing more comes: all have ended, or none could be reached."""
        return not self._left or (
            not self._any_reached and len(self._failures) == len(self._targets)
        )

    def reached(self, target: Target) -> None:
        """The program runs on ``target``."""
        self._any_reached = True
        self._failures.pop(target, None)

    def failed(self, target: Target, error: RayfleetError) -> None:
        """``target`` could not be reached, and is tried again."""
        self._failures[target] = error

    def ended(self, target: Target, error: RayfleetError | None) -> bool:
        """Nothing more comes of ``target``; return whether that error was known already."""
        self._left.discard(target)
        known = self._failures.pop(target, None)
        if error is None:
            return False
        self._failures[target] = error
        return known is not None and known.text() == error.text()

    def judge(self, say: Callable[[str], None]) -> None:
        """Raise what the run is to end with, if anything failed.

        That a node has no such log is a failure only when none has: a job is on some nodes.
        """
        if len(self._targets) == 1:
            for error in self._failures.values():
                raise error
        lacking = {
            target for target, error in self._failures.items() if isinstance(error, NoSuchLog)
        }
        if len(lacking) == len(self._targets):
            raise NoSuchLog(
                f"none of {len(lacking)} nodes has such a log",
                next_step=list_logs(self._targets[0].cluster),
            )
        if lacking:
            say(f"no such log on {_names(lacking)}")
            self._failures = {
                target: error for target, error in self._failures.items() if target not in lacking
            }
        self._judge_failures()

    def _judge_failures(self) -> None:
        if not self._failures:
            return
        names = _names(self._failures)
        clusters = sorted({target.cluster for target in self._failures})
        if len(self._failures) == len(self._targets):
            raise Unreachable(
                f"no node could be read: {names}",
                why="the causes are above",
                next_step="invoke status",
            )
        raise PartialFailure(
            f"{len(self._failures)} of {len(self._targets)} nodes could not be read: {names}",
            why="the causes are above",
            next_step="invoke status " + " ".join(f"--cluster {name}" for name in clusters),
        )


def _names(targets: Iterable[Target]) -> str:
    return ", ".join(sorted(target.name for target in targets))

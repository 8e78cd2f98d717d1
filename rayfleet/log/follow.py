"""Follow the same logs on many nodes at once.

One thread per node reads it over one connection and puts whole lines into one bounded outbox;
the caller's thread writes them. A writer that stalls fills the outbox, the readers then stop
reading, SSH's window fills, and the program on the node waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rayfleet.cluster.heads import WORKERS, Target
from rayfleet.errors import RayfleetError, UsageError
from rayfleet.log.cursors import Cursors
from rayfleet.log.events import CaughtUp, Ended, Event, Lines, Notice, Reached, Trouble
from rayfleet.log.outbox import Outbox
from rayfleet.log.output.sink import Enough, Sink
from rayfleet.log.progress import Progress
from rayfleet.log.source import Backoff, Connect, NoSuchLog, Request, Source, Start, boot_time

if TYPE_CHECKING:
    from rayfleet.cluster.channel import Stream
    from rayfleet.cluster.head import Head
    from rayfleet.log.newcomers import Newcomers

MAX_NODES = 256
IDLE_SECONDS = 0.1
JOIN_SECONDS = 2.0
DROPPED_SECONDS = 2.0  # between two notices of what was dropped
BOOT_SECONDS = 120.0
"""How long a worker that joined may be out of reach before that is told."""
EVERYTHING = -1
GONE_KEPT = 1000
"""Nodes that went away whose cursors are kept, should they come back; the oldest are forgotten."""


def start_program(head: Head, request: Request) -> Stream:
    """Start the program that reads logs on the node ``head``."""
    from rayfleet.log.remote import program

    given = program.payload(request)
    return head.stream(program.command(head.address.container, len(given)), given=given)


@dataclass(kw_only=True)
class Follower:
    """Reads the logs of ``targets`` and writes them to ``sink``, once.

    ``request`` is what each node is asked for, but where to go on. ``connect`` opens a node, and
    is asked again after every lost connection, because the node may have been replaced.
    ``newcomers`` tells who is there while it follows: a node that joined meanwhile is read too,
    from its first line on. ``say`` narrates. With ``drop``, lines that come faster than they are
    written are dropped, and counted. ``now`` is a clock in seconds that goes on while this machine
    sleeps. ``sink`` and ``say`` are used in the thread of :meth:`run` only.
    """

    targets: Sequence[Target]
    request: Request
    connect: Connect
    sink: Sink
    say: Callable[[str], None]
    newcomers: Newcomers | None = None
    drop: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    start: Start = start_program
    now: Callable[[], float] = boot_time

    def __post_init__(self) -> None:
        self._outbox = Outbox[Event](self.targets, drop=self.drop)
        self._progress = Progress(self.targets, growing=self.newcomers is not None)
        self._sources: dict[Target, Source] = {}
        self._gone: dict[Target, Cursors] = {}
        # Whose workers were there before us, although their cloud has not told us yet.
        self._unlisted = {each.cluster for each in self.targets if each.node == WORKERS}
        self._left_out: set[Target] = set()

    def run(self) -> None:
        """Write until the files end or, when following, until Ctrl-C or the sink has enough.

        When following, a node that is lost, or cannot be reached at first, is tried again until
        its cloud has it no more, unless none could be reached.

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
        with self._reading():
            try:
                self._write_all()
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
        self._progress.judge(self.say)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            for target in self.targets:
                self._read(target, self.request)
            if self.newcomers is not None:
                self.newcomers.start()
            yield
        finally:
            if self.newcomers is not None:
                self.newcomers.stop()
            self._outbox.close()
            for source in self._sources.values():
                source.stop()
            deadline = time.monotonic() + JOIN_SECONDS
            for source in self._sources.values():
                source.join(max(deadline - time.monotonic(), 0))

    def _read(self, target: Target, request: Request, *, patience: float = 0.0) -> None:
        source = self._sources[target] = Source(
            target,
            request,
            connect=self.connect,
            start=self.start,
            outbox=self._outbox,
            cursors=self._gone.pop(target, Cursors()),
            backoff=self.backoff,
            patience=patience,
            now=self.now,
        )
        source.start()

    def _write_all(self) -> None:
        tell_at = time.monotonic() + DROPPED_SECONDS
        while not self._is_over():
            self._welcome()
            taken = self._outbox.take(IDLE_SECONDS)
            if taken is None:
                self.sink.idle()
            else:
                self._handle(*taken)
            if self.drop and time.monotonic() >= tell_at:
                self._tell_dropped()
                tell_at = time.monotonic() + DROPPED_SECONDS
        self._tell_dropped()

    def _is_over(self) -> bool:
        """Whether nothing more comes."""
        if self._progress.hopeless:
            return True
        return not self._progress.left and not self._expects_more()

    def _expects_more(self) -> bool:
        until = self.request.get("until")
        return self.newcomers is not None and (until is None or time.time() < until)

    def _welcome(self) -> None:
        """Read the nodes that have joined as well."""
        listed = self.newcomers.listed() if self.newcomers is not None else None
        if listed is None:
            return
        silent = {target.cluster for target in listed if target.node == WORKERS}
        for target in listed:
            if target.node != WORKERS and not self._progress.knows(target):
                self._join(target)
        self._unlisted &= silent

    def _join(self, target: Target) -> None:
        if self._progress.left >= MAX_NODES:
            if target not in self._left_out:
                self._left_out.add(target)
                self.say(f"{target.name}: joined, but is not read: {MAX_NODES} nodes are the limit")
            return
        self._outbox.add(target)
        self._progress.joined(target)
        self.sink.joined(target)
        if target.cluster in self._unlisted:
            self._read(target, self.request)
            return
        known = self._gone.get(target)
        self.say(f"{target.name}: {'is listed again' if known and known.begun else 'joined'}")
        self._read(target, {**self.request, "tail": EVERYTHING}, patience=BOOT_SECONDS)

    def _handle(self, target: Target, event: Event) -> None:
        match event:
            case Lines(batch):
                self.sink.write(batch)
            case Notice(text):
                self.say(text)
            case Reached():
                self._progress.reached(target)
            case CaughtUp():
                self.sink.caught_up(target)
            case Trouble(error):
                self._progress.failed(target, error)
                if self._progress.several:
                    self.say(error.text())
                # Nobody may wait for its first lines.
                self.sink.caught_up(target)
            case Ended(error):
                self._end(target, error)

    def _end(self, target: Target, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, RayfleetError):
            raise error
        told = self._progress.ended(target, error)
        told = told or isinstance(error, NoSuchLog)  # which is told once, at the end
        if error is not None and self._progress.several and not told:
            self.say(error.text())
        self._tell_dropped()
        self._outbox.remove(target)
        # This was its last word; at an exit no thread may still be clearing up.
        source = self._sources.pop(target)
        source.join(JOIN_SECONDS)
        self._gone[target] = source.cursors
        if len(self._gone) > GONE_KEPT:
            del self._gone[next(iter(self._gone))]
        self.sink.ended(target)

    def _tell_dropped(self) -> None:
        for target, lines in self._outbox.dropped().items():
            self.say(f"{target.name}: {lines} lines were dropped, they came faster than we write")

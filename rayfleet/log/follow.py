"""Follow the same logs on many heads at once.

One thread per head reads all its files over one connection and puts whole lines into one
bounded queue; the caller's thread writes them. A writer that stalls fills the queue, the
readers then stop reading, SSH's window fills, and the remote ``tail`` waits.
"""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rayfleet.cluster.channel import Stream, merged
from rayfleet.cluster.head import Head
from rayfleet.errors import PartialFailure, RayfleetError, ToolFailed, Unreachable, UsageError
from rayfleet.log.lines import LineSplitter
from rayfleet.log.output import Batch, Sink
from rayfleet.log.sources import Reading

MAX_HEADS = 64
QUEUED_BATCHES = 64
WAKE_SECONDS = 0.5
JOIN_SECONDS = 2.0

Connect = Callable[[str], Head]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before the next attempt to connect: seconds, doubling, with jitter."""

    first: float = 1.0
    longest: float = 30.0

    def delays(self) -> Iterator[float]:
        """The waits of one outage, without end."""
        delay = self.first
        while True:
            yield delay * random.uniform(0.75, 1.25)  # noqa: S311 (jitter, no secret)
            delay = min(delay * 2, self.longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The reader of ``cluster`` is done: well, or with ``error``."""

    cluster: str
    error: BaseException | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Reads the logs of ``clusters`` and writes them to ``sink``.

    ``connect`` opens the head of a cluster, and is asked again after every lost connection,
    because the head may have been replaced. ``say`` narrates. ``nobody_reads`` tells that it
    is time to stop although no line came.
    """

    clusters: Sequence[str]
    reading: Reading
    connect: Connect
    sink: Sink
    say: Callable[[str], None]
    keep: Callable[[bytes], bytes] | None = None
    nobody_reads: Callable[[], bool] = lambda: False
    backoff: Backoff = Backoff()

    def run(self) -> None:
        """Write until the files end or, when following, until Ctrl-C or nobody reads.

        Raises:
            UsageError: too many clusters.
            Unreachable: no head could be reached.
            PartialFailure: some heads could not be reached, or were lost while not following.
            BrokenPipeError: nobody reads what is written.
        """
        self._check()
        outbox: queue.Queue[Batch | Ended] = queue.Queue(maxsize=QUEUED_BATCHES)
        stopped = threading.Event()
        readers = [_Reader(name, self, outbox, stopped) for name in self.clusters]
        for reader in readers:
            reader.start()
        try:
            self._judge(self._write_all(outbox))
        except KeyboardInterrupt:
            # For a follower this is the normal end.
            if not self.reading.follow:
                raise
        finally:
            stopped.set()
            for reader in readers:
                reader.close()

    def _check(self) -> None:
        if len(self.clusters) > MAX_HEADS:
            raise UsageError(
                f"{len(self.clusters)} clusters are too many at once",
                why=f"the limit is {MAX_HEADS}",
                next_step="choose some with --cluster",
            )

    def _write_all(self, outbox: queue.Queue[Batch | Ended]) -> dict[str, RayfleetError]:
        failures: dict[str, RayfleetError] = {}
        left = len(self.clusters)
        while left:
            try:
                item = outbox.get(timeout=WAKE_SECONDS)
            except queue.Empty:
                if self.nobody_reads():
                    raise BrokenPipeError from None
                continue
            if isinstance(item, Batch):
                self._write(item)
                continue
            left -= 1
            if isinstance(item.error, RayfleetError):
                failures[item.cluster] = item.error
                if len(self.clusters) > 1:
                    self.say(item.error.text())
            elif item.error is not None:
                raise item.error
        return failures

    def _write(self, batch: Batch) -> None:
        lines = self.keep(batch.lines) if self.keep else batch.lines
        if lines:
            self.sink.write(Batch(cluster=batch.cluster, file=batch.file, lines=lines))

    def _judge(self, failures: dict[str, RayfleetError]) -> None:
        if not failures:
            return
        if len(self.clusters) == 1:
            raise next(iter(failures.values()))
        names = ", ".join(sorted(failures))
        if len(failures) == len(self.clusters):
            raise Unreachable(
                f"no head could be read: {names}",
                why="the causes are above",
                next_step="invoke status",
            )
        raise PartialFailure(
            f"{len(failures)} of {len(self.clusters)} heads could not be read: {names}",
            why="the causes are above",
            next_step="invoke status " + " ".join(f"--cluster {name}" for name in sorted(failures)),
        )


class _Reader:
    """Reads one head in a thread of its own."""

    def __init__(
        self,
        cluster: str,
        follower: Follower,
        outbox: queue.Queue[Batch | Ended],
        stopped: threading.Event,
    ) -> None:
        self._cluster = cluster
        self._follower = follower
        self._outbox = outbox
        self._stopped = stopped
        self._head: Head | None = None
        self._reached = False
        self._thread = threading.Thread(target=self._run, name=f"log-{cluster}", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def close(self) -> None:
        """End the connection and wait a little for the thread; ``stopped`` is set already."""
        if self._head is not None:
            self._head.close()
        self._thread.join(timeout=JOIN_SECONDS)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._read_and_return()
        except BaseException as caught:
            error = caught
        self._put(Ended(cluster=self._cluster, error=error))

    def _read_and_return(self) -> None:
        """Read to the end; when following, come back after every loss until stopped."""
        reading = self._follower.reading
        tail, said = reading.tail, ""
        delays = self._follower.backoff.delays()
        while not self._stopped.is_set():
            try:
                self._read_once(tail, again=bool(said))
                return
            except RayfleetError as error:
                if self._stopped.is_set():
                    return
                if not (self._reached and reading.follow):
                    raise
                problem = error
            if self._head is not None:
                self._head, tail, said = None, 0, ""
                delays = self._follower.backoff.delays()
            if problem.text() != said:
                said = problem.text()
                cause = f": {problem.why}" if problem.why else ""
                self._follower.say(f"{problem.what}{cause}; trying to come back")
            self._stopped.wait(next(delays))

    def _read_once(self, tail: int, *, again: bool) -> None:
        with self._follower.connect(self._cluster) as head:
            self._head, self._reached = head, True
            if self._stopped.is_set():
                return
            if again:
                self._follower.say(
                    f"{self._cluster}: back; what was written in between is not shown"
                )
            commands = self._follower.reading.commands(tail=tail)
            streams = {head.stream(command): name for name, command in commands.items()}
            self._pump(streams)

    def _pump(self, streams: dict[Stream, str]) -> None:
        splitters = {(stream, kind): LineSplitter() for stream in streams for kind in (False, True)}
        for stream, is_error, chunk in merged(list(streams)):
            splitter = splitters[stream, is_error]
            lines = splitter.feed(chunk) if chunk else splitter.rest()
            if is_error:
                for line in lines.decode(errors="replace").splitlines():
                    self._follower.say(f"{self._cluster}: {line}")
            elif lines:
                self._put(Batch(cluster=self._cluster, file=streams[stream], lines=lines))
            if not chunk and self._follower.reading.follow:
                raise Unreachable(
                    f"{self._cluster}: the reader of {streams[stream]} ended on the head"
                )
        if all(stream.code for stream in streams):
            raise ToolFailed(
                f"{self._cluster}: no logs of the {self._follower.reading.role} on the head",
                why="Ray has not been started there, or its files cannot be read",
                next_step=f"invoke status --cluster {self._cluster}",
            )

    def _put(self, item: Batch | Ended) -> None:
        while not self._stopped.is_set():
            try:
                self._outbox.put(item, timeout=WAKE_SECONDS)
            except queue.Full:
                continue
            return

"""One node: a program there reads its files, and is started again where it was when it is lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rayfleet.cluster.heads import NodeGone, Target
from rayfleet.errors import RayfleetError, ToolFailed, Unreachable, UsageError
from rayfleet.log import frames
from rayfleet.log.cursors import Cursors
from rayfleet.log.events import CaughtUp, Ended, Event, Lines, Notice, Reached, Trouble
from rayfleet.log.frames import FrameReader
from rayfleet.log.outbox import Closed, Outbox
from rayfleet.log.output.sink import Batch

if TYPE_CHECKING:
    from rayfleet.cluster.channel import Stream
    from rayfleet.cluster.head import Head

SILENCE_SECONDS = 20.0
"""The program writes at least every 5 s, so a node that is silent for this long is lost."""

START_SECONDS = 60.0
"""How long it may take to start: a Docker engine is asked first, on a head that may be busy."""

WAKE_SECONDS = 1.0
GRACE_SECONDS = 5.0
RETRIES = 3
"""How often a lost connection is taken up again without news, when not following."""

Request = Mapping[str, Any]
Connect = Callable[[Target], "Head"]
Start = Callable[["Head", Request], "Stream"]


def boot_time() -> float:
    """Seconds that also pass while this machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class NoSuchLog(ToolFailed):
    """A node has none of the files that were asked for."""


def list_logs(cluster: str) -> str:
    """The command that shows which logs there are."""
    return f"invoke exec --cluster {cluster} --container -- ls /tmp/ray/session_latest/logs"


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


class Source:
    """Reads one node in a thread of its own, and puts what comes into the outbox.

    ``connect`` is asked again after every loss, because the node may have been replaced;
    ``start`` starts the program with a request. ``cursors`` are kept up to date: another source
    that gets them goes on where this one ended. For the first ``patience`` seconds it is not told
    that the node cannot be read yet.
    """

    def __init__(
        self,
        target: Target,
        request: Request,
        *,
        connect: Connect,
        start: Start,
        outbox: Outbox[Event],
        cursors: Cursors,
        backoff: Backoff,
        patience: float,
        now: Callable[[], float],
    ) -> None:
        self._target = target
        self._request = request
        self._connect = connect
        self._start = start
        self._outbox = outbox
        self._backoff = backoff
        self._now = now
        self._patient_until = now() + patience
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self.cursors = cursors
        self._reached = self._caught_up = self._reads = self._replaced = False
        self._lost = ""
        self._utc_offset = 0
        self._retries = 0
        self._thread = threading.Thread(target=self._run, name=f"log-{target.name}", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end; the connection it closes itself, because that takes a while."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()

    def join(self, timeout: float) -> None:
        """Wait ``timeout`` seconds for the thread; one that is connecting may take longer."""
        self._thread.join(timeout)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._read_and_return()
        except Closed:
            return
        except BaseException as caught:
            error = caught
        with suppress(Closed):
            self._put(Ended(error))

    def _read_and_return(self) -> None:
        """Read to the end; come back after every loss."""
        delays = self._backoff.delays()
        while not self._stopped.is_set():
            self._reads = False
            try:
                self._read_once()
                return
            except NodeGone as error:
                if not self._request["follow"]:
                    raise
                # Workers come and go; the connection to one that goes is lost first.
                self._put(Notice(error.what))
                return
            except RayfleetError as error:
                if self._stopped.is_set():
                    return
                if not self._is_worth_another_try(error):
                    raise
                problem = error
            if self._reads:
                delays = self._backoff.delays()
            self._tell(problem)
            self._wait(next(delays))

    def _is_worth_another_try(self, error: RayfleetError) -> bool:
        if isinstance(error, UsageError):
            return False
        if not self._request["follow"]:
            self._retries += 1
            lost = self._reached and isinstance(error, Unreachable)
            return lost and self._retries <= RETRIES
        until = self._request.get("until")
        return until is None or time.time() < until + GRACE_SECONDS

    def _tell(self, problem: RayfleetError) -> None:
        if not self._reached and self._now() < self._patient_until:
            return
        if not self._reached and not self._lost:
            self._put(Trouble(problem))
        elif self._reads or problem.text() != self._lost:
            cause = f": {problem.why}" if problem.why else ""
            self._put(Notice(f"{problem.what}{cause}; trying to come back"))
        self._lost = problem.text()

    def _wait(self, delay: float) -> None:
        until = self._request.get("until")
        if self._request["follow"] and until is not None:
            delay = min(delay, max(until + GRACE_SECONDS - time.time(), 0.1))
        self._stopped.wait(delay)

    def _read_once(self) -> None:
        with self._connect(self._target) as head:
            self._replaced = not self.cursors.entered(head.host_key) or self._replaced
            self.cursors.connected()
            position = self.cursors.position()
            stream = self._stream = self._start(head, {**self._request, **position})
            if not self._stopped.is_set():
                self._pump(stream)

    def _pump(self, stream: Stream) -> None:
        reader = FrameReader(self._target.name)
        heard = self._now()
        for chunk in stream.chunks(wake=WAKE_SECONDS):
            patience = SILENCE_SECONDS if reader.greeted else START_SECONDS
            if not chunk and self._now() - heard > patience:
                raise Unreachable(f"{self._target.name}: nothing was heard of the node for a while")
            for frame in reader.feed(chunk) if chunk else ():
                if isinstance(frame, frames.Finished):
                    return
                self._handle(frame)
            if chunk:
                # Only now: while our own writer stalls, nobody listens.
                heard = self._now()
        raise self._ended(stream)

    def _handle(self, frame: frames.Frame) -> None:
        if not self._reads and isinstance(frame, frames.Data | frames.CaughtUp | frames.Beat):
            self._begins()
        match frame:
            case frames.Data():
                self._take(frame)
            case frames.Opened():
                self.cursors.opened(frame)
            case frames.Done():
                self.cursors.done(frame.id)
            case frames.Hello():
                self._utc_offset = frame.utc_offset
                self.cursors.greeted(frame.session)
            case frames.Said():
                self._put(Notice(f"{self._target.name}: {frame.text}"))
            case frames.CaughtUp() if not self._caught_up:
                self._caught_up = True
                self._put(CaughtUp())
            case frames.Refused():
                raise self._refused(frame)

    def _begins(self) -> None:
        """The program reads: it has neither refused nor failed."""
        returns = self.cursors.begun and not self._reached
        self._reads = self.cursors.begun = True
        if not self._reached:
            self._reached = True
            self._put(Reached())
        if self._replaced:
            news = "another machine has its name now; reading it from its start"
            self._put(Notice(f"{self._target.name}: {news}"))
        elif self._lost:
            self._put(Notice(f"{self._target.name}: back, and going on where it was"))
        elif returns:
            self._put(Notice(f"{self._target.name}: going on where it was"))
        self._lost, self._replaced = "", False

    def _take(self, data: frames.Data) -> None:
        file = self.cursors.file(data.id)
        if data.lines:
            batch = Batch(
                cluster=self._target.cluster,
                region=self._target.region,
                node=self._target.node,
                file=file.name,
                role=file.role,
                lines=data.lines,
                start=self.cursors.start(data),
                end=data.end,
                utc_offset=self._utc_offset,
                cut=data.cut,
            )
            self._put(Lines(batch))
        self.cursors.moved(data)
        self._retries = 0

    def _put(self, event: Event) -> None:
        self._outbox.put(self._target, event)

    def _ended(self, stream: Stream) -> RayfleetError:
        said = stream.stderr.splitlines()[-1:] or ["it said nothing"]
        return ToolFailed(
            f"{self._target.name}: its logs cannot be read",
            why=f"the program there ended with exit code {stream.code}: {said[0][:300]}",
            next_step=self._look,
        )

    def _refused(self, frame: frames.Refused) -> RayfleetError:
        what = f"{self._target.name}: its logs cannot be read"
        if frame.reason == "bad-request":
            return UsageError(what, why=frame.text)
        if frame.reason == "no-files":
            return NoSuchLog(what, why=frame.text, next_step=list_logs(self._target.cluster))
        return ToolFailed(what, why=frame.text, next_step=self._look)

    @property
    def _look(self) -> str:
        return f"invoke status --cluster {self._target.cluster}"

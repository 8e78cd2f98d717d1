"""The file of a journal: appended by several threads and processes at once, a record a line."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rayfleet.errors import Locked, UsageError
from rayfleet.files import refusing
from rayfleet.locks import WAIT
from rayfleet.rollout.journal.records import Kind, Record, parse_record
from rayfleet.rollout.model import Direction, Output, Step
from rayfleet.waiting import DeadlineExceeded, wait_until

APPENDING_SECONDS = 30.0
"""How long another process may take to append; it takes milliseconds."""


@dataclass(slots=True, kw_only=True)
class _Waiting:
    """A record that is to be written; then it has its ``record``, or its ``error``."""

    make: Callable[[int], Record]
    record: Record | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class Journal:
    """One journal. Safe to use from several threads; other processes may write it as well.

    A record exists once it has its line's end and is on the disk. What a writer that was killed
    has left of a line is not there, and is cut off by the next writer.
    """

    path: Path
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _commit: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _pending: list[_Waiting] = field(default_factory=list, repr=False)
    _fresh: list[Record] = field(default_factory=list, repr=False)
    _kept: int | None = None
    _end: int = 0
    _count: int = 0

    def read(self) -> tuple[Record, ...]:
        """All records, in order.

        Raises:
            UsageError: a line is damaged; the message names it.
            PrerequisiteMissing: the file cannot be read.
        """
        with refusing(self.path, action="read"):
            raw = self.path.read_bytes()
        return tuple(self._parsed(raw, after=0))

    def fresh(self) -> list[Record]:
        """What anybody has written since the last call, in the order of the file.

        It does not wait for another process that is just writing.
        """
        with self._commit:
            with refusing(self.path, action="read"), self._opened() as file:
                if os.fstat(file).st_size > self._end and _taken(file, fcntl.LOCK_SH):
                    self._catch_up(file)
            news, self._fresh = self._fresh, []
        return news

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Let :meth:`fresh` begin with the first record, and keep the file open for the block.

        Raises:
            PrerequisiteMissing: it cannot be opened.
        """
        with refusing(self.path):
            file = self._open()
        with self._commit:
            self._fresh, self._end, self._count, self._kept = [], 0, 0, file
        try:
            yield
        finally:
            with self._commit:
                self._kept = None
            os.close(file)

    def append(
        self,
        kind: Kind,
        *,
        cluster: str = "",
        direction: Direction = Direction.FORWARD,
        step: Step | None = None,
        data: Output | None = None,
    ) -> Record:
        """Write one record; it survives a loss of power once this has returned.

        Threads that come at the same time share one sync of the disk.

        Raises:
            PrerequisiteMissing: the disk is full, or the file cannot be written. The record
                is not there then.
            UsageError: the journal is damaged.
        """
        waiting = _Waiting(
            make=lambda number: Record(
                number=number,
                at=datetime.now(UTC),
                kind=kind,
                cluster=cluster,
                direction=direction,
                step=step,
                data=data or {},
            )
        )
        with self._guard:
            self._pending.append(waiting)
        with self._commit:
            if waiting.record is None and waiting.error is None:
                self._write_pending(waiting)
        if waiting.record is None:
            raise waiting.error or RuntimeError("a record was neither written nor refused")
        return waiting.record

    def write(self, file: int, data: bytes) -> None:
        """Put ``data`` at the end of the open ``file`` and onto the disk.

        Raises:
            OSError: the disk refuses; a part may be there.
        """
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file; not locked any more afterwards."""
        kept = self._kept
        file = self._open() if kept is None else kept
        try:
            yield file
        finally:
            # Not left to the closing: a child that is just being started has the file open too.
            fcntl.flock(file, fcntl.LOCK_UN)
            if kept is None:
                os.close(file)

    def _write_pending(self, own: _Waiting) -> None:
        """As the first of the threads that wait: write what all of them have brought."""
        batch: list[_Waiting] = []
        try:
            with self._guard:
                batch, self._pending = self._pending, []
            with refusing(self.path), self._opened() as file:
                self._take(file)
                self._catch_up(file)
                self._cut(file)
                self._commit_all(file, batch)
        except Exception as error:
            for waiting in batch:
                waiting.record, waiting.error = None, waiting.error or error
        except BaseException:
            # A second Ctrl-C, in the main thread: none of the other threads' business. What they
            # have brought is theirs to write.
            left = [waiting for waiting in batch if not self._is_settled(waiting)]
            for waiting in left:
                waiting.record = None
            with self._guard:
                self._pending = [each for each in left if each is not own] + self._pending
            raise

    def _is_settled(self, waiting: _Waiting) -> bool:
        """Whether its record is in the file, or refused."""
        record = waiting.record
        return waiting.error is not None or (record is not None and record.number <= self._count)

    def _commit_all(self, file: int, batch: list[_Waiting]) -> None:
        """Write what is in ``batch``; whatever comes between, all of it is there or nothing."""
        before = self._end
        lines = self._numbered(batch)
        written = [waiting.record for waiting in batch if waiting.record is not None]
        fresh, count = [*self._fresh, *written], self._count + len(written)
        try:
            self.write(file, lines)
        except BaseException:
            os.ftruncate(file, before)
            raise
        self._fresh, self._count, self._end = fresh, count, before + len(lines)

    def _numbered(self, batch: list[_Waiting]) -> bytes:
        lines: list[bytes] = []
        for waiting in batch:
            record = waiting.make(self._count + len(lines) + 1)
            try:
                line = record.line()
                # As others read it, so that all have the same state.
                waiting.record = parse_record(line)
            except (TypeError, ValueError) as error:  # data that JSON does not know: its own fault
                waiting.error = error
            else:
                lines.append(line.encode() + b"\n")
        return b"".join(lines)

    def _take(self, file: int) -> None:
        if _taken(file, fcntl.LOCK_EX):
            return
        try:
            wait_until(
                lambda: _taken(file, fcntl.LOCK_EX),
                what=f"the lock of {self.path}",
                timeout=APPENDING_SECONDS,
                interval=0.005,
            )
        except DeadlineExceeded as error:
            raise Locked(
                f"cannot write {self.path}", why="another process holds it", next_step=WAIT
            ) from error

    def _cut(self, file: int) -> None:
        """Cut off what a writer that was killed has left of a line."""
        size = os.fstat(file).st_size
        if size < self._end:
            raise UsageError(
                f"{self.path} has become shorter",
                why=f"it had {self._end} bytes and has {size}",
                next_step="put the file back from a copy",
            )
        if size > self._end:
            os.ftruncate(file, self._end)

    def _catch_up(self, file: int) -> None:
        """Take in what others have written; the file is locked."""
        raw = _rest(file, self._end)
        if not raw:
            return
        news = self._parsed(raw, after=self._count)
        self._fresh += news
        self._count += len(news)
        self._end += raw.rfind(b"\n") + 1

    def _parsed(self, raw: bytes, *, after: int) -> list[Record]:
        """The whole lines of ``raw``, of which the first is line ``after`` + 1."""
        found = []
        for number, line in enumerate(raw.split(b"\n")[:-1], after + 1):
            try:
                record = parse_record(line.decode())
                if record.number != number:
                    raise ValueError(f"its number is {record.number}")
            except ValueError as error:
                raise UsageError(
                    f"{self.path}:{number} is damaged",
                    why=str(error),
                    next_step=f"mend that line, then: invoke rollouts.show {self.path.parent.name}",
                ) from error
            found.append(record)
        return found


def _taken(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _rest(file: int, offset: int) -> bytes:
    parts = []
    while part := os.pread(file, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)

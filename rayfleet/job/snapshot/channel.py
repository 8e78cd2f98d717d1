"""Run the reader on a head and take its answer apart, checked as it comes."""

from __future__ import annotations

import hashlib
import json
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rayfleet.cluster.container import where_ray_runs
from rayfleet.errors import RayfleetError, ToolFailed, Unreachable
from rayfleet.job.snapshot import locate

if TYPE_CHECKING:
    from rayfleet.cluster.channel import Stream
    from rayfleet.cluster.head import Head

LIMIT_SECONDS = 60
"""How long the reader may take for a look, and for each package; then it ends itself."""

_GRACE_SECONDS = 30.0

_ALARM = 128 + 14
_GREETING_BYTES = 256 * 1024
_HEADER_BYTES = 64 * 1024
# No line of Python is like it.
_END = "RAYFLEET-END-OF-READER"


@dataclass(frozen=True, slots=True)
class Frame:
    """The head of one part of an answer; ``size`` bytes follow it."""

    kind: str
    size: int
    sha256: str
    fields: Mapping[str, Any]


def command(what: Sequence[str], *, container: str, port: int, limit: int) -> str:
    """The shell command that runs the reader where Ray runs: in ``container``, if not empty."""
    words = shlex.join([str(port), str(limit), *what])
    python = f"python3 -c {shlex.quote(locate.BOOT)} {words}"
    here = Path(__file__).parent
    source = locate.SPLIT.join((here / name).read_text() for name in ("locate.py", "reader.py"))
    # In a folder of somebody else, Python would import what lies there.
    return where_ray_runs(container, f"cd / && exec {python} <<'{_END}'\n{source}\n{_END}\n")


class Answer:
    """The answer of one run of the reader, frame by frame."""

    def __init__(self, stream: Stream, cluster: str, *, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._cluster = cluster
        self._chunks = iter(stream)
        self._rest = b""
        self._heard = time.monotonic()
        self._silent = False

    def frames(self) -> Iterator[Frame]:
        """Every frame up to the end; the bytes of one must be taken before the next.

        Raises:
            Unreachable: the head has no Ray, does not answer, or the connection was lost.
            ToolFailed: Ray refuses us, or the answer is not a whole one.
        """
        self._skip_greeting()
        while True:
            frame = self._header()
            if frame.kind == "error":
                raise self._told(frame.fields)
            if frame.kind == "end":
                return
            yield frame

    def copy(self, frame: Frame, target: IO[bytes]) -> None:
        """Write the bytes of ``frame`` into ``target`` and check them.

        Raises:
            Unreachable: the connection was lost.
            ToolFailed: these are not the bytes that the head has.
        """
        digest = hashlib.sha256()
        left = frame.size
        while left:
            part = self._rest[:left] or self._more()[:left]
            self._rest = self._rest[len(part) :]
            digest.update(part)
            target.write(part)
            left -= len(part)
        if digest.hexdigest() != frame.sha256:
            raise ToolFailed(f"{self._cluster}: what came from the head is not what it sent")

    def nonsense(self) -> ToolFailed:
        """The error for an answer that no reader gives."""
        return ToolFailed(f"{self._cluster}: the answer of the head is not the reader's")

    def watch(self, stop: threading.Event) -> None:
        """End the stream when nothing has come for too long."""
        while not stop.wait(1.0):
            if time.monotonic() - self._heard > self._limit + _GRACE_SECONDS:
                self._silent = True
                self._stream.close()
                return

    def _more(self) -> bytes:
        """What has not been used yet, at least one byte."""
        if not self._rest:
            self._rest = next(self._chunks, b"")
            self._heard = time.monotonic()
            if not self._rest:
                raise self._ended()
        return self._rest

    def _skip_greeting(self) -> None:
        seen = b""
        while locate.MARK not in seen:
            if len(seen) > _GREETING_BYTES:
                raise ToolFailed(f"{self._cluster}: the head's login shell says too much")
            seen += self._more()
            self._rest = b""
        self._rest = seen.partition(locate.MARK)[2]

    def _header(self) -> Frame:
        line = b""
        while b"\n" not in line:
            if len(line) > _HEADER_BYTES:
                raise self.nonsense()
            line += self._more()
            self._rest = b""
        line, _, self._rest = line.partition(b"\n")
        try:
            fields = json.loads(line)
            return Frame(
                str(fields["kind"]), int(fields["size"]), str(fields.get("sha256")), fields
            )
        except (ValueError, KeyError, TypeError) as error:
            raise self.nonsense() from error

    def _ended(self) -> RayfleetError:
        code = self._stream.code
        if self._silent or code == _ALARM:
            return Unreachable(
                f"{self._cluster}: could not read the jobs",
                why=f"Ray's GCS on the head said nothing for {self._limit} s",
                next_step=f"invoke status --cluster {self._cluster}",
            )
        said = self._stream.stderr.splitlines()[-1:] or ["it said nothing"]
        return ToolFailed(
            f"{self._cluster}: could not read the jobs",
            why=f"the reader on the head ended with exit code {code}: {said[0][:300]}",
        )

    def _told(self, fields: Mapping[str, Any]) -> RayfleetError:
        reason, text = str(fields.get("reason")), str(fields.get("text"))
        what = f"{self._cluster}: could not read the jobs"
        if reason in {"no-ray", "silent"}:
            why = text if reason == "no-ray" else f"Ray's GCS on the head does not answer: {text}"
            next_step = f"invoke status --cluster {self._cluster}"
            return Unreachable(what, why=why, next_step=next_step)
        if reason == "refused":
            return ToolFailed(what, why=f"Ray's GCS on the head refused: {text}")
        return ToolFailed(what, why=text)


@contextmanager
def asked(head: Head, what: Sequence[str], *, port: int, limit: int) -> Iterator[Answer]:
    """Run the reader on ``head`` for as long as the block lasts; ``what`` is what it is to do."""
    container = head.address.container
    stream = head.stream(command(what, container=container, port=port, limit=limit))
    answer = Answer(stream, head.address.cluster, limit=limit)
    done = threading.Event()
    watcher = threading.Thread(target=answer.watch, args=(done,), daemon=True)
    watcher.start()
    try:
        yield answer
    finally:
        done.set()
        stream.close()
        watcher.join()

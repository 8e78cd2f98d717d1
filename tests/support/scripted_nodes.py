"""Nodes that play scripts to a follower of logs, and what came of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayfleet.cluster.channel import ConnectionLost
from rayfleet.cluster.heads import Target
from rayfleet.errors import RayfleetError, Unreachable
from rayfleet.log.follow import Follower
from rayfleet.log.output.sink import Batch, Enough
from rayfleet.log.remote.frames import MAGIC
from rayfleet.log.source import Backoff

NOTHING = b""
FOLLOW = {"follow": True, "until": None}
READ = {"follow": False, "until": None}


def frame(kind: str, body: bytes = b"", **fields: object) -> bytes:
    return json.dumps({"kind": kind, **fields, "size": len(body)}).encode() + b"\n" + body


def hello(session: str = "session_1") -> bytes:
    return MAGIC + frame("hello", utc_offset=0, session=session, host="vm")


def opened(offset: int = 0, inode: int = 7, session: str = "session_1") -> bytes:
    return frame(
        "file",
        id=1,
        path="/logs/monitor.log",
        name="monitor.log",
        role="autoscaler",
        session=session,
        device=1,
        inode=inode,
        offset=offset,
        mark=[0, 0],
    )


def data(lines: bytes, end: int) -> bytes:
    return frame("data", lines, id=1, end=end, mark=[end, 5], cut=False)


BEAT, CAUGHT_UP, END = frame("beat"), frame("caught-up"), frame("end")


def target(name: str) -> Target:
    return Target(cluster=name, region="us", node="head", name=name)


Script = Sequence[bytes | RayfleetError | Callable[[], None]]


@dataclass
class Node:
    """A node that plays one script per connection, and is silent after the last.

    ``keys`` are the host keys that it proves to own at its connections, the last of them for all
    that follow.
    """

    scripts: list[Script]
    keys: list[str] = field(default_factory=lambda: ["ssh-ed25519 AAAA"])
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    code: int = 127
    stderr: str = "sh: python3: not found"

    def open(self, _: Target) -> Node:
        """A connection; an error that comes first in a script is that of connecting."""
        if self.scripts and self.scripts[0] and isinstance(self.scripts[0][0], RayfleetError):
            raise self.scripts.pop(0)[0]  # type: ignore[misc]
        return self

    @property
    def host_key(self) -> str:
        """The host key of this connection."""
        return self.keys.pop(0) if len(self.keys) > 1 else self.keys[0]

    def chunks(self, *, wake: float) -> Iterator[bytes]:
        """What the program writes."""
        script = self.scripts.pop(0) if self.scripts else [hello() + BEAT, self.closed.wait]
        for step in script:
            if isinstance(step, bytes):
                yield step
            elif isinstance(step, RayfleetError):
                raise step
            else:
                step()

    def close(self) -> None:
        """The end of the connection."""
        self.closed.set()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass
class Recorder:
    """A sink that keeps what it is told."""

    events: list[tuple[str, str]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    when_idle: Callable[[], None] = lambda: None
    when_written: Callable[[], None] = lambda: None

    def write(self, batch: Batch) -> None:
        """Keep a batch."""
        self.batches.append(batch)
        self.events.append((batch.cluster, batch.lines.decode().strip()))
        self.when_written()

    def idle(self) -> None:
        """Do what the test wants."""
        self.when_idle()

    def joined(self, target: Target) -> None:
        """Keep it."""
        self.events.append((target.name, "joined"))

    def caught_up(self, target: Target) -> None:
        """Keep it."""
        self.events.append((target.name, "caught up"))

    def ended(self, target: Target) -> None:
        """Keep it."""
        self.events.append((target.name, "ended"))

    def close(self) -> None:
        """Keep it."""
        self.events.append(("", "closed"))


@dataclass
class Play:
    """Nodes by name, and what came of following them."""

    nodes: Mapping[str, Node]
    sink: Recorder = field(default_factory=Recorder)
    said: list[str] = field(default_factory=list)

    def run(
        self, request: Mapping[str, Any], at_first: Sequence[Target] | None = None, **options: Any
    ) -> None:
        """Follow the nodes, or those that are there ``at_first``, to the end."""

        def start(node: Node, request: Mapping[str, Any]) -> Node:
            node.asked.append(json.loads(json.dumps(request)))
            return node

        Follower(
            targets=[target(name) for name in self.nodes] if at_first is None else at_first,
            request=request,
            connect=lambda target: self.nodes[target.name].open(target),  # type: ignore[arg-type]
            start=start,  # type: ignore[arg-type]
            sink=self.sink,
            say=self.said.append,
            backoff=Backoff(first=0.001, longest=0.01),
            **options,
        ).run()


def enough_when(done: Callable[[], bool]) -> Callable[[], None]:
    def look() -> None:
        if done():
            raise Enough

    return look


def dead(cause: str = "Connection refused") -> Script:
    return [Unreachable("cannot reach the head", why=cause)]


LOST = ConnectionLost("the connection was lost")

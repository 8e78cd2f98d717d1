"""Following logs on real sshds: Ray's folders, a sink that keeps lines, a follower in a thread."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfleet.cluster.head import Head
from rayfleet.cluster.heads import Target
from rayfleet.log.follow import Follower
from rayfleet.log.output.sink import Batch, Enough, Sink
from rayfleet.log.source import Backoff
from rayfleet.waiting import wait_until
from tests.support.sshd import LocalSshd

SECONDS = 60.0
AUTOSCALER = ("monitor.log", "monitor.out", "monitor.err")
BACKOFF = Backoff(first=0.05, longest=0.2)


@dataclass
class RayFolder:
    """The folder in which a Ray head keeps its sessions."""

    root: Path
    session: str = ""

    def begin(self, session: str) -> Path:
        """Make a session, and lead ``session_latest`` to it at once, as Ray does."""
        logs = self.root / session / "logs"
        logs.mkdir(parents=True)
        link = self.root / "link"
        link.symlink_to(session)
        link.rename(self.root / "session_latest")
        self.session = session
        return logs

    @property
    def logs(self) -> Path:
        """The logs of the session that was begun last."""
        return self.root / self.session / "logs"

    def append(self, name: str, *lines: str) -> None:
        """Write whole lines at the end of a log."""
        with (self.logs / name).open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))


@dataclass
class Kept:
    """A sink that keeps everything, and ends the run when it is told to."""

    batches: list[Batch] = field(default_factory=list)
    caught: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def write(self, batch: Batch) -> None:
        """Keep a batch."""
        assert batch.lines.endswith(b"\n")
        self.batches.append(batch)

    def idle(self) -> None:
        """End when it is enough."""
        if self.enough.is_set():
            raise Enough

    def joined(self, target: Target) -> None:
        """Nothing depends on it."""

    def caught_up(self, target: Target) -> None:
        """Keep it."""
        self.caught.append(target.name)

    def ended(self, target: Target) -> None:
        """Keep it."""
        self.over.append(target.name)

    def close(self) -> None:
        """Nothing is held back."""

    def texts(self, cluster: str = "us-east5") -> list[str]:
        """The lines of one cluster, in the order in which they came."""
        batches = list(self.batches)
        lines = b"".join(batch.lines for batch in batches if batch.cluster == cluster)
        return lines.decode(errors="replace").split("\n")[:-1]

    def by_file(self) -> Mapping[tuple[str, str], list[bytes]]:
        """The lines of each file, by cluster and name."""
        found: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        for batch in list(self.batches):
            found[batch.cluster, batch.file] += batch.lines.split(b"\n")[:-1]
        return found


@dataclass
class Following:
    """A follower in a thread, and what it wrote and said."""

    follower: Follower
    sink: Kept
    said: list[str]
    thread: threading.Thread
    errors: list[BaseException]

    def wait_for(self, *lines: str) -> None:
        """Wait until exactly ``lines`` were written last."""
        wait_until(
            lambda: self.sink.texts()[-len(lines) :] == list(lines),
            what=f"{lines}",
            timeout=SECONDS,
            interval=0.02,
            reason=lambda: f"got {self.sink.texts()[-5:]}, said {self.said} {self.errors}",
        )

    def wait_until_said(self, text: str) -> None:
        """Wait for a notice that holds ``text``."""
        wait_until(
            lambda: any(text in line for line in list(self.said)),
            what=text,
            timeout=SECONDS,
            interval=0.02,
            reason=lambda: f"{self.said} {self.errors}",
        )

    def end(self) -> None:
        """End it; it must have been well until then."""
        self.sink.enough.set()
        self.thread.join(timeout=SECONDS)
        assert not self.thread.is_alive()
        if self.errors:
            raise self.errors[0]


def request(ray: RayFolder | None = None, **changes: Any) -> dict[str, Any]:
    """What the follower is to ask for: by default everything of the autoscaler's logs."""
    patterns = [{"glob": name, "role": "autoscaler"} for name in AUTOSCALER]
    root = str(ray.root) if ray else ""
    return {"root": root, "patterns": patterns, "follow": True, "tail": -1, **changes}


def target(name: str = "us-east5") -> Target:
    """The head of a cluster."""
    return Target(cluster=name, region="us-east5", node="head", name=name)


def follower_of(
    sshds: Mapping[str, LocalSshd],
    request: Mapping[str, Any],
    sink: Sink,
    say: Callable[[str], None],
    **options: Any,
) -> Follower:
    """A follower of heads by cluster; ``options`` replace its fields."""
    fields: dict[str, Any] = {
        "targets": [target(name) for name in sshds],
        "request": request,
        "connect": lambda target: Head.open(
            sshds[target.name].address(target.name), timeout=SECONDS
        ),
        "sink": sink,
        "say": say,
        "backoff": BACKOFF,
    }
    return Follower(**(fields | options))


@contextmanager
def following(
    sshds: Mapping[str, LocalSshd],
    request: Mapping[str, Any],
    *,
    sink: Kept | None = None,
    **options: Any,
) -> Iterator[Following]:
    """Follow in a thread for as long as the block lasts; what goes wrong there is raised."""
    sink = sink or Kept()
    said: list[str] = []
    errors: list[BaseException] = []
    follower = follower_of(sshds, request, sink, said.append, **options)

    def run() -> None:
        try:
            follower.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    running = Following(follower, sink, said, thread, errors)
    try:
        yield running
    except BaseException:
        sink.enough.set()
        thread.join(timeout=SECONDS)
        raise
    running.end()


def programs(sshd: LocalSshd) -> list[int]:
    """The ids of the processes that read logs in the sessions of an sshd."""
    home = f"HOME={sshd.folder}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[1:3] != [b"-I", b"-S"]:
                continue
            if home in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def bytes_written(pid: int) -> int:
    """How many bytes a process has written; 0 when it is gone."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])
    return 0

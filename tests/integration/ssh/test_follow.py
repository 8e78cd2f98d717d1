"""Following logs over a real sshd: growth, rotation, lost connections, back-pressure."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pytest

from rayfleet.cluster.head import Head, HeadAddress
from rayfleet.errors import PartialFailure, RayfleetError, ToolFailed, Unreachable
from rayfleet.log.follow import Backoff, Follower
from rayfleet.log.output import Batch, line_filter
from rayfleet.log.sources import Reading
from rayfleet.waiting import wait_until
from tests.support.sshd import LocalSshd

pytestmark = pytest.mark.integration

SECONDS = 30.0


@dataclass
class Collected:
    """A sink that keeps lines as (cluster, file, line)."""

    lines: list[tuple[str, str, str]] = field(default_factory=list)

    def write(self, batch: Batch) -> None:
        """Keep the lines of a batch."""
        assert batch.lines.endswith(b"\n")
        self.lines += [
            (batch.cluster, batch.file, line) for line in batch.lines.decode().split("\n")[:-1]
        ]

    def texts(self, cluster: str = "us-east5") -> list[str]:
        """The lines of one cluster."""
        return [line for name, _, line in list(self.lines) if name == cluster]


@dataclass
class Run:
    """A follower in a thread, and what it wrote and said."""

    follower: Follower
    sink: Collected
    said: list[str]
    stop: threading.Event
    thread: threading.Thread

    def wait_for(self, *lines: str) -> None:
        """Wait until exactly ``lines`` were written last."""
        wait_until(
            lambda: self.sink.texts()[-len(lines) :] == list(lines),
            what=f"{lines}",
            timeout=SECONDS,
            interval=0.02,
            reason=lambda: f"got {self.sink.texts()[-5:]}, said {self.said}",
        )

    def wait_until_said(self, text: str) -> None:
        """Wait for a notice that holds ``text``."""
        wait_until(
            lambda: any(text in line for line in self.said),
            what=text,
            timeout=SECONDS,
            interval=0.02,
            reason=lambda: str(self.said),
        )


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Ray's log folder: a symbolic link on the way, three files at its end."""
    session = tmp_path / "ray" / "session_1" / "logs"
    session.mkdir(parents=True)
    for name in ("monitor.log", "monitor.out", "monitor.err"):
        (session / name).touch()
    (tmp_path / "ray" / "session_latest").symlink_to("session_1")
    return tmp_path / "ray" / "session_latest" / "logs"


@pytest.fixture
def read(sshd: LocalSshd, logs: Path) -> Callable[..., Collected]:
    """Read to the end without following; other arguments are the follower's."""

    def run(tail: int = 10, addresses: Sequence[HeadAddress] = (), **options: object) -> Collected:
        follower = follower_of(addresses or [sshd.address()], logs, tail, follow=False, **options)
        follower.run()
        assert isinstance(follower.sink, Collected)
        return follower.sink

    return run


@pytest.fixture
def follow(sshd: LocalSshd, logs: Path) -> Iterator[Callable[..., Run]]:
    """Start to follow; all runs end with the test."""
    runs: list[Run] = []

    def start(tail: int = 10, **options: object) -> Run:
        stop, said = threading.Event(), list[str]()
        follower = follower_of(
            [sshd.address()],
            logs,
            tail,
            follow=True,
            say=said.append,
            nobody_reads=stop.is_set,
            **options,
        )

        def target() -> None:
            with pytest.raises(BrokenPipeError):
                follower.run()

        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        runs.append(Run(follower, follower.sink, said, stop, thread))  # type: ignore[arg-type]
        return runs[-1]

    yield start
    for run in runs:
        run.stop.set()
    for run in runs:
        run.thread.join(timeout=SECONDS)
        assert not run.thread.is_alive()


def follower_of(
    addresses: Sequence[HeadAddress], logs: Path, tail: int, *, follow: bool, **options: object
) -> Follower:
    by_name = {address.cluster: address for address in addresses}
    fields: dict[str, object] = {
        "clusters": tuple(by_name),
        "reading": Reading(folder=PurePosixPath(logs), tail=tail, follow=follow),
        "connect": lambda name: Head.open(by_name[name], timeout=10),
        "sink": Collected(),
        "say": lambda text: None,
        "backoff": Backoff(first=0.05, longest=0.2),
    }
    return Follower(**(fields | options))  # type: ignore[arg-type]


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


# Without following


def test_exactly_the_last_lines_of_each_file_are_read(
    read: Callable[..., Collected], logs: Path
) -> None:
    append(logs / "monitor.log", *(f"line {number}" for number in range(100)))
    (logs / "monitor.err").write_text("the end has no newline")
    assert sorted(read(tail=2).lines) == [
        ("us-east5", "monitor.err", "the end has no newline"),
        ("us-east5", "monitor.log", "line 98"),
        ("us-east5", "monitor.log", "line 99"),
    ]


def test_every_byte_of_a_big_file_arrives_in_order(
    read: Callable[..., Collected], logs: Path
) -> None:
    lines = [f"{number} {'x' * (number % 300)}" for number in range(100_000)]
    append(logs / "monitor.log", *lines)
    assert read(tail=100_000).texts() == lines


def test_a_file_that_is_not_there_is_no_news_while_another_one_is(
    read: Callable[..., Collected], logs: Path
) -> None:
    append(logs / "monitor.log", "here")
    (logs / "monitor.err").unlink()
    said: list[str] = []
    assert read(say=said.append).texts() == ["here"]
    assert said == []


def test_grep_keeps_only_what_matches(read: Callable[..., Collected], logs: Path) -> None:
    append(logs / "monitor.log", "Resizing to 3", "something else", "Resizing to 4")
    assert read(keep=line_filter(r"to \d$")).texts() == ["Resizing to 3", "Resizing to 4"]


def test_a_head_without_logs_says_what_to_look_at(
    read: Callable[..., Collected], logs: Path
) -> None:
    for path in logs.iterdir():
        path.unlink()
    with pytest.raises(ToolFailed, match="no logs of the autoscaler"):
        read()


def test_one_dead_head_is_told_at_once_and_the_others_are_read(
    read: Callable[..., Collected], sshd: LocalSshd, logs: Path
) -> None:
    append(logs / "monitor.log", "here")
    said: list[str] = []
    sink = Collected()
    dead = sshd.address("dead", port=1)
    with pytest.raises(PartialFailure, match="1 of 2 heads could not be read: dead"):
        read(addresses=[dead, sshd.address()], say=said.append, sink=sink)
    assert sink.texts() == ["here"]
    assert any("dead" in text and "Connection refused" in text for text in said)


def test_no_head_at_all_is_unreachable(read: Callable[..., Collected], sshd: LocalSshd) -> None:
    with pytest.raises(Unreachable, match="no head could be read: a, b"):
        read(addresses=[sshd.address("a", port=1), sshd.address("b", port=1)])
    with pytest.raises(Unreachable, match="Connection refused"):
        read(addresses=[sshd.address("a", port=1)])


def test_a_connection_that_is_lost_while_not_following_is_a_failure(
    read: Callable[..., Collected], sshd: LocalSshd, logs: Path
) -> None:
    # A pipe that nobody fills: the reader waits, and what it waits for is cut.
    (logs / "monitor.log").unlink()
    os.mkfifo(logs / "monitor.log")
    failures: list[RayfleetError] = []

    def target() -> None:
        try:
            read()
        except RayfleetError as error:
            failures.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    wait_until(lambda: remote_tails(logs), what="the remote tail", timeout=SECONDS)
    sshd.kill_sessions()
    thread.join(timeout=SECONDS)
    assert [type(error).__name__ for error in failures] == ["ConnectionLost"]


# Following


def test_new_lines_arrive_whole_and_with_their_file(follow: Callable[..., Run], logs: Path) -> None:
    append(logs / "monitor.log", "old 1", "old 2")
    run = follow(tail=1)
    run.wait_for("old 2")
    with (logs / "monitor.log").open("a") as file:
        file.write("first half, ")
        file.flush()
        append(logs / "monitor.out", "from another file")
        run.wait_for("old 2", "from another file")
        file.write("second half\n")
    run.wait_for("from another file", "first half, second half")
    assert ("us-east5", "monitor.out", "from another file") in run.sink.lines


def test_a_rotated_file_loses_no_line(follow: Callable[..., Run], logs: Path) -> None:
    append(logs / "monitor.log", "1")
    run = follow()
    run.wait_for("1")
    append(logs / "monitor.log", "2")
    (logs / "monitor.log").rename(logs / "monitor.log.1")
    append(logs / "monitor.log", "3")
    run.wait_for("1", "2", "3")
    append(logs / "monitor.log", "4")
    run.wait_for("1", "2", "3", "4")


def test_a_new_session_is_followed_through_session_latest(
    follow: Callable[..., Run], logs: Path, tmp_path: Path
) -> None:
    append(logs / "monitor.log", "old session")
    run = follow()
    run.wait_for("old session")
    second = tmp_path / "ray" / "session_2" / "logs"
    second.mkdir(parents=True)
    append(second / "monitor.log", "new session")
    (tmp_path / "ray" / "link").symlink_to("session_2")
    (tmp_path / "ray" / "link").rename(tmp_path / "ray" / "session_latest")
    run.wait_for("old session", "new session")


def test_a_killed_connection_is_told_and_taken_up_again(
    follow: Callable[..., Run], sshd: LocalSshd, logs: Path
) -> None:
    append(logs / "monitor.log", "before")
    run = follow()
    run.wait_for("before")
    assert sshd.kill_sessions() == 1
    run.wait_until_said("the connection to the head was lost; trying to come back")
    run.wait_until_said("back; what was written in between is not shown")
    wait_until(lambda: len(remote_tails(logs)) == 3, what="three tails", timeout=SECONDS)
    append(logs / "monitor.log", "after")
    run.wait_for("before", "after")


def test_a_head_that_is_gone_for_a_while_is_told_once(
    follow: Callable[..., Run], sshd: LocalSshd, logs: Path
) -> None:
    append(logs / "monitor.log", "before")
    attempts: list[str] = []

    def connect(name: str) -> Head:
        attempts.append(name)
        return Head.open(sshd.address(name), timeout=10)

    run = follow(connect=connect)
    run.wait_for("before")
    sshd.stop()
    wait_until(lambda: len(attempts) > 4, what="some attempts", timeout=SECONDS)
    assert len([text for text in run.said if "Connection refused" in text]) == 1
    sshd.start()
    run.wait_until_said("back;")


def test_a_writer_that_stalls_stops_the_remote_reader(
    follow: Callable[..., Run], logs: Path
) -> None:
    count, size = 160_000, 500
    append(logs / "monitor.log", *["x" * (size - 1)] * count)
    release = threading.Event()

    class Stalled(Collected):
        def write(self, batch: Batch) -> None:
            release.wait(SECONDS)
            super().write(batch)

    run = follow(tail=count, sink=Stalled())
    seen = [-1, 0]

    def stands_still() -> bool:
        seen.append(sum(map(bytes_written, remote_tails(logs))))
        return seen[-1] > 0 and seen[-1] == seen[-2] == seen[-3]

    wait_until(stands_still, what="the remote tail to stop", timeout=SECONDS, interval=0.3)
    assert seen[-1] < count * size / 2
    release.set()
    wait_until(lambda: len(run.sink.lines) == count, what="all lines", timeout=SECONDS)


def test_ctrl_c_is_the_normal_end_and_leaves_no_remote_process(sshd: LocalSshd, logs: Path) -> None:
    append(logs / "monitor.log", "one")

    class Interrupted(Collected):
        def write(self, batch: Batch) -> None:
            assert remote_tails(logs)
            raise KeyboardInterrupt

    follower_of([sshd.address()], logs, 10, follow=True, sink=Interrupted()).run()
    wait_until(lambda: not remote_tails(logs), what="the remote tails to end", timeout=SECONDS)


def remote_tails(logs: Path) -> list[int]:
    """The ids of the tail processes that read files in ``logs``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            argv = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argv[0] == b"tail" and argv[-2].startswith(bytes(logs)):
            found.append(int(folder.name))
    return found


def bytes_written(pid: int) -> int:
    """How many bytes the process has written."""
    try:
        fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    except OSError:
        return 0
    return int(fields["wchar"])

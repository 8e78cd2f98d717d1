"""Following logs over a real sshd: growth, rotation, lost connections, back-pressure."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from rayfleet.cluster.head import Head
from rayfleet.cluster.heads import Target
from rayfleet.errors import PartialFailure, ToolFailed, Unreachable
from rayfleet.log.output.jsonl import JsonlSink
from rayfleet.log.output.sink import Batch
from rayfleet.log.output.style import style_of
from rayfleet.log.output.text import TextSink
from rayfleet.log.source import boot_time
from rayfleet.waiting import wait_until
from tests.support.following import (
    SECONDS,
    Kept,
    RayFolder,
    bytes_written,
    follower_of,
    following,
    programs,
    request,
)
from tests.support.sshd import LocalSshd

pytestmark = pytest.mark.integration

CLUSTER = "us-east5"


@pytest.fixture
def ray(tmp_path: Path) -> RayFolder:
    """A session of Ray with the empty logs of its autoscaler."""
    ray = RayFolder(tmp_path / "ray")
    ray.begin("session_1")
    for name in ("monitor.log", "monitor.out", "monitor.err"):
        (ray.logs / name).touch()
    return ray


@pytest.fixture
def black_hole() -> Iterator[int]:
    """The port of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def read(sshd: LocalSshd, ray: RayFolder, **changes: Any) -> Kept:
    """Read to the end without following."""
    sink = Kept()
    wanted = request(ray, follow=False, **changes)
    follower_of({CLUSTER: sshd}, wanted, sink, lambda _: None).run()
    return sink


# Without following


def test_exactly_the_last_lines_of_each_file_are_read(sshd: LocalSshd, ray: RayFolder) -> None:
    ray.append("monitor.log", *(f"line {number}" for number in range(100)))
    (ray.logs / "monitor.err").write_text("the end has no newline")
    assert read(sshd, ray, tail=2).by_file() == {
        (CLUSTER, "monitor.err"): [b"the end has no newline"],
        (CLUSTER, "monitor.log"): [b"line 98", b"line 99"],
    }


def test_every_byte_of_a_big_file_arrives_in_order_and_knows_its_place(
    sshd: LocalSshd, ray: RayFolder
) -> None:
    lines = [f"{number} {'x' * (number % 300)}" for number in range(100_000)]
    ray.append("monitor.log", *lines)
    sink = read(sshd, ray)
    assert sink.texts() == lines
    assert len(sink.batches) > 10
    whole = (ray.logs / "monitor.log").read_bytes()
    assert all(whole[batch.start : batch.end] == batch.lines for batch in sink.batches)


def test_filters_work_on_the_node(sshd: LocalSshd, ray: RayFolder) -> None:
    ray.append("monitor.log", *(f"2026-11-21 20:00:00,000\tINFO {n}" for n in range(100_000)))
    sink = read(sshd, ray, include=["INFO 7777$"])
    assert sink.texts() == ["2026-11-21 20:00:00,000\tINFO 7777"]


def test_a_head_without_logs_says_so(sshd: LocalSshd, ray: RayFolder, tmp_path: Path) -> None:
    for path in ray.logs.iterdir():
        path.unlink()
    with pytest.raises(ToolFailed, match="no log there has such a name"):
        read(sshd, ray)
    with pytest.raises(ToolFailed, match="no session of Ray"):
        read(sshd, RayFolder(tmp_path / "nowhere"))


def test_dead_heads_are_told_at_once_and_hold_up_nobody(
    sshd: LocalSshd, ray: RayFolder, black_hole: int
) -> None:
    ray.append("monitor.log", "here")
    sink, said = Kept(), list[str]()
    came = threading.Event()

    class Noticed(Kept):
        def caught_up(self, target: Target) -> None:
            super().caught_up(target)
            came.set()

    sink = Noticed()
    ports = {"dead": 1, "silent": black_hole, CLUSTER: sshd.port}

    def connect(target: Target) -> Head:
        # The others are not done before this one has come.
        alive = target.name == CLUSTER
        assert alive or came.wait(SECONDS)
        address = sshd.address(target.name, port=ports[target.name])
        return Head.open(address, timeout=SECONDS if alive else 1.0)

    follower = follower_of(
        dict.fromkeys(ports, sshd), request(ray, follow=False), sink, said.append, connect=connect
    )
    with pytest.raises(PartialFailure, match="2 of 3 nodes could not be read: dead, silent"):
        follower.run()
    assert sink.texts() == ["here"]
    assert any("dead" in text and "Connection refused" in text for text in said)
    assert any("silent" in text and "did not answer" in text for text in said)


def test_no_head_at_all_is_unreachable(sshd: LocalSshd, ray: RayFolder) -> None:
    sshd.stop()
    for names in (["a"], ["a", "b"]):
        follower = follower_of(dict.fromkeys(names, sshd), request(ray), Kept(), lambda _: None)
        with pytest.raises(Unreachable) as caught:
            follower.run()
        assert ("Connection refused" in caught.value.text()) == (names == ["a"])


def test_a_connection_that_is_lost_while_reading_costs_no_line(
    sshd: LocalSshd, ray: RayFolder
) -> None:
    lines = [f"{number} {'x' * 100}" for number in range(200_000)]
    ray.append("monitor.log", *lines)

    class Cutting(Kept):
        def write(self, batch: Batch) -> None:
            super().write(batch)
            if len(self.batches) in {1, 5}:
                sshd.kill_sessions()

    sink = Cutting()
    follower_of({CLUSTER: sshd}, request(ray, follow=False), sink, lambda _: None).run()
    assert sink.texts() == lines


# Following


def test_new_lines_arrive_whole_and_with_their_file(sshd: LocalSshd, ray: RayFolder) -> None:
    ray.append("monitor.log", "old 1", "old 2")
    with following({CLUSTER: sshd}, request(ray, tail=1)) as run:
        run.wait_for("old 2")
        with (ray.logs / "monitor.log").open("a") as file:
            file.write("first half, ")
            file.flush()
            ray.append("monitor.out", "from another file")
            run.wait_for("old 2", "from another file")
            file.write("second half\n")
        run.wait_for("from another file", "first half, second half")
        assert run.sink.by_file()[CLUSTER, "monitor.out"] == [b"from another file"]
        assert run.sink.caught == [CLUSTER]


def test_a_killed_connection_is_told_and_no_line_is_lost(sshd: LocalSshd, ray: RayFolder) -> None:
    ray.append("monitor.log", "1", "2")
    with following({CLUSTER: sshd}, request(ray, tail=1)) as run:
        run.wait_for("2")
        port = sshd.port
        sshd.stop()
        ray.append("monitor.log", "3")
        (ray.logs / "monitor.log").rename(ray.logs / "monitor.log.1")
        ray.append("monitor.log", "4")
        run.wait_until_said("Connection refused; trying to come back")
        sshd.start()
        assert sshd.port == port
        run.wait_until_said("us-east5: back, and going on where it was")
        run.wait_for("2", "3", "4")
        ray.append("monitor.log", "5")
        run.wait_for("2", "3", "4", "5")
        assert len([text for text in run.said if "Connection refused" in text]) == 1


def test_a_laptop_that_slept_through_the_end_of_its_connection_notices_when_it_wakes(
    sshd: LocalSshd, ray: RayFolder
) -> None:
    ray.append("monitor.log", "1")
    slept = [0.0]
    with following({CLUSTER: sshd}, request(ray), now=lambda: boot_time() + slept[0]) as run:
        run.wait_for("1")
        # Nothing ends the connection: no packet comes any more.
        for pid in sshd.sessions():
            os.kill(pid, signal.SIGSTOP)
        ray.append("monitor.log", "2")
        slept[0] = 3600.0
        run.wait_until_said("nothing was heard of the node for a while")
        run.wait_for("1", "2")


def test_a_head_whose_program_dies_is_read_on(sshd: LocalSshd, ray: RayFolder) -> None:
    ray.append("monitor.log", "1")
    with following({CLUSTER: sshd}, request(ray)) as run:
        run.wait_for("1")
        for pid in programs(sshd):
            os.kill(pid, signal.SIGKILL)
        ray.append("monitor.log", "2")
        run.wait_for("1", "2")


def test_a_writer_that_stalls_stops_the_program_on_the_head(
    sshd: LocalSshd, ray: RayFolder
) -> None:
    count, size = 160_000, 500
    ray.append("monitor.log", *["x" * (size - 1)] * count)
    release = threading.Event()

    class Stalled(Kept):
        def write(self, batch: Batch) -> None:
            assert release.wait(SECONDS)
            super().write(batch)

    with following({CLUSTER: sshd}, request(ray), sink=Stalled()) as run:
        seen = [-1, 0]

        def stands_still() -> bool:
            seen.append(sum(map(bytes_written, programs(sshd))))
            return seen[-1] > 0 and seen[-1] == seen[-2] == seen[-3]

        wait_until(stands_still, what="the program to stop", timeout=SECONDS, interval=0.3)
        # The outbox, a frame, SSH's window, and what the kernel keeps of pipes and sockets.
        assert seen[-1] < 30 * 1024 * 1024
        release.set()
        wait_until(
            lambda: sum(len(batch.lines) for batch in run.sink.batches) == count * size,
            what="all lines",
            timeout=SECONDS,
        )
        assert run.said == []


def test_with_drop_a_writer_that_stalls_loses_what_is_counted(
    sshd: LocalSshd, ray: RayFolder
) -> None:
    count, size = 80_000, 500
    ray.append("monitor.log", *["x" * (size - 1)] * count)

    class Stalled(Kept):
        def write(self, batch: Batch) -> None:
            wait_until(self.program_has_ended, what="the program to end", timeout=SECONDS)
            super().write(batch)

        def program_has_ended(self) -> bool:
            return bool(self.batches) or not programs(sshd)

    sink, said = Stalled(), list[str]()
    follower_of({CLUSTER: sshd}, request(ray, follow=False), sink, said.append, drop=True).run()
    lost = count - len(sink.texts())
    assert lost > 0
    assert said == [f"us-east5: {lost} lines were dropped, they came faster than we write"]


def test_ctrl_c_is_the_normal_end_and_leaves_no_process_on_the_head(
    sshd: LocalSshd, ray: RayFolder
) -> None:
    ray.append("monitor.log", "one")

    class Interrupted(Kept):
        def write(self, batch: Batch) -> None:
            assert programs(sshd)
            raise KeyboardInterrupt

    follower_of({CLUSTER: sshd}, request(ray), Interrupted(), lambda _: None).run()
    wait_until(lambda: not programs(sshd), what="the program to end", timeout=SECONDS)


# Hostile content

RUBBISH = bytes(range(256)) * 40 + b"\n"
ESCAPES = b"\x1b[2J\x1b]0;title\x07\x9b31m\x1b[?1049h\r\x08\x0e\xe2\x80\xae\n"
NO_UTF8 = b"\xff\xfe\xc3(\xed\xa0\x80\n"
LONG = b"y" * (10 * 1024 * 1024) + b"\n"
HOSTILE = b"begin\n" + RUBBISH + ESCAPES + NO_UTF8 + LONG + b"2026-11-21 20:00:00,000\tINFO end\n"


@contextmanager
def terminal() -> Iterator[tuple[BinaryIO, Callable[[], bytes]]]:
    """A terminal to write to, and what it was sent in the end."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    shown: list[bytes] = []

    def look() -> None:
        # A terminal whose last writer is gone answers with EIO.
        with suppress(OSError):
            while chunk := os.read(ours, 64 * 1024):
                shown.append(chunk)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()

    def all_of_it() -> bytes:
        out.close()
        thread.join(SECONDS)
        return b"".join(shown)

    with os.fdopen(theirs, "wb") as out:
        yield out, all_of_it
    os.close(ours)


def test_hostile_lines_cannot_break_a_terminal(sshd: LocalSshd, ray: RayFolder) -> None:
    (ray.logs / "monitor.log").write_bytes(HOSTILE)
    with terminal() as (out, shown):
        style = style_of(out, {"NO_COLOR": "1", "TERM": "xterm"})
        sink = TextSink(out, {(CLUSTER, "head"): CLUSTER}, style)
        follower_of({CLUSTER: sshd}, request(ray, follow=False), sink, lambda _: None).run()
        text = shown().decode()
    assert {char for char in text if not char.isprintable()} <= {"\n", "\t"}
    lines = text.splitlines()
    assert all(line.startswith("us-east5 | ") for line in lines)
    assert lines[0] == "us-east5 | begin"
    assert lines[-1] == "us-east5 | 2026-11-21 20:00:00,000\tINFO end"
    assert text.count("y") > 10 * 1024 * 1024


def test_hostile_lines_cannot_break_json(sshd: LocalSshd, ray: RayFolder) -> None:
    (ray.logs / "monitor.log").write_bytes(HOSTILE)
    output = io.BytesIO()
    wanted = request(ray, follow=False)
    follower_of({CLUSTER: sshd}, wanted, JsonlSink(output), lambda _: None).run()
    lines = output.getvalue()
    assert set(lines) <= {0x0A, *range(0x20, 0x7F)}
    objects = [json.loads(line) for line in lines.splitlines()]
    assert objects[0]["message"] == "begin"
    assert objects[-1]["message"].endswith("INFO end")
    assert objects[-1]["offset"] == HOSTILE.index(b"2026-11-21")
    pieces = [each for each in objects if each["message"].startswith("yyy")]
    assert sum(len(each["message"]) for each in pieces) == 10 * 1024 * 1024
    assert all(each.get("cut") for each in pieces[:-1])

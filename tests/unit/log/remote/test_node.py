"""What the program does with odd files and moments."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.log_reader import Operator, request
from tests.support.log_world import World

NOBODY = 65534


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.flip()
    return world


def received(world: World, *globs: str, **fields: object) -> dict[str, list[str]]:
    """All lines by log, as a program reads them that is started now."""
    operator = Operator(request(world.root, *globs, **fields))
    operator.connect()
    operator.settle()
    operator.lose(1.0)
    return {name: lines for (_, name), lines in operator.received.items()}


@contextmanager
def as_nobody() -> Iterator[None]:
    me = os.geteuid()
    if me:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(me)


def test_a_file_that_may_not_be_read_is_told_of_once_and_read_when_it_may_be() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        world = World(Path(folder))
        world.flip()
        world.write("monitor.log", 3, 20)
        world.write("monitor.out", 1, 20)
        secret = world.logs / "monitor.log"
        secret.chmod(0o000)
        operator = Operator(request(world.root, "monitor.*"))
        with as_nobody():
            operator.connect()
            operator.settle()
        secret.chmod(0o644)
        with as_nobody():
            operator.settle()
        operator.lose(1.0)
        assert operator.said == [f"cannot read {os.path.realpath(secret)}: Permission denied"]
        assert {name: len(lines) for (_, name), lines in operator.received.items()} == {
            "monitor.log": 3,
            "monitor.out": 1,
        }


def test_files_of_ended_workers_are_read_to_their_end(world: World) -> None:
    operator = Operator(request(world.root, "worker-*"))
    old = world.logs / "old"
    old.mkdir()
    for name in ("worker-a.out", "worker-b.out"):
        world.write(name, 2, 20)
    operator.connect()
    operator.turns(100)
    for name in ("worker-a.out", "worker-b.out"):
        world.write(name, 2, 20)
    (world.logs / "worker-a.out").rename(old / "worker-a.out")
    operator.settle()
    # And again where the connection was lost in between.
    world.write("worker-b.out", 2, 20)
    operator.lose(1.0)
    (world.logs / "worker-b.out").rename(old / "worker-b.out")
    operator.connect()
    operator.settle()
    operator.lose(1.0)
    for key, story in world.stories.items():
        assert not story.problem(operator.received[key])


def test_a_deleted_file_that_is_still_written_is_read_on(world: World) -> None:
    world.write("monitor.out", 1, 20)
    operator = Operator(request(world.root, "monitor.*"))
    operator.connect()
    operator.turns(100)
    with (world.logs / "monitor.out").open("a") as log:
        (world.logs / "monitor.out").unlink()
        log.write("still there\n")
        log.flush()
        operator.settle()
    operator.lose(1.0)
    assert operator.received[world.session, "monitor.out"][1:] == ["still there"]


def test_a_log_has_its_name_through_all_rotations_and_folders_are_part_of_it(world: World) -> None:
    (world.logs / "events").mkdir()
    (world.logs / "events/event_GCS.1.log").write_text("one\n")
    (world.logs / "events/event_GCS.log").write_text("two\n")
    absolute = world.root / "elsewhere.log"
    absolute.write_text("three\n")
    assert received(world, "events/*.log", str(absolute)) == {
        "events/event_GCS.log": ["one", "two"],
        str(absolute): ["three"],
    }


def test_a_file_that_two_patterns_match_is_read_once(world: World) -> None:
    world.write("monitor.log", 3, 20)
    path = os.path.realpath(world.logs / "monitor.log")
    found = received(world, path, "monitor.*", "*.log")
    assert [len(lines) for lines in found.values()] == [3]


def test_sessions_come_one_after_the_other_after_a_long_absence(world: World) -> None:
    operator = Operator(request(world.root, "monitor.*"))
    world.write("monitor.log", 2, 20)
    operator.connect()
    operator.turns(100)
    operator.lose(1.0)
    for _ in range(3):
        world.write("monitor.log", 2, 20)
        world.rotate("monitor.log", at_once=True, inner=False)
        world.flip()
        world.write("monitor.log", 2, 20)
    operator.connect()
    operator.settle()
    operator.lose(1.0)
    assert list(operator.received) == sorted(world.stories)
    for key, story in world.stories.items():
        assert not story.problem(operator.received[key])


def test_a_session_that_was_there_before_is_not_read(world: World) -> None:
    world.write("monitor.log", 2, 20)
    world.flip()
    world.write("monitor.log", 3, 20)
    assert len(received(world, "monitor.*")["monitor.log"]) == 3


def test_the_tail_goes_back_into_rotated_files(world: World) -> None:
    for count in (5, 4, 3):
        world.rotate("raylet.out", at_once=True, inner=True)
        world.write("raylet.out", count, 20)
    story = world.stories[world.session, "raylet.out"]
    for tail in (0, 1, 3, 4, 7, 8, 12, 50):
        found = received(world, "raylet.*", tail=tail)
        assert found.get("raylet.out", []) == story.lines[max(0, 12 - tail) :], tail


def test_since_and_tail_begin_at_the_later_of_both(world: World) -> None:
    log = world.logs / "monitor.log"
    log.write_text("".join(f"2026-11-21 01:00:{n:02},000\tINFO x -- {n}\n" for n in range(60)))
    since = time.mktime((2026, 11, 21, 1, 0, 50, 0, 0, -1))
    assert len(received(world, "monitor.*", since=since)["monitor.log"]) == 10
    assert len(received(world, "monitor.*", since=since, tail=3)["monitor.log"]) == 3


def test_ten_megabytes_without_a_newline(world: World) -> None:
    (world.logs / "monitor.out").write_bytes(b"before\n" + b"x" * 10_000_000 + b"\nafter\n")
    found = received(world, "monitor.*")["monitor.out"]
    assert (found[0], found[-1]) == ("before", "after")
    assert [len(line) for line in found[1:-1]] == [1 << 20] * 9 + [10_000_000 - (9 << 20)]


def test_a_thousand_new_files_are_followed(world: World) -> None:
    operator = Operator(request(world.root, "worker-*"))
    operator.connect()
    for number in range(1000):
        (world.logs / f"worker-{number:04}.out").write_text(f"line {number}\n")
    operator.settle()
    operator.lose(1.0)
    assert len(operator.received) == 1000
    assert all(len(lines) == 1 for lines in operator.received.values())

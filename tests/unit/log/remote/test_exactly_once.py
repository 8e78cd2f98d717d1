"""Every line exactly once and in order, whatever happens to files, sessions and connections."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.log_reader import Operator, request
from tests.support.log_world import World

# Name, and whether its older files are named as by Ray's C++ programs.
LOGS = (("monitor.log", False), ("raylet.out", True), ("gcs_server.out", True))

logs = st.sampled_from(LOGS)
sizes = st.sampled_from((20, 60, 300, 700))
turns = st.sampled_from((0, 1, 3, 500))
STEPS = st.one_of(
    st.tuples(st.just("write"), logs, st.integers(1, 6), sizes),
    st.tuples(st.just("write"), logs, st.integers(1, 6), sizes),
    st.tuples(st.just("begin line"), logs, sizes),
    st.tuples(st.just("rotate"), logs, st.booleans()),
    st.tuples(st.just("rename one"), logs),
    st.tuples(st.just("copy"), logs),
    st.tuples(st.just("truncate"), logs),
    st.tuples(st.just("copytruncate"), logs, st.tuples(turns, turns, turns), st.integers(0, 2)),
    st.tuples(st.just("delete oldest"), logs),
    st.tuples(st.just("flip")),
    st.tuples(st.just("write late"), logs),
    st.tuples(st.just("replace"), st.booleans(), st.floats(0.0, 1.0)),
    st.tuples(st.just("turns"), st.integers(1, 8)),
    st.tuples(st.just("turns"), st.just(500)),
    st.tuples(st.just("time"), st.sampled_from((0.1, 0.6, 2.0, 7.0))),
    st.tuples(st.just("cut"), st.floats(0.0, 1.0)),
    st.tuples(st.just("cut"), st.just(1.0)),
)


def play(world: World, operator: Operator, step: tuple) -> None:
    match step:
        case "write", (name, _), count, size:
            world.write(name, count, size)
        case "begin line", (name, _), size:
            world.begin_line(name, size)
        case "rotate", (name, inner), at_once:
            world.rotate(name, at_once=at_once, inner=inner)
        case "rename one", (name, _):
            world.settle_one(name)
        case "copy", (name, False):
            world.copy(name)
        case "truncate", (name, False):
            world.truncate(name)
        case "copytruncate", (name, False), looks, count:
            operator.wait(looks[0])
            world.copy(name)
            operator.wait(looks[1])
            world.write_meanwhile(name, count, 60)
            operator.wait(looks[2])
            world.truncate(name)
        case "delete oldest", (name, _):
            world.delete_oldest(name)
        case ("flip",):
            world.flip()
        case "write late", (name, _):
            world.write_late(name)
        case "replace", same_session, part:
            operator.lose(part)
            world.replace(same_session=same_session)
            operator.connect()
        case "turns", most:
            operator.turns(most)
        case "time", seconds:
            operator.now += seconds
        case "cut", part:
            operator.lose(part)
            if "Hello" not in operator.kinds or (
                operator.fields["tail"] == 0 and "CaughtUp" not in operator.kinds
            ):
                world.everything_is_lost()
            operator.connect()


def check(world: World, operator: Operator) -> None:
    for key, story in world.stories.items():
        problem = story.problem(operator.received.get(key, []))
        assert not problem, f"{key}: {problem}"
    assert not operator.received.keys() - world.stories.keys()


@pytest.mark.parametrize("tail", [-1, 0])
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(STEPS, max_size=6),
    steps=st.lists(STEPS, max_size=40),
    chunk=st.sampled_from((64, 500, 256 * 1024)),
)
def test_every_line_comes_once(tail: int, before: list, steps: list, chunk: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.flip()
        fields = request(
            world.root, "monitor.*", "raylet.*", "gcs_server.*", chunk_bytes=chunk, tail=tail
        )
        operator = Operator(fields)
        for step in before:
            if step[0] not in {"turns", "cut", "time", "replace", "copytruncate"}:
                play(world, operator, step)
        if tail == 0 or world.root.joinpath("session_latest").readlink().name[-6:-4] != "01":
            world.everything_is_lost()
        operator.connect()
        try:
            for step in steps:
                play(world, operator, step)
            world.finish()
            operator.turns(100_000)
            operator.settle()
        finally:
            operator.lose(1.0)
        check(world, operator)

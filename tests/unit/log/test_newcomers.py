"""Nodes that join and go while others are followed, with scripted ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from rayfleet.cluster.heads import WORKERS, NodeGone, Target
from rayfleet.errors import Unreachable
from rayfleet.log.follow import MAX_NODES
from rayfleet.log.newcomers import Newcomers
from tests.support.scripted_nodes import (
    CAUGHT_UP,
    END,
    FOLLOW,
    LOST,
    Node,
    Play,
    data,
    dead,
    enough_when,
    frame,
    hello,
    opened,
    target,
)

TEN = {**FOLLOW, "tail": 10}
HEAD = target("a")


def worker(name: str) -> Target:
    return Target(cluster="a", region="us", node=f"rf-{name}", name=name)


def unlisted() -> Target:
    return Target(cluster="a", region="us", node=WORKERS, name="a/workers")


def lists(*looks: Sequence[Target]) -> Newcomers:
    """Looks that find these nodes, the last of them again and again."""
    left = list(looks)
    return Newcomers(lambda: left.pop(0) if len(left) > 1 else left[0], every=0.001)


def speaks(line: bytes, *, waits: Callable[[], object] = lambda: None) -> Node:
    node = Node([])
    node.scripts.append([hello() + opened() + data(line, len(line)), waits, node.closed.wait])
    return node


def after_looks(play: Play, text: str) -> Callable[[], None]:
    """The run is over a few looks after ``text`` was said."""
    idle = 0

    def look() -> bool:
        nonlocal idle
        idle += any(text in said for said in play.said)
        return idle == 4

    return enough_when(look)


def seen(play: Play, *lines: str) -> Callable[[], None]:
    """The run is over when these lines have come."""
    return enough_when(lambda: set(lines) <= {text for _, text in play.sink.events})


def test_a_node_that_joins_is_read_from_its_first_line_on() -> None:
    play = Play({"a": Node([]), "w1": speaks(b"here\n")})
    play.sink.when_written = seen(play, "here")
    play.run(TEN, [HEAD], newcomers=lists([HEAD], [HEAD, worker("w1")]))
    assert [asked["tail"] for asked in play.nodes["w1"].asked] == [-1]
    assert [asked["tail"] for asked in play.nodes["a"].asked] == [10]
    assert play.said == ["w1: joined"]
    assert play.sink.events[:2] == [("w1", "joined"), ("a", "here")]


def test_those_that_were_there_are_not_read_twice() -> None:
    play = Play({"a": Node([]), "w1": Node([]), "w2": Node([])})
    play.sink.when_idle = after_looks(play, "w2: joined")
    here = [HEAD, worker("w1")]
    play.run(TEN, here, newcomers=lists([*here, worker("w2")]))
    assert [len(node.asked) for node in play.nodes.values()] == [1, 1, 1]
    assert play.said == ["w2: joined"]


def test_no_node_at_first_is_no_reason_to_end() -> None:
    play = Play({"w1": speaks(b"here\n")})
    play.sink.when_written = seen(play, "here")
    play.run(TEN, [], newcomers=lists([], [], [worker("w1")]))
    assert play.said == ["w1: joined"]


def test_a_node_that_is_gone_is_let_go_and_others_are_waited_for() -> None:
    gone = [NodeGone("w1 is gone", why="a has no worker w1 any more")]
    first = Node([[hello() + opened() + data(b"1\n", 2), LOST], gone])
    play = Play({"w1": first, "w2": speaks(b"2\n")})
    here = [worker("w1")]

    def look() -> list[Target]:
        return [worker("w2")] if ("w1", "ended") in play.sink.events else here

    play.sink.when_written = seen(play, "2")
    play.run(TEN, here, newcomers=Newcomers(look, every=0.001))
    assert [text.partition(";")[0] for text in play.said] == [
        "the connection was lost",
        "w1 is gone",
        "w2: joined",
    ]
    assert len(first.asked) == 1


def test_a_node_of_the_same_name_that_comes_again_is_read_whole() -> None:
    node = Node([[NodeGone("w1 is gone")], [hello() + opened() + data(b"anew\n", 5)]])
    play = Play({"a": Node([]), "w1": node})
    play.sink.when_written = seen(play, "anew")
    both = [HEAD, worker("w1")]
    play.run(TEN, both, newcomers=lists(both))
    assert [asked["tail"] for asked in node.asked] == [-1]
    assert play.said == ["w1 is gone", "w1: joined"]


def gone_and_back(*, keys: Sequence[str]) -> tuple[Play, Node]:
    """A worker that is read, is missing in one answer of its cloud, and is there in the next."""
    first = [hello() + opened() + data(b"1\n", 2), LOST]
    node = Node([first, [NodeGone("w1 is gone")], [hello(), opened(2) + data(b"2\n", 4)]], [*keys])
    play = Play({"a": Node([]), "w1": node})
    play.sink.when_written = seen(play, "2")
    both = [HEAD, worker("w1")]

    def look() -> list[Target]:
        return both if ("w1", "ended") in play.sink.events else [HEAD]

    play.run(TEN, both, newcomers=Newcomers(look, every=0.001))
    return play, node


def test_a_node_that_comes_back_goes_on_where_it_was() -> None:
    play, node = gone_and_back(keys=["ssh-ed25519 AAAA"])
    again = node.asked[1]
    assert [(cursor["path"], cursor["offset"]) for cursor in again["cursors"]] == [
        ("/logs/monitor.log", 2)
    ]
    assert (again["first"], again["session"]) == (False, "session_1")
    assert play.said[1:] == ["w1 is gone", "w1: is listed again", "w1: going on where it was"]


def test_another_machine_of_the_same_name_is_read_from_its_start() -> None:
    play, node = gone_and_back(keys=["ssh-ed25519 AAAA", "ssh-ed25519 BBBB"])
    again = node.asked[1]
    assert (again["first"], again["cursors"], again["tail"]) == (False, [], -1)
    assert play.said[1:] == [
        "w1 is gone",
        "w1: is listed again",
        "w1: another machine has its name now; reading it from its start",
    ]


def test_a_host_key_of_another_kind_is_not_another_machine() -> None:
    _, node = gone_and_back(keys=["ssh-ed25519 AAAA", "ssh-rsa CCCC"])
    assert [cursor["offset"] for cursor in node.asked[1]["cursors"]] == [2]


def test_without_following_a_node_that_is_gone_is_a_failure() -> None:
    with pytest.raises(Unreachable, match="w1 is gone"):
        Play({"w1": Node([[NodeGone("w1 is gone")]])}).run({**TEN, "follow": False})


def test_workers_that_could_not_be_listed_at_first_are_read_as_was_asked() -> None:
    listed_now = NodeGone("a: its workers could not be listed, now they can")
    silent = Unreachable("a: cannot list the workers", why="a timeout")
    stand_in = Node([[silent], [silent], [listed_now]])
    play = Play({"a/workers": stand_in, "a": Node([]), "w1": speaks(b"here\n")})
    # Both in whichever order: the listing by the stand-in, and ours.
    play.sink.when_idle = enough_when(
        lambda: {("a", "here"), ("a/workers", "ended")} <= {*play.sink.events}
    )
    here = [HEAD, unlisted()]
    play.run(TEN, here, newcomers=lists(here, here, [HEAD, worker("w1")]))
    assert [asked["tail"] for asked in play.nodes["w1"].asked] == [10]
    assert [text.partition("\n")[0] for text in play.said] == [
        "error: a: cannot list the workers: a timeout",
        "a: its workers could not be listed, now they can",
    ]


def test_a_cloud_that_falls_silent_costs_no_node() -> None:
    play = Play({"w1": Node([]), "w2": speaks(b"here\n")})
    play.sink.when_written = seen(play, "here")
    looks = ([unlisted()], [worker("w1"), worker("w2")])
    play.run(TEN, [worker("w1")], newcomers=lists(*looks))
    assert [asked["tail"] for asked in play.nodes["w2"].asked] == [-1]
    assert len(play.nodes["w1"].asked) == 1
    assert play.said == ["w2: joined"]


def test_a_node_that_boots_is_given_time() -> None:
    late = Node([dead(), dead(), [hello() + opened() + data(b"here\n", 5)]])
    play = Play({"w1": late})
    play.sink.when_written = seen(play, "here")
    play.run(TEN, [], newcomers=lists([worker("w1")]))
    assert play.said == ["w1: joined"]
    assert late.scripts == []


def test_a_node_that_never_boots_is_told_of_once() -> None:
    clock = [0.0]

    class Dead(Node):
        def open(self, _: Target) -> Node:
            clock[0] += 50.0
            raise Unreachable("w1: cannot be reached", why="Connection refused")

    play = Play({"w1": Dead([])})
    play.sink.when_idle = after_looks(play, "cannot be reached")
    play.run(TEN, [], newcomers=lists([worker("w1")]), now=lambda: clock[0])
    assert play.said == ["w1: joined", "error: w1: cannot be reached: Connection refused"]


def test_a_node_that_ended_with_an_error_does_not_join_again() -> None:
    refusal = frame("error", reason="bad-request", text="no such level")
    node = Node([[hello() + refusal]])
    play = Play({"a": Node([]), "w1": node})
    play.sink.when_idle = after_looks(play, "no such level")
    play.run(TEN, [HEAD], newcomers=lists([HEAD, worker("w1")]))
    assert len(node.asked) == 1


def test_there_is_a_limit_and_it_is_told_once_for_each() -> None:
    known = [target(str(number)) for number in range(MAX_NODES)]
    play = Play({each.name: Node([]) for each in known} | {"w1": Node([])})
    play.sink.when_idle = after_looks(play, "w1")
    play.run(TEN, known, newcomers=lists([*known, worker("w1")]))
    assert play.said == [f"w1: joined, but is not read: {MAX_NODES} nodes are the limit"]
    assert play.nodes["w1"].asked == []


def test_it_ends_at_its_time_although_more_could_join() -> None:
    play = Play({"a": Node([[hello(), CAUGHT_UP, END]])})
    play.run({**TEN, "until": 1.0}, newcomers=lists([HEAD]))
    assert ("a", "ended") in play.sink.events


def test_a_defect_in_looking_ends_the_run() -> None:
    def look() -> list[Target]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Play({"a": Node([])}).run(FOLLOW, newcomers=Newcomers(look, every=0.001))

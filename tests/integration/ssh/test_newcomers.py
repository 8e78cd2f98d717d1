"""Workers that join and go while a fleet's logs are followed, over real SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfleet.cluster.heads import Heads, Target
from rayfleet.log.newcomers import Newcomers
from rayfleet.waiting import wait_until
from tests.support.following import SECONDS, Following, following, request
from tests.support.loopback_fleet import LoopbackFleet
from tests.support.sshd import PROGRAM

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path(PROGRAM).exists(), reason="needs sshd"),
]


@pytest.fixture
def fleet(tmp_path: Path) -> LoopbackFleet:
    """One cluster with a head and a worker."""
    fleet = LoopbackFleet(folder=tmp_path / "fleet")
    fleet.add_head("us-east5")
    fleet.add_worker("us-east5", "worker-a")
    return fleet


@pytest.fixture
def heads(fleet: LoopbackFleet) -> Iterator[Heads]:
    with fleet.heads() as heads:
        yield heads


def lines_of(running: Following, target: Target) -> bytes:
    return b"".join(
        batch.lines for batch in list(running.sink.batches) if batch.node == target.node
    )


def wait_for_lines(running: Following, target: Target, lines: bytes) -> None:
    wait_until(
        lambda: lines_of(running, target) == lines,
        what=f"{lines!r} of {target.name}",
        timeout=SECONDS,
        interval=0.02,
        reason=lambda: f"{lines_of(running, target)!r} {running.said} {running.errors}",
    )


def test_workers_come_and_go_and_no_line_of_theirs_is_missed(
    fleet: LoopbackFleet, heads: Heads, tmp_path: Path
) -> None:
    clusters = [fleet.fleet.clusters["us-east5"]]
    log = tmp_path / "raylet.out"
    log.write_bytes(b"1\n2\n")
    head, first = at_first = heads.targets(clusters, "all")
    with following(
        {},
        request(patterns=[{"glob": str(log), "role": "raylet"}], tail=1),
        targets=at_first,
        connect=heads.open,
        newcomers=Newcomers(lambda: heads.targets(clusters, "all"), every=0.2),
    ) as running:
        for target in at_first:
            wait_for_lines(running, target, b"2\n")
        fleet.add_worker("us-east5", "worker-b")
        running.wait_until_said("us-east5/worker-b: joined")
        (second,) = {*heads.targets(clusters, "workers")} - {first}
        wait_for_lines(running, second, b"1\n2\n")

        del fleet.nodes["us-east5"][first.node]
        fleet.save()
        # As when the machine goes: the connection first.
        heads.open(first).close()
        running.wait_until_said("us-east5/worker-a is gone")
        with log.open("ab") as stream:
            stream.write(b"3\n")
        wait_for_lines(running, head, b"2\n3\n")
        wait_for_lines(running, second, b"1\n2\n3\n")
        assert running.sink.over == ["us-east5/worker-a"]
        assert lines_of(running, first) == b"2\n"


def test_a_worker_that_comes_back_goes_on_and_another_of_its_name_is_read_whole(
    fleet: LoopbackFleet, heads: Heads, tmp_path: Path
) -> None:
    clusters = [fleet.fleet.clusters["us-east5"]]
    log = tmp_path / "raylet.out"
    log.write_bytes(b"1\n2\n")
    (worker,) = at_first = heads.targets(clusters, "workers")
    unlisted = fleet.nodes["us-east5"]

    def leave() -> None:
        """As half an answer of the cloud has it, while the connection breaks."""
        fleet.nodes["us-east5"] = {}
        fleet.save()
        heads.open(worker).close()
        running.wait_until_said("us-east5/worker-a is gone")
        running.said.clear()

    with following(
        {},
        request(patterns=[{"glob": str(log), "role": "raylet"}], tail=-1),
        targets=at_first,
        connect=heads.open,
        newcomers=Newcomers(lambda: heads.targets(clusters, "workers"), every=0.2),
    ) as running:
        wait_for_lines(running, worker, b"1\n2\n")
        leave()
        with log.open("ab") as stream:
            stream.write(b"3\n")
        fleet.nodes["us-east5"] = unlisted
        fleet.save()
        running.wait_until_said("us-east5/worker-a: going on where it was")
        wait_for_lines(running, worker, b"1\n2\n3\n")

        leave()
        # A new machine with files of its own: they begin like those of the old one.
        machine = fleet.folder / "nodes" / worker.node
        for name in ("host_key", "host_key.pub"):
            (machine / name).unlink()
        fleet.add_worker("us-east5", "worker-a")
        running.wait_until_said("another machine has its name now")
        wait_for_lines(running, worker, b"1\n2\n3\n" * 2)

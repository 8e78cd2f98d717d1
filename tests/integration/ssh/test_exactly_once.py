"""Lines are numbered while everything goes wrong: none may be lost, none may come twice."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rayfleet.cluster.channel import Stream
from rayfleet.cluster.head import Head
from rayfleet.cluster.heads import Target
from rayfleet.log.output.sink import Batch
from rayfleet.log.remote import program
from rayfleet.waiting import wait_until
from tests.support.following import (
    SECONDS,
    Following,
    Kept,
    RayFolder,
    following,
    programs,
    request,
    target,
)
from tests.support.log_writer import PATTERNS, WriterProcess
from tests.support.sshd import LocalSshd

pytestmark = pytest.mark.integration

FAULTS = 30
LINES = 8_000
SEED = 6


@dataclass
class Numbers(Kept):
    """A sink that keeps the numbers of the lines: of each log of each head, in their order."""

    came: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    total: Counter[str] = field(default_factory=Counter)

    def write(self, batch: Batch) -> None:
        """Keep the numbers."""
        lines = batch.lines.decode().splitlines()
        for line in lines:
            _, label, name, number = line.rsplit(" ", 3)
            assert name == batch.file
            self.came[label, name].append(int(number))
            self.total[label] += 1


@dataclass
class Machine:
    """A head: an sshd, Ray's folder, and what writes into it."""

    sshd: LocalSshd
    writer: WriterProcess


@dataclass
class World:
    """The heads of two clusters, and what is done to them."""

    folder: Path
    ends: ExitStack
    chance: random.Random
    machines: dict[str, Machine] = field(default_factory=dict)
    # What was written by heads that are no more is not complete.
    gone: list[str] = field(default_factory=list)
    seeds: Iterator[int] = field(default_factory=lambda: iter(range(100)))

    def begin(self, cluster: str) -> None:
        """Start a head with host keys and folders of its own."""
        seed = next(self.seeds)
        label = f"{cluster}-{seed}"
        sshd = LocalSshd(folder=self.folder / label / "sshd")
        sshd.start()
        self.ends.callback(sshd.stop)
        ray = RayFolder(self.folder / label / "ray")
        writer = WriterProcess.start(ray, label, seed)
        self.ends.callback(writer.kill)
        self.machines[cluster] = Machine(sshd, writer)

    def connect(self, target: Target) -> Head:
        """Open the head that a cluster has now."""
        address = self.machines[target.name].sshd.address(target.name)
        return Head.open(address, timeout=SECONDS)

    def start(self, head: Head, asked: Mapping[str, Any]) -> Stream:
        """Start the program for the folder of Ray that is on this head."""
        root = self.machines[head.address.cluster].writer.ray.root
        given = program.payload({**asked, "root": str(root)})
        return head.stream(program.command("", len(given)), given=given)

    def cut(self, cluster: str) -> None:
        """The connection goes away."""
        self.machines[cluster].sshd.kill_sessions()

    def kill(self, cluster: str) -> None:
        """The program on the head is killed."""
        for pid in programs(self.machines[cluster].sshd):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)

    def be_away(self, cluster: str) -> None:
        """Nobody answers for a while."""
        sshd = self.machines[cluster].sshd
        sshd.stop()
        sshd.start()

    def replace(self, cluster: str) -> None:
        """The head is lost with all that it has, and another one takes its place."""
        lost = self.machines[cluster]
        lost.writer.finish()
        lost.sshd.stop()
        self.gone.append(lost.writer.label)
        self.begin(cluster)
        self.machines[cluster].writer.go()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two heads."""
    with ExitStack() as ends:
        world = World(tmp_path, ends, random.Random(SEED))  # noqa: S311 (a repeatable story)
        world.begin("us-east5")
        world.begin("eu-west4")
        yield world


def test_every_line_comes_exactly_once_whatever_happens(world: World) -> None:
    numbers = Numbers()
    clusters = list(world.machines)
    faults = ["replace", *world.chance.choices(["cut", "cut", "kill", "be_away"], k=FAULTS)]
    # The head is lost amid the rest.
    faults.insert(FAULTS // 2, faults.pop(0))
    options = {"connect": world.connect, "start": world.start}
    with following(
        {},
        request(patterns=PATTERNS),
        sink=numbers,
        targets=[target(each) for each in clusters],
        **options,
    ) as run:
        wait_until(lambda: len(numbers.caught) == 2, what="both heads", timeout=SECONDS)
        for machine in world.machines.values():
            machine.writer.go()
        for fault in faults:
            cluster = world.chance.choice(clusters)
            getattr(world, fault)(cluster)
            # Some faults meet a follower that is well again, some one that just comes back.
            if world.chance.random() < 0.7:
                wait_for_more(run, numbers, world.machines[cluster].writer.label)
        # So many lines that every kind of event was met several times.
        for machine in world.machines.values():
            wait_for_more(run, numbers, machine.writer.label, than=LINES)
        written = {each.writer.label: each.writer.finish() for each in world.machines.values()}
        wanted = {label: sum(lines.values()) for label, (lines, _) in written.items()}
        wait_until(
            lambda: all(numbers.total[label] >= wanted[label] for label in wanted),
            what=f"{wanted} lines",
            timeout=SECONDS,
            reason=lambda: f"{numbers.total} came; {run.said[-5:]} {run.errors}",
        )
    for label, (lines, done) in written.items():
        came = {name: numbers.came[label, name] for name in lines}
        assert came == {name: list(range(count)) for name, count in lines.items()}
        assert done.keys() >= {"renamed", "numbered", "copied", "worker", "session"}
    assert len(world.gone) == 1
    assert {label for label, _ in numbers.came} == {*written, *world.gone}
    for (label, name), found in numbers.came.items():
        assert found == list(range(len(found))), (label, name)
    assert len([text for text in run.said if "trying to come back" in text]) >= FAULTS // 4


def wait_for_more(run: Following, numbers: Numbers, label: str, than: int = 0) -> None:
    enough = than or numbers.total[label]
    wait_until(
        lambda: numbers.total[label] > enough,
        what=f"more than {enough} lines of {label}",
        timeout=SECONDS,
        interval=0.02,
        reason=lambda: f"{run.said[-5:]} {run.errors}",
    )

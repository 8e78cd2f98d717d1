"""A process that writes the logs of a Ray head, rotates them, and begins new sessions.

Each line ends with the label of the head, the log's name and a number that counts up from 0
through all rotations and sessions. It begins at a line on stdin, writes until the end of it, and
then prints how many lines each log has, and how often it did what::

    python -m tests.support.log_writer ROOT LABEL SEED
"""

from __future__ import annotations

import json
import random
import select
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.following import RayFolder

STARTED_SECONDS = 30.0
LOGS = ("monitor.log", "raylet.out", "monitor.out")
PATTERNS = [{"glob": glob, "role": "test"} for glob in (*LOGS, "worker-*.out")]
PACE_SECONDS = 0.004
KEPT = 60  # rotated files; more of them would be lost for a reader who is away
EVENTS = ("renamed", "numbered", "copied", "worker", "renamed", "copied", "numbered", "session")
STEPS_BETWEEN = 25


@dataclass
class Writer:
    """Writes one head's logs."""

    ray: RayFolder
    label: str
    chance: random.Random
    hour: int
    steps: int = 0
    lines: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)

    def session(self) -> None:
        """Begin a session; the names hold the time, and later heads have later ones."""
        self.done["session"] += 1
        self.ray.begin(f"session_2026-11-21_{self.hour:02}-00-{self.done['session']:02}_000000_1")
        for name in LOGS:
            (self.ray.logs / name).touch()

    def write(self, name: str, count: int) -> None:
        """Write lines; now and then one comes in two halves."""
        first = self.lines[name]
        text = "".join(self._line(name, number) for number in range(first, first + count))
        cut = self.chance.randrange(len(text))
        with (self.ray.logs / name).open("a") as file:
            file.write(text[:cut])
            file.flush()
            if self.chance.random() < 0.1:
                time.sleep(PACE_SECONDS)
            file.write(text[cut:])
        self.lines[name] += count

    def step(self) -> None:
        """Write a little; now and then, what else happens is next."""
        self.write(self.chance.choice(LOGS), self.chance.randrange(1, 20))
        self.steps += 1
        number, rest = divmod(self.steps, STEPS_BETWEEN)
        if not rest:
            what = EVENTS[number % len(EVENTS)]
            self.done[what] += what != "session"
            getattr(self, what)()

    def renamed(self) -> None:
        """Rotate as Python's handlers do: name.log.1 is the one before."""
        self._shift("monitor.log", "monitor.log.{}")

    def numbered(self) -> None:
        """Rotate as Ray's C++ processes do: name.1.out is the one before."""
        self._shift("raylet.out", "raylet.{}.out")

    def copied(self) -> None:
        """Rotate as logrotate's copytruncate does."""
        logs = self.ray.logs
        self._make_room("monitor.out.{}")
        shutil.copyfile(logs / "monitor.out", logs / "monitor.out.1")
        with (logs / "monitor.out").open("r+b") as file:
            file.truncate(0)

    def worker(self) -> None:
        """A worker comes, prints something, and goes."""
        self.write(f"worker-{self.done['worker']}.out", 30)

    def _line(self, name: str, number: int) -> str:
        padding = "x" * self.chance.randrange(80)
        return (
            f"2026-11-21 20:00:00,000\tINFO writer.py:1 -- {padding} {self.label} {name} {number}\n"
        )

    def _shift(self, name: str, older: str) -> None:
        self._make_room(older)
        (self.ray.logs / name).rename(self.ray.logs / older.format(1))
        (self.ray.logs / name).touch()

    def _make_room(self, older: str) -> None:
        for number in range(KEPT, 0, -1):
            path = self.ray.logs / older.format(number)
            if path.exists():
                path.rename(self.ray.logs / older.format(number + 1))


@dataclass
class WriterProcess:
    """A writer in a process of its own."""

    ray: RayFolder
    label: str
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, ray: RayFolder, label: str, seed: int) -> WriterProcess:
        """Start it; its first session is there when this returns."""
        words = [sys.executable, "-m", __name__, str(ray.root), label, str(seed)]
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], STARTED_SECONDS)[0]
        assert process.stdout.readline() == "begun\n"
        return cls(ray, label, process)

    def go(self) -> None:
        """Let it write."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def finish(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """End it: how many lines each log has, and how often it did what."""
        output, _ = self.process.communicate(timeout=STARTED_SECONDS)
        lines, done = json.loads(output)
        return lines, done

    def kill(self) -> None:
        """End it whatever it does; fine when it has ended."""
        self.process.kill()
        self.process.wait()


def main(root: str, label: str, seed: str) -> None:
    """Wait for a line on stdin, then write until the end of it."""
    ray, chance = RayFolder(Path(root)), random.Random(int(seed))  # noqa: S311 (no secret)
    writer = Writer(ray, label, chance, hour=int(seed))
    writer.session()
    writer.worker()
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    sys.stdin.readline()
    while not select.select([sys.stdin], [], [], PACE_SECONDS)[0]:
        writer.step()
    sys.stdout.write(json.dumps([writer.lines, writer.done]))


if __name__ == "__main__":
    main(*sys.argv[1:])

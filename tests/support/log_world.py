"""The logs of a node as Ray and logrotate treat them, with a record of every line."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

BACKUPS = 3

Key = tuple[str, str]


@dataclass
class Story:
    """All lines of one log of one session, in the order in which they were written.

    ``lost`` are those that no reader can be expected to have seen.
    """

    lines: list[str] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)

    def problem(self, received: list[str]) -> str:
        """What is wrong with what a reader received; empty when nothing is."""
        at = -1
        index = {line: number for number, line in enumerate(self.lines)}
        for line in received:
            number = index.get(line)
            if number is None:
                return f"never written: {line!r}"
            if number <= at:
                return f"again or too late: {line!r}"
            at = number
        seen = set(received)
        missing = [
            line
            for number, line in enumerate(self.lines)
            if line not in seen and number not in self.lost
        ]
        return f"missing: {missing[0]!r} and {len(missing) - 1} more" if missing else ""


class World:
    """A folder like /tmp/ray. ``inner`` names rotated files as Ray's C++ programs do."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stories: dict[Key, Story] = {}
        self.session = ""
        self._number = 0
        self._clock = 1_700_000_000_000_000_000
        # Which lines are in which file, and what a line without an end says so far.
        self._content: dict[Path, list[tuple[Key, int]]] = {}
        self._begun: dict[Key, str] = {}
        self._renames: dict[Key, list[tuple[Path, Path]]] = {}
        self._copied: dict[Key, int] = {}

    def flip(self) -> None:
        """Ray is started again: a new session folder, and session_latest points to it."""
        for key in list(self.stories):
            self.settle(key[1])
            self.die(key)
        self._number += 1
        self.session = f"session_2026-11-21_00-00-{self._number:02}_0_1"
        self.logs.mkdir(parents=True)
        link = self.root / "session_latest"
        link.unlink(missing_ok=True)
        link.symlink_to(self.root / self.session)

    def replace(self, *, same_session: bool) -> None:
        """The machine is gone with all that was not read yet, and another one has its place.

        A Ray that keeps its state elsewhere also keeps the name of its session.
        """
        for key in list(self.stories):
            self.settle(key[1])
            self._begun.pop(key, None)
        self.everything_is_lost()
        self._content.clear()
        for entry in list(self.root.iterdir()):
            entry.unlink() if entry.is_symlink() else shutil.rmtree(entry)
        self._number -= same_session
        self.flip()

    def write_late(self, name: str) -> None:
        """A program of an earlier session, still running for a moment, writes a line."""
        for key, story in list(self.stories.items()):
            live = self._live(key)
            if key[1] != name or key[0] == self.session or not live.exists():
                continue
            if live.read_bytes().endswith(b"\n"):
                self._append(key, self._new(key, 20) + "\n")
                story.lost.add(len(story.lines) - 1)

    @property
    def logs(self) -> Path:
        """The folder of logs of the latest session."""
        return self.root / self.session / "logs"

    def write(self, name: str, count: int, size: int) -> None:
        """Append ``count`` whole lines of about ``size`` bytes."""
        self.settle(name)
        self.write_meanwhile(name, count, size)

    def write_meanwhile(self, name: str, count: int, size: int) -> None:
        """The same while the log is being rotated or copied."""
        key = self.session, name
        self.complete(key)
        if not count:
            return
        self._append(key, "".join(self._new(key, size) + "\n" for _ in range(count)))

    def begin_line(self, name: str, size: int) -> None:
        """Append a line without its end; the next write gives it one."""
        key = self._settled(name)
        self.complete(key)
        text = self._new(key, size)
        cut = len(text) // 2
        self._begun[key] = text[cut:] + "\n"
        self._append(key, text[:cut])

    def complete(self, key: Key) -> None:
        """Give the last line its end."""
        rest = self._begun.pop(key, "")
        if rest:
            self._append(key, rest, new=False)

    def die(self, key: Key) -> None:
        """The program ends in the middle of its line."""
        rest = self._begun.pop(key, "")
        if rest:
            line = self.stories[key].lines[-1]
            self.stories[key].lines[-1] = line[: len(line) + 1 - len(rest)]

    def rotate(self, name: str, *, at_once: bool, inner: bool) -> None:
        """Rename all generations; the new file comes with the next write.

        When not ``at_once``, each call of :meth:`settle_one` renames one.
        """
        key = self._settled(name)
        self.die(key)
        if self._live(key).exists():
            steps = range(BACKUPS, 0, -1)
            self._renames[key] = [
                (self._path(key, step - 1, inner), self._path(key, step, inner)) for step in steps
            ]
        if at_once:
            self.settle(name)

    def settle_one(self, name: str) -> None:
        """Rename one more of the files of a rotation."""
        steps = self._renames.get((self.session, name))
        if steps:
            self._rename(*steps.pop(0))

    def settle(self, name: str) -> None:
        """Finish what was begun with a log: a rotation, a copy."""
        key = (self.session, name)
        for step in self._renames.pop(key, ()):
            self._rename(*step)
        self.truncate(name)

    def copy(self, name: str) -> None:
        """The first half of copytruncate: the older ones renamed, the live one copied."""
        key = self._settled(name)
        self.complete(key)
        live = self._live(key)
        if not live.exists():
            return
        for step in range(BACKUPS, 1, -1):
            self._rename(self._path(key, step - 1, False), self._path(key, step, False))
        copy = self._path(key, 1, False)
        self._forget(copy)
        shutil.copyfile(live, copy)
        self._touch(copy)
        self._content[copy] = list(self._content[live])
        self._copied[key] = len(self._content[live])

    def truncate(self, name: str) -> None:
        """The second half; what was written since the copy is lost."""
        key = (self.session, name)
        if key in self._copied:
            live = self._live(key)
            self.complete(key)
            lost = self._content[live][self._copied.pop(key) :]
            self.stories[key].lost.update(number for _, number in lost)
            os.truncate(live, 0)
            self._touch(live)
            self._content[live] = []

    def delete_oldest(self, name: str) -> None:
        """Somebody makes room."""
        key = self._settled(name)
        for inner in (False, True):
            for step in range(BACKUPS, 0, -1):
                path = self._path(key, step, inner)
                if path.exists():
                    self._forget(path)
                    path.unlink()
                    return

    def everything_is_lost(self) -> None:
        """What was written so far is expected of nobody."""
        for story in self.stories.values():
            story.lost.update(range(len(story.lines)))

    def finish(self) -> None:
        """Complete all that was begun; a file that was rotated ends when the next one begins."""
        for session, name in list(self.stories):
            if session == self.session:
                self.settle(name)
                self.write(name, 1, 20)
            if self._live((session, name)).exists():
                self.complete((session, name))

    def _settled(self, name: str) -> Key:
        self.settle(name)
        return self.session, name

    def _new(self, key: Key, size: int) -> str:
        story = self.stories.setdefault(key, Story())
        # Told apart early, as lines with their time are.
        text = f"{len(story.lines):05} {key[1]} {key[0][-8:]} "
        text = (text * (size // len(text) + 1))[: max(size, len(text))].strip()
        story.lines.append(text)
        self._content.setdefault(self._live(key), []).append((key, len(story.lines) - 1))
        return text

    def _append(self, key: Key, text: str, *, new: bool = True) -> None:
        live = self._live(key)
        with live.open("a") as stream:
            stream.write(text)
        self._touch(live)

    def _touch(self, path: Path) -> None:
        # The kernel's clock ticks too seldom for a test.
        self._clock += 1_000_000
        os.utime(path, ns=(self._clock, self._clock))

    def _live(self, key: Key) -> Path:
        return self.root / key[0] / "logs" / key[1]

    def _path(self, key: Key, step: int, inner: bool) -> Path:
        live = self._live(key)
        if step == 0:
            return live
        name = f"{live.stem}.{step}{live.suffix}" if inner else f"{live.name}.{step}"
        return live.with_name(name)

    def _rename(self, source: Path, target: Path) -> None:
        if source.exists():
            self._forget(target)
            source.rename(target)
            self._content[target] = self._content.pop(source)

    def _forget(self, path: Path) -> None:
        for key, number in self._content.pop(path, ()):
            if not any((key, number) in lines for lines in self._content.values()):
                self.stories[key].lost.add(number)

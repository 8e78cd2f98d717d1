"""What runs on a node: it follows the wanted files and writes what comes as frames.

The request is one line of JSON on stdin, after the program itself. It ends when nobody reads its
output any more. Sent to the nodes: Python 3.8, the standard library only.
"""

# pathlib takes longer to import than the program to start.
# ruff: noqa: PTH117, PTH118

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import sys
import time

from rayfleet.log.remote.family import Folder, folders
from rayfleet.log.remote.frames import Frames
from rayfleet.log.remote.lineage import MOVED, Lineage
from rayfleet.log.remote.reader import Rewritten, read
from rayfleet.log.remote.request import Request
from rayfleet.log.remote.session import Sessions
from rayfleet.log.remote.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rayfleet.log.remote.cursor import Track
    from rayfleet.log.remote.family import Member, Pattern
    from rayfleet.log.remote.lineage import Start

    Key = tuple[str, str, str]

# Between two looks that are due to renamed files; a rotation comes as several events.
RUSH_SECONDS = 0.02
UNTIL_GRACE_SECONDS = 1.0
# Between two frames that only tell that unwanted lines were read.
TOLD_SECONDS = 1.0


class Node:
    """Follows everything that a request wants on this node."""

    def __init__(self, request: Request, frames: Frames, watch: Watch) -> None:
        self._request, self._frames, self._watch = request, frames, watch
        self._tracks = {track.identity: track for track in request.cursors}
        self._sessions = Sessions(request.root, request.cursors, request.session)
        self._begun = request.begun()
        self._folders: dict[tuple[str, str], Folder] = {}
        self._lineages: dict[Key, Lineage] = {}
        self._watched: dict[int, Track] = {}
        self._watching: dict[str, int] = {}
        self._holding: set[Track] = set()
        self._start: Start | None = request.start
        self._unsettled = False
        self._look_at = self._looked_at = 0.0
        self._ending = not request.follow
        self._said: set[str] = set()

    def run(self) -> None:
        """Follow until nobody reads us, or, when not following, until all is read."""
        if not self.begin(time.monotonic()):
            return
        caught_up = False
        while True:
            now = time.monotonic()
            if self.turn(now):
                continue
            if self._is_settled() and not caught_up:
                caught_up = True
                self._frames.send("caught-up")
            if self._is_settled() and self._is_over(now):
                self._frames.send("end")
                return
            happened = self._watch.wait(self._pause(now))
            if happened is None:
                return
            self._woken(happened)

    def begin(self, now: float) -> bool:
        """Greet, and tell of the files that are there; False when there is nothing to do."""
        self._sessions.look(now)
        self._frames.send(
            "hello",
            utc_offset=self._request.utc_offset,
            session=self._sessions.latest,
            host=os.uname().nodename,
        )
        self._sessions.open_next(now)
        self._look(now)
        while self._unsettled:
            time.sleep(RUSH_SECONDS)
            self._look(now)
        return not self._has_nothing()

    def turn(self, now: float) -> bool:
        """Look for files when it is time, and read a piece of each; True when there is more.

        ``now`` is in seconds of one clock, whichever.
        """
        if now >= self._look_at:
            self._look(now)
        if self._pump(now):
            return True
        if self._is_settled() and self._sessions.open_next(now):
            self._look(now)
            return True
        return False

    def close(self) -> None:
        """Close all files."""
        for lineage in self._lineages.values():
            for track in lineage.queue:
                track.close()

    def _is_settled(self) -> bool:
        """False while files are renamed: there may be more than was seen."""
        return self._look_at >= self._looked_at + self._request.poll_seconds

    def _has_nothing(self) -> bool:
        """Tell when there is nothing to read, and whether that is the end of it."""
        if self._lineages:
            return False
        reason, text = "no-files", "no log there has such a name"
        if not self._sessions.latest and not all(
            os.path.isabs(pattern.folder) for pattern in self._request.patterns
        ):
            reason, text = "no-ray", f"no session of Ray in {self._request.root}"
        if self._request.follow:
            self._frames.send("say", text=f"{text} yet; waiting for it")
            return False
        self._frames.send("error", reason=reason, text=text)
        return True

    def _pause(self, now: float) -> float:
        wake = min([self._look_at, *(track.hold for track in self._holding)])
        return min(wake - now, self._frames.beat())

    def _woken(self, happened: set[int]) -> None:
        for number in happened:
            track = self._watched.get(number)
            if track is None:
                self._look_at = min(self._look_at, self._looked_at + RUSH_SECONDS)
            else:
                track.pending = True

    def _is_over(self, now: float) -> bool:
        if self._ending:
            return True
        until = self._request.until
        if until is None or time.time() < until + UNTIL_GRACE_SECONDS:
            return False
        # Once more, for what was written meanwhile and for last lines without an end.
        self._ending = True
        self._look(now)
        for lineage in self._lineages.values():
            for track in lineage.queue:
                track.pending = True
        return False

    # Looking for files

    def _look(self, now: float) -> None:
        self._look_at, self._looked_at = now + self._request.poll_seconds, now
        self._unsettled = False
        if self._sessions.look(now) and self._sessions.open:
            self._say(f"a new session of Ray: {self._sessions.latest}")
        self._follow_names(self._sessions.root)
        absolute = folders("/", self._request.patterns, absolute=True)
        self._look_into("", "", absolute)
        for session in self._sessions.open:
            logs = self._sessions.logs(session)
            relative = folders(logs, self._request.patterns, absolute=False)
            self._look_into(session, logs, relative)
        for session in self._sessions.over(now):
            self._close(session)
        if self._unsettled:
            self._look_at = now + RUSH_SECONDS
        else:
            self._start = None

    def _look_into(self, session: str, logs: str, wanted: dict[str, list[Pattern]]) -> None:
        for path, patterns in wanted.items():
            folder = self._folders.get((session, path))
            if folder is None:
                folder = self._folders[session, path] = Folder(path, patterns)
            try:
                families = folder.look()
            except OSError as error:
                if not isinstance(error, FileNotFoundError):
                    self._say(f"cannot read {path}: {error.strerror}")
                families = {}
            if families is None:
                self._unsettled = True
                continue
            self._follow_names(path)
            for name, members in families.items():
                self._update((session, path, name), folder.role(name), logs, members)
            for key in [*self._lineages, *self._begun]:
                if key[:2] == (session, path) and key[2] not in families:
                    self._update(key, folder.role(key[2]), logs, [])

    def _update(self, key: Key, role: str, logs: str, members: list[Member]) -> None:
        session, path, name = key
        lineage = self._lineages.get(key)
        if lineage is None:
            shown = os.path.join(path, name)
            if logs and shown.startswith(logs + "/"):
                shown = shown[len(logs) + 1 :]
            begun = self._begun.pop(key, [])
            for track in begun:
                track.name, track.role, track.quiet = shown, role, self._looked_at
            lineage = Lineage(session, shown, role, self._tracks, begun, self._start)
            self._lineages[key] = lineage
        elif not members and not lineage.queue:
            return
        for track in lineage.update(members, self._looked_at):
            self._frames.file(track)
        self._unsettled = self._unsettled or lineage.moved
        for refused, why in lineage.refused.items():
            self._say(f"cannot read {refused}: {why}")
        lineage.refused.clear()

    def _follow_names(self, path: str) -> None:
        if path not in self._watching:
            number = self._watch.folder(path)
            if number >= 0:
                self._watching[path] = number

    def _close(self, session: str) -> None:
        """Finish the files of a session that is over, and forget them when that is done."""
        keys = [key for key in self._lineages if key[0] == session]
        lineages = [self._lineages[key] for key in keys]
        if not all(lineage.closing and not lineage.queue for lineage in lineages):
            for lineage in lineages:
                lineage.closing = True
            self._look_at = self._looked_at + RUSH_SECONDS
            return
        self._sessions.close(session)
        for key in keys:
            del self._lineages[key]
        for folder in [key for key in self._folders if key[0] == session]:
            del self._folders[folder]
            self._watch.forget(self._watching.pop(folder[1], -1))

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._frames.send("say", text=text)

    # Reading them

    def _pump(self, now: float) -> bool:
        """Read a piece of each log that has something; True when there may be more."""
        busy = False
        for lineage in list(self._lineages.values()):
            for track in lineage.queue:
                if track.hold and now >= track.hold:
                    track.pending = True
                if track.pending:
                    busy = self._step(lineage, track, now) or busy
                    break
        return busy

    def _step(self, lineage: Lineage, track: Track, now: float) -> bool:
        """Read a piece of a file; True when there may be more in it or behind it."""
        fd = lineage.open(track)
        if fd < 0:
            # One that moved is waited for, because it comes before those behind it.
            track.pending = fd == MOVED
            self._look_at = min(self._look_at, self._looked_at + RUSH_SECONDS)
            return False
        if track.watch < 0 and not track.final:
            track.watch = self._watch.file(fd)
            if track.watch >= 0:
                self._watched[track.watch] = track
        final = track.final or self._ending
        try:
            piece = read(track, fd, self._request.chunk_bytes, final=final, now=now)
        except Rewritten:
            lineage.doubt(track)
            self._look_at = self._looked_at + RUSH_SECONDS
            return False
        (self._holding.add if track.hold else self._holding.discard)(track)
        if piece is None:
            track.pending = False
            if track.final:
                self._finish(lineage, track)
                return True
            return False
        if not track.offset and lineage.may_have_missed(track):
            self._look(now)
            if self._unsettled or lineage.queue[:1] != [track]:
                return not self._unsettled
        if track.done:
            track.done = False
            self._frames.file(track)
        if track.keep is None:
            track.keep = self._request.keep(track.name)
        lines = track.keep(piece.lines)
        track.advance(piece.block, piece.end)
        track.quiet = now
        if lines or now - track.told > TOLD_SECONDS:
            self._frames.data(track, lines, cut=piece.cut)
            track.told = now
        track.pending = piece.more or track.final
        return track.pending

    def _finish(self, lineage: Lineage, track: Track) -> None:
        self._holding.discard(track)
        if track.watch >= 0:
            self._watched.pop(track.watch, None)
            self._watch.forget(track.watch)
            track.watch = -1
        lineage.finish(track)
        self._frames.done(track)


def main(line: bytes, output: int) -> int:
    """Answer the request in ``line`` on the descriptor ``output``; the exit code."""
    frames = Frames(output)
    _allow_many_files()
    try:
        frames.begin()
        try:
            request = Request(json.loads(line))
        except (KeyError, ValueError, TypeError, re.error) as error:
            frames.send("error", reason="bad-request", text=f"{type(error).__name__}: {error}")
            return 2
        Node(request, frames, Watch(output)).run()
    except BrokenPipeError:
        return 0  # as when it is seen while waiting
    return 0


def _allow_many_files() -> None:
    """Each followed file is open, and a node may have thousands of workers."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer.readline(), 1))

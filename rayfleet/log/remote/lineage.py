"""One log through its rotations: in which of its files we are, and what is to be read next.

Every file of a family is read in the order of their age, each from the place up to which it was
read before, else from its start. That a file was read before is told by its inode and its
mark. What is unknown is a new file, or a copy (copytruncate) of one that was read.

Sent to the nodes: Python 3.8, the standard library only.
"""

# pathlib takes longer to import than the program to start.
# ruff: noqa: PTH116, PTH122

from __future__ import annotations

import os

from rayfleet.log.remote.cursor import Track
from rayfleet.log.remote.family import LIVE, Member, moved_to_old
from rayfleet.log.remote.reader import since_start, tail_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

GHOSTS = 32
QUIET_SECONDS = 30.0
"""After so long without a line, a file that was taken away is not expected to grow."""

REFUSED, MOVED = -1, -2
_COMPARED = 64 * 1024


class Start:
    """Where to begin in a log that was there before us: ``tail`` lines back (-1: everything),
    and not before ``since``."""

    __slots__ = ("since", "tail", "utc_offset")

    def __init__(self, tail: int, since: float | None, utc_offset: int) -> None:
        self.tail, self.since, self.utc_offset = tail, since, utc_offset


class Lineage:
    """The files of one family. ``tracks`` are all that are known on the node, by identity.
    ``start`` is for a log that was there before us; without it, a log is read from its beginning.

    ``queue`` are the tracks to read, the oldest file first; a later one is not read before
    those in front of it are at their end. ``refused`` is why a file could not be opened.
    ``closing``: the session is over, and nothing more is expected of any file.
    """

    def __init__(
        self,
        session: str,
        name: str,
        role: str,
        tracks: dict[tuple[int, int], Track],
        begun: Iterable[Track] = (),
        start: Start | None = None,
    ) -> None:
        self.session, self.name, self.role = session, name, role
        self.queue: list[Track] = []
        self.refused: dict[str, str] = {}
        self.closing = self.moved = False
        self._start = start
        self._tracks = tracks
        self._begun = [track for track in begun if tracks.get(track.identity) is track]
        # What was seen last, and whether seeing the same again means that nothing is to be done.
        self._sight: list[tuple[tuple[int, int], int, int, int]] = []
        self._at_rest = False
        # Tracks whose files are gone or were written anew: copies are recognised by them.
        self._ghosts: list[Track] = []
        self._truncated: list[Track] = []

    def update(self, members: list[Member], now: float) -> list[Track]:
        """Take in what the folder holds now; the tracks that are read from now on.

        ``now`` is in seconds of any clock. Afterwards, ``moved`` is true when files were renamed
        meanwhile, and the folder must be looked at again.
        """
        sight = [(member.identity, member.order, member.size, member.time) for member in members]
        if sight == self._sight and self._at_rest and not self.closing:
            return []
        self._at_rest = self.moved = False
        known = [self._known(member) for member in members]
        gone = self._gone({member.identity for member in members})
        fresh = self._opened(members, known)
        if self.moved:
            for track in fresh.values():
                track.close()
            return []
        places = [0] * len(members)
        if self._start and not self._begun and not any(known):
            places = self._first_places(members, fresh, self._start)
        for index, track in fresh.items():
            if self._begin(track, members[index], members[-1], places[index], now):
                known[index] = track
        self._start, self._begun, self._truncated = None, [], []
        del self._ghosts[:-GHOSTS]
        self._line_up(gone, members, known, now)
        self._sight = sight
        self._at_rest = not gone and None not in known
        return [track for track in self.queue if not track.id and not track.done]

    def open(self, track: Track) -> int:
        """The descriptor of a track, opened if it is not; REFUSED or MOVED when it cannot be."""
        if track.fd >= 0:
            return track.fd
        try:
            fd = os.open(track.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return MOVED
        except OSError as error:
            self.refused[track.path] = os.strerror(error.errno or 0)
            return REFUSED
        info = os.fstat(fd)
        if (info.st_dev, info.st_ino) != track.identity:
            os.close(fd)
            return MOVED
        track.fd = fd
        return fd

    def may_have_missed(self, track: Track) -> bool:
        """True when a file stands beside a track that has to be looked at before it is read.

        As long as nothing was read of a file, nothing tells that it was copied and truncated.
        """
        stem, suffix = os.path.splitext(track.path)
        for before, behind in ((track.path, ""), (stem, suffix)):
            number, missing = 1, 0
            # While files are renamed, one of them is missing.
            while missing < 2:
                try:
                    info = os.stat(f"{before}.{number}{behind}")
                except OSError:
                    missing += 1
                else:
                    missing = 0
                    if info.st_size and (info.st_dev, info.st_ino) not in self._tracks:
                        return True
                number += 1
        return False

    def doubt(self, track: Track) -> None:
        """What was read of a track is not in its file any more."""
        track.pending, track.seen = False, None
        self._at_rest = False

    def finish(self, track: Track) -> None:
        """Nothing more is expected of a track."""
        track.done, track.pending = True, False
        track.close()

    def _known(self, member: Member) -> Track | None:
        """The track of a file that is still the one that was read; else it becomes a ghost."""
        track = self._tracks.get(member.identity)
        if track is None:
            return None
        if not (track.id or track.offset or track in self._begun):
            # Of its file, nothing but the inode is known, and that of another log has it now.
            self._lose(track)
            return None
        if not track.name:
            track.name, track.role = self.name, self.role
        track.path = member.path
        if track.seen == (member.size, member.time):
            return track
        fd = self.open(track)
        if fd < 0:
            return track
        info = os.fstat(fd)
        right = info.st_size >= track.offset and track.confirmed(fd)
        if track.done:
            track.close()
        if not right:
            self._lose(track)
            self._truncated.append(track)
            # A copy of it may have come after the folder was listed.
            self.moved = True
            return None
        track.seen = (info.st_size, info.st_mtime_ns)
        grown = info.st_size > track.offset
        track.pending = track.pending or grown or not (track.id or track.done)
        return track

    def _gone(self, listed: set[tuple[int, int]]) -> list[Track]:
        """The tracks whose files are in the folder no more, but can still be read."""
        gone: list[Track] = []
        for track in [*self._begun, *self.queue]:
            if track.identity in listed or self._tracks.get(track.identity) is not track:
                continue
            if track in gone:
                continue
            if track.fd < 0:
                self._find_again(track)
            if not track.done and track.fd >= 0 and track.confirmed(track.fd):
                gone.append(track)
            else:
                self._lose(track)
        return gone

    def _find_again(self, track: Track) -> None:
        member = moved_to_old(track.path)
        if member is not None and member.identity == track.identity:
            self._known(member)

    def _lose(self, track: Track) -> None:
        track.close()
        self._tracks.pop(track.identity, None)
        self._ghosts.append(track)

    def _opened(self, members: list[Member], known: list[Track | None]) -> dict[int, Track]:
        """Tracks for files that are not known, open."""
        fresh: dict[int, Track] = {}
        for index in range(len(members) - 1, -1, -1):
            member, track = members[index], known[index]
            if track and track.offset:
                # What is unknown but older than what was read is a copy that is being made, or
                # it was read so long ago that it was forgotten.
                break
            if track or not (member.size or member.order == LIVE):
                continue
            track = Track(member.path, *member.identity, self.session)
            opened = self.open(track)
            if opened == MOVED:
                self.moved = True
            elif opened != REFUSED:
                fresh[index] = track
        return dict(sorted(fresh.items()))

    def _begin(self, track: Track, member: Member, newest: Member, place: int, now: float) -> bool:
        """Take up a new file, unless it is a copy that is being made."""
        size = os.fstat(track.fd).st_size
        if member is not newest and _is_copy(track.fd, size, newest):
            track.close()
            return False
        place = max(place, self._copied(track.fd, size, live=member.order == LIVE))
        track.name, track.role, track.quiet = self.name, self.role, now
        track.place(track.fd, min(place, size))
        track.pending = True
        self._tracks[track.identity] = track
        if member.order != LIVE:
            # Else a deleted file would take its room until we are there.
            track.close()
        return True

    def _copied(self, fd: int, size: int, *, live: bool) -> int:
        """Up to where a new file is a copy of one that was read; 0 when it is none."""
        for ghost in reversed(self._ghosts):
            truncated = ghost in self._truncated and not live
            offset = ghost.copied_to(fd, size, truncated=truncated)
            if offset >= 0:
                self._ghosts.remove(ghost)
                return offset
        return 0

    def _line_up(
        self, gone: list[Track], members: list[Member], known: list[Track | None], now: float
    ) -> None:
        for track in gone:
            quiet = now - track.quiet > QUIET_SECONDS
            track.final = self.closing or quiet or any(member.size for member in members)
            track.pending = True
        newer = False
        lined_up = []
        for index in range(len(members) - 1, -1, -1):
            member, found = members[index], known[index]
            if found is not None:
                found.final = self.closing or (newer and member.order != LIVE)
                if not found.done or found.pending:
                    found.pending = found.pending or found.final
                    lined_up.append(found)
            newer = newer or member.size > 0
        self.queue = [*gone, *reversed(lined_up)]

    def _first_places(
        self, members: list[Member], fresh: dict[int, Track], start: Start
    ) -> list[int]:
        """Where to begin in each file, counting lines from the newest file backwards."""
        places = [member.size for member in members]
        wanted = start.tail
        for index in sorted(fresh, reverse=True):
            fd, size, place = fresh[index].fd, members[index].size, 0
            # What has not been written to since then holds nothing of it, dated or not.
            if start.since is not None and members[index].time < start.since * 1e9:
                break
            if start.tail >= 0:
                place, found = tail_start(fd, size, wanted)
                wanted -= found
            if start.since is not None:
                place = max(place, since_start(fd, size, start.since, start.utc_offset))
            places[index] = place
            if place > 0 or wanted == 0:
                break
        return places


def _is_copy(fd: int, size: int, newest: Member) -> bool:
    """True when the file is a copy of the beginning of the one that is written."""
    if newest.order != LIVE or size > newest.size:
        return False
    compared = min(size, _COMPARED)
    try:
        live = os.open(newest.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.pread(live, compared, 0) == os.pread(fd, compared, 0)
    finally:
        os.close(live)

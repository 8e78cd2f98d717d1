"""The session folders of Ray that are read: the latest, and those that were begun before it.

Sent to the nodes: Python 3.8, the standard library only.
"""

# pathlib takes longer to import than the program to start.
# ruff: noqa: PTH112, PTH115, PTH118, PTH119, PTH208

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rayfleet.log.remote.cursor import Track

LATEST = "session_latest"
PREFIX = "session_"
CLOSE_SECONDS = 5.0
"""How long the files of a session are read on after the next one has begun."""


class Sessions:
    """Session folders below ``root``, by name, the oldest first. Their names hold their times.

    ``begun`` is what was read before us, ``named`` the last session that was known then.
    """

    def __init__(self, root: str, begun: list[Track], named: str) -> None:
        self.root = os.path.realpath(root)
        self.latest = ""
        # Read now; a later one is opened when those before it are at their end.
        self.open: list[str] = []
        self.waiting: list[str] = []
        self._replaced_at: dict[str, float] = {}
        of_begun = [track.session for track in begun if track.session]
        self._unfinished = {track.session for track in begun if track.session and not track.done}
        self._floor = max(of_begun, default=named)

    def logs(self, session: str) -> str:
        """The folder of logs of a session."""
        return os.path.join(self.root, session, "logs")

    def look(self, now: float) -> bool:
        """See whether there is a new session; True when there is."""
        latest = self._latest()
        if not latest or latest == self.latest:
            return False
        floor = self.latest or self._floor or latest
        between = [
            name
            for name in self._all()
            if floor < name < latest or (not self.latest and name in {floor, *self._unfinished})
        ]
        for name in self.open:
            self._replaced_at.setdefault(name, now)
        known = {latest, *self.open, *self.waiting}
        self.waiting = [name for name in self.waiting if name != latest]
        self.waiting += [name for name in between if name not in known]
        if latest not in self.open:
            self.waiting.append(latest)
        self._replaced_at.pop(latest, None)
        self.latest = latest
        return True

    def open_next(self, now: float) -> bool:
        """Open the next session, if there is one."""
        if not self.waiting:
            return False
        name = self.waiting.pop(0)
        self.open.append(name)
        if name != self.latest:
            self._replaced_at.setdefault(name, now)
        return True

    def over(self, now: float) -> list[str]:
        """The sessions of which nothing more is expected."""
        return [name for name, at in self._replaced_at.items() if now - at > CLOSE_SECONDS]

    def close(self, session: str) -> None:
        """A session was read to its end."""
        self.open.remove(session)
        self._replaced_at.pop(session, None)

    def _latest(self) -> str:
        link = os.path.join(self.root, LATEST)
        try:
            name = os.path.basename(os.readlink(link).rstrip("/"))
        except OSError:
            name = LATEST
        return name if os.path.isdir(os.path.join(self.root, name)) else ""

    def _all(self) -> list[str]:
        try:
            names = os.listdir(self.root)
        except OSError:
            return []
        return sorted(
            name
            for name in names
            if name.startswith(PREFIX) and name != LATEST and os.path.isdir(self.logs(name))
        )

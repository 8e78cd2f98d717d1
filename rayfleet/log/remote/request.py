"""What is asked of a node: which files, from where on, and what of them is wanted.

Sent to the nodes: Python 3.8, the standard library only.
"""

from __future__ import annotations

import os
import time

from rayfleet.log.remote.cursor import from_cursor
from rayfleet.log.remote.family import OLD_FOLDER, Pattern, generation
from rayfleet.log.remote.lineage import Start
from rayfleet.log.remote.records import Keep, printed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rayfleet.log.remote.cursor import Track

    Key = tuple[str, str, str]


class Request:
    """What to follow and how; raises KeyError, ValueError, TypeError, re.error for nonsense."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.root = str(fields["root"])
        self.patterns = [
            Pattern(str(each["glob"]), str(each["role"])) for each in fields["patterns"]
        ]
        self.follow = bool(fields["follow"])
        self.until: float | None = fields.get("until")
        self.poll_seconds = float(fields.get("poll_seconds") or 0.5)
        self.chunk_bytes = int(fields.get("chunk_bytes") or 256 * 1024)
        self.session = str(fields.get("session") or "")
        self.cursors = [from_cursor(cursor) for cursor in fields.get("cursors") or ()]
        self.utc_offset = time.localtime().tm_gmtoff
        first = bool(fields.get("first", True))
        since = fields.get("since") if first else None
        tail = int(fields["tail"]) if fields.get("tail") is not None else -1
        self.start = Start(tail, since, self.utc_offset) if first else None
        self._keep = (
            [str(text) for text in fields.get("include") or ()],
            [str(text) for text in fields.get("exclude") or ()],
            fields.get("level"),
            since,
            self.until,
            self.utc_offset,
        )
        self.keep("")

    def keep(self, name: str) -> Keep:
        """A filter for a file of this name."""
        return Keep(*self._keep, alone=printed(name))

    def begun(self) -> dict[Key, list[Track]]:
        """The cursors by the logs that they belong to: session, folder, name."""
        found: dict[Key, list[Track]] = {}
        for track in self.cursors:
            folder, name = os.path.split(track.path)
            above, last = os.path.split(folder)
            key = (track.session, above if last == OLD_FOLDER else folder, generation(name)[0])
            found.setdefault(key, []).append(track)
        return found

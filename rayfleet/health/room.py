"""The room on a node's disks, as df(1) tells it."""

from __future__ import annotations

from dataclasses import dataclass

COMMAND = "df -Pk / /tmp /var/lib/docker 2>/dev/null; true"
"""In the login shell of a node: its root, where Ray spills objects and keeps its logs, and where
Docker keeps images. A folder that is not there is left out."""
FULL = 0.90  # of a disk; Ray itself refuses to write at 0.95 (local_fs_capacity_threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One disk: where it is mounted, its size and what is free of it, in bytes."""

    mount: str
    size: int
    free: int

    @property
    def used(self) -> float:
        """The part of it that is used, by those who may not use what is kept for root."""
        return 1 - self.free / self.size if self.size else 0.0

    @property
    def nearly_full(self) -> bool:
        """Whether there is too little left."""
        return self.used >= FULL


def parse_rooms(text: str) -> tuple[Room, ...]:
    """The disks in the output of :data:`COMMAND`, each once, in its order."""
    found: dict[tuple[str, int, int], Room] = {}
    for line in text.splitlines():
        words = line.split(None, 5)
        numbers = words[1:4]
        if len(words) == 6 and all(word.isdigit() for word in numbers) and words[4].endswith("%"):
            _, used, free = (int(word) * 1024 for word in numbers)
            # A file system that is mounted twice is one disk.
            found.setdefault(
                (words[0], used, free), Room(mount=words[5], size=used + free, free=free)
            )
    return tuple(found.values())

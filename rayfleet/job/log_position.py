"""How far somebody has read a log that grows."""

from __future__ import annotations

from collections.abc import Iterator


class LogPosition:
    """Which part of a job's growing log has been handed on.

    ``contact`` is the clock's time of the last answer, None before the first.
    """

    def __init__(self) -> None:
        self.contact: float | None = None
        self._characters = 0

    @property
    def known(self) -> bool:
        """True when the head has told of the job."""
        return self.contact is not None

    def unread(self, text: str | None, *, complete: bool) -> Iterator[str]:
        """The lines after those already given; an unfinished last one only when complete."""
        if text is None:
            return
        if len(text) < self._characters:
            self._characters = 0
        end = len(text) if complete else text.rfind("\n") + 1
        fresh = text[self._characters : end]
        self._characters = max(self._characters, end)
        if fresh:
            yield from fresh.removesuffix("\n").split("\n")

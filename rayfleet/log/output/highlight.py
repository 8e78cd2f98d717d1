"""Make what matches stand out."""

from __future__ import annotations

import re
from collections.abc import Sequence

BOLD_REVERSE = "\x1b[1;7m"
_OFF = "\x1b[22;27m"


class Highlight:
    """Shows what one of ``patterns`` matches bold and reversed; a match never leaves its line."""

    def __init__(self, patterns: Sequence[re.Pattern[str]]) -> None:
        self._patterns = patterns

    def __call__(self, lines: bytes) -> bytes:
        """``lines``, harmless ones, with all matches marked; overlapping ones as one."""
        text = lines.decode(errors="replace")
        if not any(pattern.search(text) for pattern in self._patterns):
            return lines
        return "\n".join(map(self._line, text.split("\n"))).encode()

    def _line(self, line: str) -> str:
        pieces: list[str] = []
        end = 0
        for start, stop in self._spans(line):
            pieces += (line[end:start], BOLD_REVERSE, line[start:stop], _OFF)
            end = stop
        return "".join((*pieces, line[end:]))

    def _spans(self, line: str) -> list[tuple[int, int]]:
        joined: list[tuple[int, int]] = []
        for start, stop in sorted(
            match.span() for pattern in self._patterns for match in pattern.finditer(line)
        ):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
            elif stop > start:
                joined.append((start, stop))
        return joined

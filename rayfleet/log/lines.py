"""From chunks of bytes to whole lines."""

from __future__ import annotations

MAX_LINE_BYTES = 1024 * 1024


class LineSplitter:
    """Keeps the unfinished last line of a file until its end arrives."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> bytes:
        """The lines that ``chunk`` completes, each ending with a newline; may be empty.

        A line of more than 1 MiB is given out in pieces, so that memory stays bounded.
        """
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            self._begun.append(chunk)
            self._size += len(chunk)
            return self.rest() if self._size > MAX_LINE_BYTES else b""
        lines = b"".join((*self._begun, chunk[:end]))
        self._begun = [chunk[end:]]
        self._size = len(chunk) - end
        return lines

    def rest(self) -> bytes:
        """The unfinished line, finished with a newline; empty when there is none."""
        line = b"".join(self._begun)
        self._begun, self._size = [], 0
        return line + b"\n" if line else b""

"""Write log lines of many clusters to one stream: prefixed, coloured, filtered, harmless."""

from __future__ import annotations

import json
import os
import re
import select
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from rayfleet.errors import UsageError
from rayfleet.log.output.sink import Batch

# The six hues of ANSI that are readable on dark and on light, plain and bright.
PALETTE = tuple(f"\x1b[{code}m".encode() for code in (31, 32, 33, 34, 35, 36, 91, 92, 94, 95, 96))
RESET = b"\x1b[0m"
_COLOUR_SEQUENCE = re.compile(r"\x1b\[[0-9;:]*m")
_SUSPICIOUS_BYTES = re.compile(rb"[^\t\n\x20-\x7e]")
# Control characters, and the marks that reorder text on the screen.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a stream wants its text: ``colour`` and ``harmless`` are for terminals."""

    colour: bool
    harmless: bool


def style_of(stream: BinaryIO, environ: Mapping[str, str]) -> Style:
    """What ``stream`` wants: NO_COLOR, FORCE_COLOR and TERM=dumb have their usual meaning."""
    terminal = stream.isatty()
    wanted = terminal and environ.get("TERM") != "dumb"
    colour = not environ.get("NO_COLOR") and (wanted or bool(environ.get("FORCE_COLOR")))
    return Style(colour=colour, harmless=terminal)


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the lines in which ``pattern`` is found (Python's ``re``, on decoded text)."""

    pattern: re.Pattern[str]

    def __call__(self, lines: bytes) -> bytes:
        """The lines of ``lines`` that match."""
        found = self.pattern.search
        kept = [line for line in lines.split(b"\n")[:-1] if found(line.decode(errors="replace"))]
        return b"".join(line + b"\n" for line in kept)


def line_filter(expression: str) -> Filter | None:
    """A filter for ``expression``; None when it is empty.

    Raises:
        UsageError: it is no regular expression.
    """
    if not expression:
        return None
    try:
        return Filter(re.compile(expression))
    except re.error as error:
        raise UsageError(
            f"--grep {expression!r} is no regular expression", why=str(error)
        ) from error


class TextSink:
    """Writes ``cluster | line``. Works on whole chunks: the usual line is never looked at."""

    def __init__(self, out: BinaryIO, clusters: Sequence[str], style: Style) -> None:
        width = max(map(len, clusters), default=0)
        self._out = out
        self._style = style
        self._prefixes = {name: _prefix(name, width, colour=style.colour) for name in clusters}

    def write(self, batch: Batch) -> None:
        """Write and flush the lines of a batch."""
        prefix = self._prefixes[batch.cluster]
        lines = harmless(batch.lines) if self._style.harmless else batch.lines
        self._out.write(prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n")
        self._out.flush()


class JsonSink:
    """Writes one JSON object per line: cluster, file, line. Bytes that are no UTF-8 become
    U+FFFD."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, batch: Batch) -> None:
        """Write and flush the lines of a batch."""
        texts = batch.lines.decode(errors="replace").split("\n")[:-1]
        records = (
            json.dumps({"cluster": batch.cluster, "file": batch.file, "line": text})
            for text in texts
        )
        self._out.write("".join(f"{record}\n" for record in records).encode())
        self._out.flush()


def harmless(lines: bytes) -> bytes:
    """``lines`` so that a terminal only shows them: no escape sequence, no invalid UTF-8.

    Colour sequences are dropped, other control characters are shown as ``\\x1b`` and the like.
    """
    if not _SUSPICIOUS_BYTES.search(lines):
        return lines
    text = lines.decode(errors="backslashreplace").replace("\r\n", "\n")
    return _HARMFUL.sub(_shown, _COLOUR_SEQUENCE.sub("", text)).encode()


def reader_is_gone(stream: BinaryIO) -> bool:
    """True when ``stream`` is a pipe or socket whose other end was closed."""
    with suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(flags & select.POLLERR for _, flags in poll.poll(0))
    return False


def abandon(stream: BinaryIO) -> None:
    """Let what is still buffered for a reader that is gone vanish quietly at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _prefix(cluster: str, width: int, *, colour: bool) -> bytes:
    name = f"{cluster:<{width}} |".encode()
    if not colour:
        return name + b" "
    # A hash, so that a cluster keeps its colour whatever else is shown.
    return PALETTE[zlib.crc32(cluster.encode()) % len(PALETTE)] + name + RESET + b" "


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

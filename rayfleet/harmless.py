"""Text that a terminal only shows: no escape sequence of a log, a job or a file gets through.

The one rule, for all that is printed: what people read (narration, tables, errors, prefixes) is
always made harmless. What a log or a job printed is, too, where it may end on a terminal; any
other pipe or file gets it as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

_COLOUR_SEQUENCE = re.compile(r"\x1b\[[0-9;:]*m")
_PLAIN_BYTES = b"\t\n" + bytes(range(0x20, 0x7F))
# Control characters, and the marks that reorder text on the screen.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def harmless(lines: bytes) -> bytes:
    """``lines`` so that a terminal only shows them: no escape sequence, no invalid UTF-8.

    Colour sequences are dropped, other control characters are shown as ``\\x1b`` and the like.
    """
    # Several times as fast as a search.
    if not lines.translate(None, _PLAIN_BYTES):
        return lines
    text = lines.decode(errors="backslashreplace").replace("\r\n", "\n")
    return _HARMFUL.sub(_shown, _COLOUR_SEQUENCE.sub("", text)).encode()


def printable(text: str) -> str:
    """``text`` so that a terminal only shows it; lines are kept."""
    return harmless(writable(text).encode()).decode()


def on_one_line(text: str) -> str:
    """``text`` with everything shown that is not printable, line ends too."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode()
        for one in text
    )


def writable(text: str) -> str:
    """``text`` so that it can be encoded: a half of a pair, which JSON may have, is shown."""
    return text.encode(errors="backslashreplace").decode()


class Stream(Protocol):
    """What text is written to."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""


def is_coloured(stream: Stream, environ: Mapping[str, str]) -> bool:
    """Whether colours are wanted: NO_COLOR, FORCE_COLOR and TERM=dumb have their usual meaning."""
    wanted = stream.isatty() and environ.get("TERM") != "dumb"
    return not environ.get("NO_COLOR") and (wanted or bool(environ.get("FORCE_COLOR")))


def may_be_shown(stream: Stream, environ: Mapping[str, str]) -> bool:
    """Whether a terminal is, or may be, where ``stream`` ends: colours go to nothing else."""
    return stream.isatty() or is_coloured(stream, environ)


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

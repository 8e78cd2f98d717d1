"""Text that a terminal only shows: no escape sequence of a log gets through."""

from __future__ import annotations

import re

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


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

"""How a stream wants its text: colours, and nothing that could harm a terminal."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from rayfleet.errors import UsageError
from rayfleet.harmless import is_coloured, may_be_shown

COLOURS = ("auto", "always", "never")
# The hues of ANSI that are readable on dark and on light, plain and bright.
PALETTE = tuple(f"\x1b[{code}m".encode() for code in (31, 32, 33, 34, 35, 36, 91, 92, 94, 95, 96))
RESET = b"\x1b[0m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """``colour``: what we write is coloured. ``harmless``: a terminal is, or may be, the end."""

    colour: bool
    harmless: bool


def style_of(stream: BinaryIO, environ: Mapping[str, str], *, colour: str = "auto") -> Style:
    """What ``stream`` wants: NO_COLOR, FORCE_COLOR and TERM=dumb have their usual meaning.

    ``colour`` is one of :data:`COLOURS`; the last two overrule the environment.

    Raises:
        UsageError: it is something else.
    """
    if colour not in COLOURS:
        raise UsageError(f"--color {colour}: not one of {', '.join(COLOURS)}")
    if colour != "auto":
        return Style(colour=colour == "always", harmless=stream.isatty() or colour == "always")
    return Style(colour=is_coloured(stream, environ), harmless=may_be_shown(stream, environ))


def colours_of(names: Sequence[str]) -> dict[str, bytes]:
    """A colour for each of ``names``, all of them different while there are enough.

    By a hash, so that with the same names each keeps its colour, and mostly with others too.
    """
    colours: dict[str, bytes] = {}
    for name in names:
        first = zlib.crc32(name.encode()) % len(PALETTE)
        turned = PALETTE[first:] + PALETTE[:first]
        taken = set(colours.values())
        colours[name] = next((colour for colour in turned if colour not in taken), turned[0])
    return colours

"""The lines of a log, and what became of them on the way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailing.heads import Heads

LINE_BYTES = 120  # with its newline
HEADER = "2026-11-21 20:{minute:02}:{second:02},{milli:03}\tINFO autoscaler.py:589 -- "
NUMBERED = "{name} line {number:08} "
PADDING = "Resized to 1152 CPUs, 64 TPUs: 0.0/1152.0 CPU, 0.0/64.0 TPU"
# Where the name and the number of a line are.
NAME = slice(50, 57)
NUMBER = slice(63, 71)


@dataclass(kw_only=True)
class Checked:
    """``lost`` lines did not come whole, ``doubled`` ones came again, ``unnamed`` ones came
    without the name of their head, or with that of another; ``broken`` counts the lines of output
    that are no whole line of a log."""

    lost: int = 0
    doubled: int = 0
    unnamed: int = 0
    broken: int = 0
    shown: list[str] = field(default_factory=list)


def log_text(name: str, count: int) -> bytes:
    """A log of ``count`` lines in the format of Ray's autoscaler, each of 120 bytes."""
    found = []
    for number in range(count):
        seconds, milli = divmod(number, 1000)
        minute, second = divmod(seconds, 60)
        header = HEADER.format(minute=minute % 60, second=second, milli=milli)
        line = header + NUMBERED.format(name=name, number=number) + PADDING
        found.append(f"{line:<{LINE_BYTES - 1}.{LINE_BYTES - 1}}\n")
    return "".join(found).encode()


def write_logs(heads: Heads, count: int) -> None:
    """Give each head a log of ``count`` lines of its own."""
    for name in heads.names:
        heads.log(name).write_bytes(log_text(name, count))


def check(output: Path, heads: Heads, notices: Sequence[str]) -> Checked:
    """Look for every line of every log in ``output``, behind a prefix that names its head.

    ``notices`` are expressions for lines that the tool adds and that are not from a log.
    """
    sources = {name.encode(): heads.log(name).read_bytes() for name in heads.names}
    seen = {name: bytearray(len(text) // LINE_BYTES) for name, text in sources.items()}
    own = dict(zip(heads.hosts, heads.names, strict=True)) | {name: name for name in heads.names}
    found, prefixes = Checked(), dict[bytes, bytes]()
    notice = re.compile("|".join(notices).encode()) if notices else None
    body = LINE_BYTES - 1
    for line in output.read_bytes().split(b"\n")[:-1]:
        text, prefix = line[-body:], line[:-body]
        name, number = text[NAME], text[NUMBER]
        if prefix not in prefixes:
            # A prefix that holds a piece of a line is in there as well, and harms nobody.
            word = re.search(rb"127\.0\.1\.\d+|head-\d+", prefix)
            prefixes[prefix] = own.get(word[0].decode(), "").encode() if word else b""
        if name in sources and number.isdigit():
            start = int(number) * LINE_BYTES
            if sources[name][start : start + body] == text:
                found.doubled += seen[name][int(number)]
                seen[name][int(number)] = 1
                found.unnamed += prefixes[prefix] != name
                continue
        if notice is None or not notice.search(line):
            found.broken += 1
            if len(found.shown) < 3:
                found.shown.append(line.decode(errors="replace")[:200])
    found.lost = sum(each.count(0) for each in seen.values())
    return found

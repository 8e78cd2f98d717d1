"""What a log record is: where it begins, its time, its level, and which records are wanted.

A record is a line with a timestamp, or of JSON, and the lines without one after it. Where text
is printed and not logged (a job's output), a line without a timestamp stands for itself, unless
it is indented or a traceback. This file is sent to the nodes too: Python 3.8, no other imports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

TRACEBACK = b"Traceback (most recent call last):"
LEVELS = {
    b"T": 5, b"TRACE": 5, b"D": 10, b"DEBUG": 10, b"I": 20, b"INFO": 20, b"NOTICE": 20,
    b"W": 30, b"WARN": 30, b"WARNING": 30, b"E": 40, b"ERR": 40, b"ERROR": 40,
    b"C": 50, b"F": 50, b"CRITICAL": 50, b"FATAL": 50, b"PANIC": 50,
}  # fmt: skip
_MINUTES_KEPT = 4096
_LOOK_BACK = 16 * 1024

# Colours, then a date with a time, a JSON object, or the source of a forwarded line.
_BEGINS = (
    rb"(?:\x1b\[[0-9;]*m)*"
    rb"(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|\{\"|\([^()\n]{1,200} pid=\d)"
)
_beginning = re.compile(_BEGINS)
_beginnings = re.compile(rb"^" + _BEGINS, re.M)
_time = re.compile(
    rb"(?:\x1b\[[0-9;]*m)*\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)"
    rb"(?:[.,](\d{1,9}))?(?:\d*)(Z|[+-]\d\d:?\d\d)?"
)
_json_time = re.compile(
    rb'"(?:asctime|timestamp|timestamp_ns|time|ts|@timestamp)"\s*:\s*(?:"([^"]+)"|([\d.]+))'
)
_json_level = re.compile(rb'"(?:levelname|level|severity|lvl)"\s*:\s*"([A-Za-z]+)"')
# After the time: Ray's Python and C++ formats, and `time - name - LEVEL`.
_level = re.compile(rb"[\s:|\[\]-]*(?:[\w.]+\s*[-:|]\s*)?([A-Z]+)\b")
_bare_level = re.compile(
    rb"(?:\x1b\[[0-9;]*m)*\[?(DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)(?:\]|:|\s+-)"
)
_FRAMES = rb"(?:(?:[ \t][^\n]*)?\n)*"
_ONE_TRACEBACK = (
    rb"Traceback \(most recent call last\):\n" + _FRAMES + rb"[^\s][^\n]*\n"
    # The cause that Ray puts into the message of an exception.
    rb'(?:  File "[^\n]*\n(?:[ \t][^\n]*\n)*[^\s][^\n]*\n)*'
)
_whole_traceback = re.compile(_ONE_TRACEBACK)
_LINKS = rb"\n*(?:During handling of the above|The above exception was)[^\n]*\n\n*"
_printed = re.compile(
    rb"(?:" + _ONE_TRACEBACK + rb"(?:" + _LINKS + _ONE_TRACEBACK + rb")*|[^\n]*\n)"
    rb"(?:(?:[ \t\r)\]}][^\n]*)?\n)*"
)
_printed_file = re.compile(r"job-driver-|(?!raylet\.|gcs_server\.).*\.(?:out|err)(?:\.\d+)?$")
# With these, a pattern may be found in a record, but not in the records around it.
_looks_around = re.compile(r"\\[AZ]|\(\?<?!|\(\?<=")
_minutes: dict[bytes, int] = {}


def begins(line: bytes) -> bool:
    """True when ``line`` begins a record: a timestamp, or a line of JSON."""
    return _beginning.match(line) is not None


def printed(name: str) -> bool:
    """True when the file ``name`` holds what programs print: each line stands for itself.

    Ray's C++ servers log to a file of that kind, with records of many lines.
    """
    return _printed_file.match(name.rpartition("/")[2]) is not None


def stamp(line: bytes, utc_offset: int) -> float | None:
    """The time of ``line`` in seconds since the epoch; None without one.

    ``utc_offset``: seconds that the node's clock is ahead of UTC, for times without a zone.
    """
    found = _time.match(line)
    if found is None:
        if line[:2] != b'{"':
            return None
        inside = _json_time.search(line)
        if inside is None:
            return None
        text = inside[1] or inside[2]
        found = _time.match(text)
        if found is None:
            return _number(text)
    minute, second, fraction, zone = found.groups()
    seconds = _minutes.get(minute)
    if seconds is None:
        seconds = _since_epoch(minute)
        if seconds is None:
            return None
    if zone is None:
        seconds -= utc_offset
    elif zone != b"Z":
        ahead = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds -= ahead if zone[:1] == b"+" else -ahead
    return seconds + int(second) + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)


def level(line: bytes) -> int | None:
    """The level of the record that begins with ``line``, in logging's numbers; None unknown."""
    if line[:2] == b'{"':
        inside = _json_level.search(line)
        return LEVELS.get(inside[1].upper()) if inside else None
    dated = _time.match(line)
    found = _level.match(line, dated.end()) if dated else _bare_level.match(line)
    if found is not None:
        return LEVELS.get(found[1])
    return LEVELS[b"ERROR"] if line.startswith(TRACEBACK) else None


def records(lines: bytes, alone: bool = False) -> Iterator[bytes]:
    """The records of a block of whole lines, in order; nothing is left out.

    Lines before the first beginning are taken as printed ones, as are all when ``alone``.
    """
    starts = [found.start() for found in _beginnings.finditer(lines)]
    first = starts[0] if starts else len(lines)
    if first:
        for found in _printed.finditer(lines[:first]):
            yield found[0]
    starts.append(len(lines))
    for index in range(len(starts) - 1):
        start, end = starts[index], starts[index + 1]
        if alone and lines.find(b"\n", start, end) + 1 != end:
            for found in _printed.finditer(lines, start, end):
                yield found[0]
        else:
            yield lines[start:end]


def open_traceback(lines: bytes) -> int:
    """Where the record of an unfinished traceback at the end of ``lines`` begins, else -1."""
    begun = lines.rfind(TRACEBACK)
    if begun < 0 or _beginnings.search(lines, begun + 1):
        return -1
    if _whole_traceback.match(lines, begun):
        return -1
    low = lines.rfind(b"\n", 0, max(0, begun - _LOOK_BACK)) + 1
    start = lines.rfind(b"\n", 0, begun) + 1
    for found in _beginnings.finditer(lines, low, begun):
        start = found.start()
    return start


class Pattern:
    """A regular expression that is looked for in records, ``^`` and ``$`` at each of their lines.

    Raises re.error.
    """

    def __init__(self, text: str) -> None:
        self._text: re.Pattern[str] | None = None
        try:
            # A character that is no ASCII is several bytes.
            self._bytes = re.compile(text.encode("ascii"), re.M)
        except (UnicodeEncodeError, re.error):
            # It is for text only, as an escape for a character is, or wrong.
            self._text = re.compile(text, re.M)
        self._alone = bool(_looks_around.search(text))

    def found(self, record: bytes) -> bool:
        """True when the expression is found in ``record``."""
        if self._text is not None:
            return self._text.search(record[:-1].decode("utf-8", "replace")) is not None
        # Without its end, after which ^ and $ would be found again.
        return self._bytes.search(record, 0, len(record) - 1) is not None

    def absent(self, lines: bytes) -> bool:
        """True when it is certain, at little cost, that no record of ``lines`` has it."""
        return not self._alone and not self.found(lines)


class Keep:
    """Keeps the records that are wanted; remembers what it decided for lines that follow.

    ``include``, ``exclude``: regular expressions, found anywhere in a record (``^`` and ``$``
    at each line); any of the first, none of the second. ``level``: the lowest level, by name; a
    record of unknown level is left out. ``since``, ``until``: seconds since the epoch; a record
    without a time has that of the one before it, and is kept when there is none. Raises re.error.
    """

    def __init__(
        self,
        include: list[str],
        exclude: list[str],
        level: str | None,
        since: float | None,
        until: float | None,
        utc_offset: int = 0,
        alone: bool = False,
    ) -> None:
        self._include = [Pattern(text) for text in include]
        self._exclude = [Pattern(text) for text in exclude]
        self._level = LEVELS[level.upper().encode()] if level else 0
        self._since, self._until = since, until
        self._utc_offset = utc_offset
        self._alone = alone
        self._in_time = True
        self._last: bool | None = None
        timed = since is not None or until is not None
        self._idle = not (include or exclude or level or timed)
        self._words_only = not (level or timed)

    def __call__(self, lines: bytes) -> bytes:
        """The wanted records of ``lines``, a block of whole lines; empty when there are none."""
        if self._idle:
            return lines
        kept = []
        if self._last is not None and not self._alone:
            first = _beginnings.search(lines)
            end = first.start() if first else len(lines)
            if end and self._last:
                kept.append(lines[:end])
            lines = lines[end:]
        known = self._all_or_none(lines) if self._words_only and lines else None
        if known is not None:
            self._last = known
            return b"".join((*kept, lines)) if known else b"".join(kept)
        for record in records(lines, self._alone):
            wanted = self._last = self._wanted(record)
            if wanted:
                kept.append(record)
        return b"".join(kept)

    def _all_or_none(self, lines: bytes) -> bool | None:
        if self._include and all(pattern.absent(lines) for pattern in self._include):
            return False
        if not self._include and all(pattern.absent(lines) for pattern in self._exclude):
            return True
        return None

    def _wanted(self, record: bytes) -> bool:
        if self._since is not None or self._until is not None:
            when = stamp(record, self._utc_offset)
            if when is not None:
                early = self._since is not None and when < self._since
                late = self._until is not None and when > self._until
                self._in_time = not (early or late)
            if not self._in_time:
                return False
        if self._level and (level(record) or 0) < self._level:
            return False
        for pattern in self._exclude:
            if pattern.found(record):
                return False
        for pattern in self._include:
            if pattern.found(record):
                return True
        return not self._include


def _since_epoch(minute: bytes) -> int | None:
    year, month, day = int(minute[:4]), int(minute[5:7]), int(minute[8:10])
    hour, past = int(minute[11:13]), int(minute[14:16])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and past < 60 and year > 0):
        return None
    if len(_minutes) >= _MINUTES_KEPT:
        _minutes.clear()
    # Days since 1970, as if years began in March.
    shifted = year - (month < 3)
    days = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400
    days += (153 * ((month + 9) % 12) + 2) // 5 + day - 719469
    seconds = _minutes[minute] = days * 86400 + hour * 3600 + past * 60
    return seconds


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if not 0 < value < 1e20:
        return None
    # Seconds, or milli-, micro- or nanoseconds: 1e11 seconds are the year 5138.
    while value >= 1e11:
        value /= 1000.0
    return value

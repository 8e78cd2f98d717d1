"""The flags of ``tail-logs``, read and checked before any node is asked."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rayfleet.cluster.heads import NODES
from rayfleet.errors import UsageError
from rayfleet.log.merge import DEFAULT_WINDOW
from rayfleet.log.moments import parse_moment, parse_seconds
from rayfleet.log.output.style import COLOURS
from rayfleet.log.output.template import Template, template_of
from rayfleet.log.patterns import expressions
from rayfleet.log.remote.records import LEVELS
from rayfleet.log.selectors import Selection, read_logs

OUTPUTS = ("text", "raw", "jsonl")
LEVEL_NAMES = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_TAIL = 10
EVERYTHING = -1
LONGEST_WINDOW = 300.0
ROOT = "/tmp/ray"  # noqa: S108 (Ray's own, on the nodes)
POLL_SECONDS = 0.5
CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The words of a command line; None was not given."""

    log: Sequence[str] = ()
    nodes: str | None = None
    tail: str | None = None
    since: str | None = None
    until: str | None = None
    follow: bool = True
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    highlight: Sequence[str] = ()
    level: str | None = None
    merge: str | bool | None = None
    output: str | None = None
    template: str | None = None
    color: str | None = None
    fail_on: str | None = None
    until_match: str | None = None
    drop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for. ``window``: of --merge, in seconds; None to keep the order in which
    lines come. ``tail``: -1 is everything."""

    selection: Selection
    nodes: str
    tail: int
    since: float | None
    until: float | None
    follow: bool
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    highlight: tuple[re.Pattern[str], ...]
    level: str | None
    window: float | None
    output: str
    template: Template | None
    color: str
    fail_on: str | None
    until_match: str | None
    drop: bool

    def request(self) -> Mapping[str, Any]:
        """What every node is asked for."""
        return {
            "root": ROOT,
            "patterns": [
                {"glob": pattern.glob, "role": pattern.role} for pattern in self.selection.patterns
            ],
            "follow": self.follow,
            "tail": self.tail,
            "since": self.since,
            "until": self.until,
            "include": list(self.include),
            "exclude": list(self.exclude),
            "level": self.level,
            "first": True,
            "session": "",
            "cursors": [],
            "poll_seconds": POLL_SECONDS,
            "chunk_bytes": CHUNK_BYTES,
        }


def read_options(flags: Flags, *, now: float | None = None) -> Options:
    """Check the words of a command line and read them. ``now``: seconds since the epoch.

    Raises:
        UsageError: a word cannot be read, or two contradict each other.
    """
    now = time.time() if now is None else now
    selection = read_logs(flags.log)
    since = parse_moment(flags.since, "--since", now=now) if flags.since is not None else None
    until = parse_moment(flags.until, "--until", now=now) if flags.until is not None else None
    _check_range(flags, since, until, now)
    _check_output(flags)
    for flag, texts in (
        ("--include", flags.include),
        ("--exclude", flags.exclude),
        ("--fail-on", [flags.fail_on]),
        ("--until-match", [flags.until_match]),
    ):
        expressions([text for text in texts if text is not None], flag)
    return Options(
        selection=selection,
        nodes=_one_of(flags.nodes, "--nodes", NODES, selection.nodes),
        tail=_tail(flags.tail, everything=since is not None or until is not None),
        since=since,
        until=until,
        follow=flags.follow,
        include=tuple(flags.include),
        exclude=tuple(flags.exclude),
        highlight=expressions(flags.highlight, "--highlight"),
        level=_level(flags.level),
        window=_window(flags.merge),
        output=_one_of(flags.output, "--output", OUTPUTS, OUTPUTS[0]),
        template=None if flags.template is None else template_of(flags.template),
        color=_one_of(flags.color, "--color", COLOURS, COLOURS[0]),
        fail_on=flags.fail_on,
        until_match=flags.until_match,
        drop=flags.drop,
    )


def _one_of(text: str | None, flag: str, known: Sequence[str], default: str) -> str:
    if text is None:
        return default
    if text not in known:
        raise UsageError(f"{flag} {text!r} is not one of {', '.join(known)}")
    return text


def _level(text: str | None) -> str | None:
    if text is None:
        return None
    name = text.upper()
    # A letter is a level only in the logs of Ray's C++ servers.
    if len(name) < 2 or not name.isascii() or name.encode() not in LEVELS:
        raise UsageError(f"--level {text!r} is not one of {', '.join(LEVEL_NAMES)}")
    return name


def _tail(text: str | None, *, everything: bool) -> int:
    if text is None:
        return EVERYTHING if everything else DEFAULT_TAIL
    if text == str(EVERYTHING):
        return EVERYTHING
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise UsageError(f"--tail {text!r} is no number of lines", why="-1 is all there are")
    return int(text)


def _window(given: str | bool | None) -> float | None:
    if isinstance(given, bool):
        return DEFAULT_WINDOW if given else None
    return None if given is None else parse_seconds(given, "--merge", longest=LONGEST_WINDOW)


def _check_range(flags: Flags, since: float | None, until: float | None, now: float) -> None:
    if since is not None and since > now:
        raise UsageError(f"--since {flags.since!r} lies in the future")
    if since is not None and until is not None and until < since:
        raise UsageError(f"--until {flags.until!r} lies before --since {flags.since!r}")


def _check_output(flags: Flags) -> None:
    plain = flags.output if flags.output in OUTPUTS[1:] else ""
    if plain and flags.template is not None:
        raise UsageError(f"--template makes text; --output {plain} does not")
    if plain and flags.highlight:
        raise UsageError(f"--highlight is for text; --output {plain} has no colours")

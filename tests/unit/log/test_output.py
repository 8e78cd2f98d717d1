"""What is written for a batch of lines."""

from __future__ import annotations

import io
import json
import os

import pytest

from rayfleet.errors import UsageError
from rayfleet.log.output import (
    Batch,
    JsonSink,
    Style,
    TextSink,
    harmless,
    line_filter,
    reader_is_gone,
    style_of,
)

PLAIN = Style(colour=False, harmless=False)
NAMES = ["us-east5", "eu"]


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def batch(lines: bytes, cluster: str = "eu") -> Batch:
    return Batch(cluster=cluster, file="monitor.log", lines=lines)


def written(style: Style, lines: bytes, cluster: str = "eu") -> bytes:
    out = io.BytesIO()
    TextSink(out, NAMES, style).write(batch(lines, cluster))
    return out.getvalue()


def test_every_line_is_prefixed_and_the_prefixes_are_aligned() -> None:
    assert written(PLAIN, b"a\n\nb\n") == b"eu       | a\neu       | \neu       | b\n"
    assert written(PLAIN, b"a\n", "us-east5") == b"us-east5 | a\n"


def test_a_pipe_gets_the_bytes_of_the_log_unchanged() -> None:
    assert written(PLAIN, b"\xff\x1b]0;x\x07\n") == b"eu       | \xff\x1b]0;x\x07\n"


def test_a_cluster_keeps_its_colour_whatever_else_is_shown() -> None:
    style = Style(colour=True, harmless=True)
    out = io.BytesIO()
    TextSink(out, ["eu", "another", "yet-another"], style).write(batch(b"a\n"))
    colour = written(style, b"a\n")[:5]
    assert colour.startswith(b"\x1b[")
    assert out.getvalue().startswith(colour)


@pytest.mark.parametrize(
    ("stream", "environ", "colour"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.BytesIO(), {"TERM": "xterm"}, False),
        (io.BytesIO(), {"TERM": "xterm", "FORCE_COLOR": "1"}, True),
    ],
)
def test_colour_follows_the_terminal_and_the_environment(
    stream: io.BytesIO, environ: dict[str, str], colour: bool
) -> None:
    assert style_of(stream, environ).colour is colour


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain\n", "plain\n"),
        (b"\x1b[31mred\x1b[0m\n", "red\n"),
        (b"\x1b]0;title\x07\x1b[2J\n", "\\x1b]0;title\\x07\\x1b[2J\n"),
        (b"caf\xc3\xa9 \xff\n", "café \\xff\n"),
        (b"c1 \xc2\x9b2J\n", "c1 \\x9b2J\n"),
        ("bidi \u202e\n".encode(), "bidi \\u202e\n"),
        (b"progress 1%\rprogress 2%\r\n", "progress 1%\\x0dprogress 2%\n"),
    ],
)
def test_a_terminal_is_shown_escape_sequences_and_never_fed_them(raw: bytes, shown: str) -> None:
    assert harmless(raw).decode() == shown


def test_json_lines_carry_cluster_file_and_line() -> None:
    out = io.BytesIO()
    JsonSink(out).write(batch(b'say "hi"\n\xff\x1b[2J\n'))
    first, second = out.getvalue().splitlines()
    assert json.loads(first) == {"cluster": "eu", "file": "monitor.log", "line": 'say "hi"'}
    assert json.loads(second)["line"] == "\ufffd\x1b[2J"
    assert out.getvalue().isascii()


def test_grep_keeps_the_lines_that_match_and_survives_invalid_text() -> None:
    keep = line_filter(r"(?i)resiz\w+|é")
    assert keep is not None
    assert keep(b"Resizing\nother\n\xff caf\xc3\xa9\n") == b"Resizing\n\xff caf\xc3\xa9\n"
    assert line_filter("") is None


def test_a_bad_expression_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--grep"):
        line_filter("(")


def test_a_pipe_whose_reader_is_gone_is_noticed_without_writing() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as stream:
        assert not reader_is_gone(stream)
        os.close(read_end)
        assert reader_is_gone(stream)

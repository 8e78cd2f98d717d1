"""Text for people: prefixes, colours, and nothing that a terminal would obey."""

from __future__ import annotations

import io

import pytest

from rayfleet.cluster.heads import Target
from rayfleet.errors import UsageError
from rayfleet.harmless import harmless
from rayfleet.log.output.highlight import Highlight
from rayfleet.log.output.raw import RawSink
from rayfleet.log.output.style import Style, colours_of, style_of
from rayfleet.log.output.text import TextSink
from rayfleet.log.patterns import expressions
from tests.support.batches import batch

PLAIN = Style(colour=False, harmless=False)
COLOURED = Style(colour=True, harmless=True)
NAMES = {("us-east5", "head"): "us-east5", ("eu", "head"): "eu"}
NASTY = b"\xff\x1b]0;x\x07\n"


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def written(style: Style, lines: bytes, cluster: str = "eu") -> bytes:
    out = io.BytesIO()
    TextSink(out, NAMES, style).write(batch(lines, cluster))
    return out.getvalue()


def test_every_line_is_prefixed_and_the_prefixes_are_aligned() -> None:
    assert written(PLAIN, b"a\n\nb\n") == b"eu       | a\neu       | \neu       | b\n"
    assert written(PLAIN, b"a\n", "us-east5") == b"us-east5 | a\n"


def test_a_worker_is_called_by_its_name_and_an_unknown_node_by_its_id() -> None:
    out = io.BytesIO()
    sink = TextSink(out, {("eu", "i-12"): "eu/worker-12"}, PLAIN)
    sink.write(batch(b"a\n", node="i-12"))
    sink.write(batch(b"b\n", node="i-13"))
    assert out.getvalue() == b"eu/worker-12 | a\neu/i-13      | b\n"


def test_the_column_of_names_grows_with_a_node_that_joins() -> None:
    out = io.BytesIO()
    sink = TextSink(out, {("eu", "head"): "eu"}, PLAIN)
    sink.write(batch(b"a\n"))
    sink.joined(Target(cluster="eu", region="eu", node="i-12", name="eu/worker-12"))
    sink.write(batch(b"b\n", node="i-12"))
    sink.write(batch(b"c\n"))
    assert out.getvalue() == b"eu | a\neu/worker-12 | b\neu           | c\n"


def test_files_are_told_apart_in_a_column_that_grows() -> None:
    out = io.BytesIO()
    sink = TextSink(out, {("eu", "head"): "eu"}, PLAIN, files=True)
    for file in ("raylet.out", "monitor.log", "raylet.out"):
        sink.write(batch(b"a\n", file=file))
    assert out.getvalue().splitlines() == [
        b"eu raylet.out | a",
        b"eu monitor.log | a",
        b"eu raylet.out  | a",
    ]


def test_the_long_ids_in_names_of_files_are_shortened() -> None:
    out = io.BytesIO()
    name = f"worker-{'0123456789abcdef' * 3}-01000000-541.err"
    TextSink(out, {("eu", "head"): "eu"}, PLAIN, files=True).write(batch(b"a\n", file=name))
    assert out.getvalue() == b"eu worker-01234567..-01000000-541.err | a\n"


def test_the_output_of_a_job_is_called_as_the_job_is_asked_for() -> None:
    out = io.BytesIO()
    sink = TextSink(out, {("eu", "head"): "eu"}, PLAIN, files=True)
    sink.write(batch(b"a\n", file="job-driver-raysubmit_1.log"))
    assert out.getvalue() == b"eu job:raysubmit_1 | a\n"


def test_the_name_of_a_file_cannot_break_out_of_the_prefix() -> None:
    out = io.BytesIO()
    TextSink(out, {}, PLAIN, files=True).write(batch(b"a\n", file="a\x1b[2J\nb"))
    assert out.getvalue() == b"eu/head a\\x1b[2J?b | a\n"


def test_a_pipe_gets_the_bytes_of_the_log_unchanged() -> None:
    assert written(PLAIN, NASTY) == b"eu       | " + NASTY


def test_raw_output_is_the_bytes_of_the_log_everywhere() -> None:
    out = Terminal()
    RawSink(out).write(batch(NASTY))
    assert out.getvalue() == NASTY


def test_each_cluster_of_a_fleet_has_a_colour_of_its_own_always_the_same() -> None:
    names = [f"cluster-{number}" for number in range(30)]
    first = colours_of(names[:11])
    assert len(set(first.values())) == 11
    assert colours_of(names[:11]) == first
    assert set(colours_of(names)) == set(names)


def test_a_prefix_is_coloured_and_the_line_is_not() -> None:
    out = io.BytesIO()
    TextSink(out, NAMES, COLOURED, colours={"eu": b"\x1b[31m"}).write(batch(b"a\n"))
    assert out.getvalue() == b"\x1b[31meu       |\x1b[0m a\n"


@pytest.mark.parametrize(
    ("stream", "environ", "wanted", "colour", "harmless"),
    [
        (Terminal(), {"TERM": "xterm"}, "auto", True, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, "auto", False, True),
        (Terminal(), {"TERM": "dumb"}, "auto", False, True),
        (io.BytesIO(), {"TERM": "xterm"}, "auto", False, False),
        (io.BytesIO(), {"TERM": "xterm", "FORCE_COLOR": "1"}, "auto", True, True),
        (io.BytesIO(), {"NO_COLOR": "1"}, "always", True, True),
        (Terminal(), {"FORCE_COLOR": "1"}, "never", False, True),
    ],
)
def test_colour_follows_the_flag_then_the_environment_then_the_terminal(
    stream: io.BytesIO, environ: dict[str, str], wanted: str, colour: bool, harmless: bool
) -> None:
    assert style_of(stream, environ, colour=wanted) == Style(colour=colour, harmless=harmless)


def test_another_word_for_colour_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--color blue"):
        style_of(io.BytesIO(), {}, colour="blue")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain\n", "plain\n"),
        (b"\x1b[31mred\x1b[0m\n", "red\n"),
        (b"\x1b]0;title\x07\x1b[2J\n", "\\x1b]0;title\\x07\\x1b[2J\n"),
        (b"caf\xc3\xa9 \xff\n", "café \\xff\n"),
        (b"c1 \xc2\x9b2J\n", "c1 \\x9b2J\n"),
        ("bidi \u202e\u2028\n".encode(), "bidi \\u202e\\u2028\n"),
        (b"progress 1%\rprogress 2%\r\n", "progress 1%\\x0dprogress 2%\n"),
    ],
)
def test_a_terminal_is_shown_escape_sequences_and_never_fed_them(raw: bytes, shown: str) -> None:
    assert harmless(raw).decode() == shown


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["b"], b"a<b>c\nabc\n".replace(b"abc", b"a<b>c")),
        (["ab", "bc"], b"<abc>\n<abc>\n"),
        (["a", "c"], b"<a>b<c>\n<a>b<c>\n"),
        (["x"], b"abc\nabc\n"),
        (["x*"], b"abc\nabc\n"),
        (["c[^x]a", "(?s)c.a"], b"abc\nabc\n"),
        (["^a", "c$"], b"<a>b<c>\n<a>b<c>\n"),
    ],
)
def test_what_matches_is_highlighted_within_its_line(texts: list[str], shown: bytes) -> None:
    marked = Highlight(expressions(texts, "--highlight"))(b"abc\nabc\n")
    assert marked.replace(b"\x1b[1;7m", b"<").replace(b"\x1b[22;27m", b">") == shown

"""Templates of the operator's own."""

from __future__ import annotations

import io

import pytest

from rayfleet.errors import UsageError
from rayfleet.log.output.style import Style
from rayfleet.log.output.template import TemplateSink, template_of
from tests.support.batches import DATED, batch

PLAIN = Style(colour=False, harmless=False)
SAFE = Style(colour=False, harmless=True)


def written(template: str, lines: bytes, style: Style = PLAIN, file: str = "monitor.log") -> bytes:
    out = io.BytesIO()
    TemplateSink(out, template_of(template), style).write(batch(lines, file=file))
    return out.getvalue()


def test_every_field_can_be_written_and_braces_too() -> None:
    fields = "{time}|{cluster}|{region}|{node}|{file}|{role}|{offset}|{level}|{{}}"
    assert written(fields, DATED) == (
        b"2026-11-20T08:16:46.816+00:00|eu|europe-west4|head|monitor.log|autoscaler|0|INFO|{}\n"
    )


def test_fields_can_be_aligned_and_shortened() -> None:
    assert written("{cluster:>6}{level:_<6}{message:.4}", DATED) == b"    euINFO__2026\n"


def test_what_is_not_known_is_a_dash() -> None:
    assert written("{time} {level} {message}", b"plain\n") == b"- - plain\n"


def test_a_template_without_fields_is_written_for_each_line() -> None:
    assert written("x", b"a\nb\n") == b"x\nx\n"


def test_a_pipe_gets_the_bytes_and_a_terminal_what_can_be_shown() -> None:
    nasty = b"\xff\x1b[2J {cluster}\n"
    assert written("{message}", nasty) == nasty
    assert written("{message}", nasty, SAFE) == b"\\xff\\x1b[2J {cluster}\n"
    assert written("{message}.", b"a\r\n", SAFE) == b"a.\n"
    assert written("{file}", b"a\n", SAFE, file="x\x1b\ny") == b"x\\x1b?y\n"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("", "empty"),
        ("{", "Single '{'|expected '}'"),
        ("}", "Single '}'"),
        ("{}", "not one of its fields"),
        ("{0}", "not one of its fields"),
        ("{pod}", "pod.*time, cluster"),
        ("{message.__class__}", "not one of its fields"),
        ("{message[0]}", "not one of its fields"),
        ("{message!r}", "only alignment"),
        ("{message:d}", "only alignment"),
        ("{message:99999}", "only alignment"),
        ("{message:{cluster}}", "only alignment"),
    ],
)
def test_anything_else_is_a_usage_error(template: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        template_of(template)

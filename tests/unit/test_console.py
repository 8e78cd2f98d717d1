"""Data goes to stdout, narration to stderr, and nobody is asked where nobody is."""

from __future__ import annotations

import io
import json

import pytest

from rayfleet.console import Console
from rayfleet.errors import Declined, ToolFailed


def test_data_and_narration_do_not_mix() -> None:
    console = Console(out=io.StringIO(), err=io.StringIO())
    with console.phase("build"):
        console.event("layer 1")
        console.detail("too small to tell")
        console.json({"digest": "sha256:1"})
    assert json.loads(_text(console.out)) == {"digest": "sha256:1"}
    lines = _text(console.err).splitlines()
    assert lines[:2] == ["build: started", "  layer 1"]
    assert lines[2].startswith("build: done in ")
    assert list(console.phase_times()) == ["build"]


def test_a_failed_phase_says_so_and_keeps_its_time() -> None:
    console = Console(out=io.StringIO(), err=io.StringIO())
    with pytest.raises(ZeroDivisionError), console.phase("push"):
        raise ZeroDivisionError
    assert "push: failed in " in _text(console.err)
    assert console.phases[0][0] == "push"


def test_a_table_in_a_pipe_is_not_folded_and_brackets_are_kept() -> None:
    console = Console(out=io.StringIO(), err=io.StringIO())
    console.table(("name", "value"), [("[red]x[/red]", "v" * 200)])
    assert f"[red]x[/red]   {'v' * 200}" in _text(console.out)
    assert "\x1b" not in _text(console.out)


def test_without_a_terminal_only_yes_is_yes() -> None:
    console = Console(out=io.StringIO(), err=io.StringIO())
    console.confirm("Kill 2 jobs?", yes=True, refused_next="x")
    with pytest.raises(Declined, match="nobody to ask") as raised:
        console.confirm("Kill 2 jobs?", yes=False, refused_next="invoke restart --yes")
    assert raised.value.code == 3
    assert "invoke restart --yes" in str(raised.value)


def _text(stream: object) -> str:
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


EVIL = "a\x1b]0;title\x07\x1b[2J\x9b1A\u202eb \udc80"
SHOWN = "a\\x1b]0;title\\x07\\x1b[2J\\x9b1A\\u202eb \\udc80"


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_narration_and_tables_never_steer_a_terminal(kind: type[io.StringIO]) -> None:
    """They have names of jobs and messages of heads in them, and are read in a CI's log too."""
    console = Console(out=kind(), err=io.StringIO())
    console.say(f"job {EVIL}")
    console.event(EVIL)
    console.confirm(EVIL, yes=True, refused_next="x")
    console.table(["job"], [(EVIL,)])
    assert SHOWN in _text(console.out)
    assert _text(console.err).splitlines() == [f"job {SHOWN}", f"  {SHOWN}"]
    with pytest.raises(Declined):
        console.confirm(EVIL, yes=False, refused_next="x")


def test_a_moving_line_never_steers_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = Console(out=io.StringIO(), err=Terminal())
    with console.phase(f"phase {EVIL}"):
        console.event(EVIL)
        console.say(EVIL)
    for harmful in ("\x1b]", "\x1b[2J", "\x9b", "\u202e"):
        assert harmful not in _text(console.err).replace("\x1b[2K", "")
    assert SHOWN in _text(console.err)


def test_data_is_harmless_on_a_terminal_and_as_it_is_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with tail-logs: a pipe may go to a file, and FORCE_COLOR says that it goes to a screen."""
    line = "\x1b[31mred\x1b[0m " + EVIL[:-1]
    for out, environ, shown in (
        (Terminal(), {}, f"red {SHOWN[:-6]}\n"),
        (io.StringIO(), {"FORCE_COLOR": "1"}, f"red {SHOWN[:-6]}\n"),
        (io.StringIO(), {}, line + "\n"),
    ):
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        Console(out=out, err=io.StringIO()).data(line)
        assert out.getvalue() == shown


def test_half_a_character_is_no_traceback() -> None:
    raw = io.BytesIO()
    console = Console(out=io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
    console.data("a \udc80")
    assert raw.getvalue() == b"a \\udc80\n"


def test_an_error_never_steers_a_terminal() -> None:
    error = ToolFailed(f"cannot {EVIL}", why=f"{EVIL}\n  second", next_step=f"invoke {EVIL}")
    assert str(error) == f"error: cannot {SHOWN}: {SHOWN}\n  second\n  next: invoke {SHOWN}"
    assert error.message == str(error)

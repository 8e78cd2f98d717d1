"""Data goes to stdout, narration to stderr, and nobody is asked where nobody is."""

from __future__ import annotations

import io
import json

import pytest

from rayfleet.console import Console
from rayfleet.errors import Declined


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

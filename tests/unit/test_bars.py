"""Progress: a line per event off a terminal, bars on one, and sizes for people."""

from __future__ import annotations

import io
import os
import pty
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rayfleet.bars import QUIET_SECONDS, Layers, Tally, bars, readable
from rayfleet.console import Console


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (12_345, "12 kB"), (5_240_000, "5.2 MB"), (254e6, "254 MB")],
)
def test_sizes_are_for_people(count: float, text: str) -> None:
    assert readable(int(count)) == text


def test_a_tally_counts_what_was_there_and_what_was_sent() -> None:
    said: list[str] = []
    tally = Tally(region="us-east5", tell=said.append)
    for _ in range(5):
        tally.expect()
    tally.found(80_000_000)
    tally.found(8_000_000)
    for size in (200_000_000, 50_000_000, 4_000_000):
        tally.lacks(size)
        tally.move(size)
        tally.finish(size)
    assert (tally.sent, tally.present, tally.missing) == (254_000_000, 88_000_000, 254_000_000)
    assert said == []
    tally.announce()
    assert said == ["us-east5: 3 of 5 blobs sent, 254 MB; 2 were there"]


def test_a_tally_that_lacks_nothing_says_so() -> None:
    tally = Tally(region="a")
    tally.all_found(7, 100)
    assert tally.text() == "all 7 blobs were there"
    assert tally.present == 100


def test_a_long_upload_is_heard_of_now_and_then() -> None:
    now, said = [0.0], list[str]()
    tally = Tally(region="a", tell=said.append, clock=lambda: now[0])
    for _ in range(4):
        tally.expect()
        tally.lacks(1)
    tally.finish(1)
    assert said == []
    now[0] = QUIET_SECONDS + 1
    tally.finish(1)
    tally.finish(1)
    assert said == ["a: 2 of 4 blobs sent, 2 B"]


def test_nothing_moves_without_a_terminal() -> None:
    console = Console(out=io.StringIO(), err=io.StringIO())
    tally = Tally(region="us-east5", tell=console.event)
    with console.phase("publish"), bars(console, [tally], Layers()):
        tally.expect()
        tally.lacks(5)
        tally.finish(5)
        tally.announce()
    assert isinstance(console.err, io.StringIO)
    lines = console.err.getvalue().splitlines()
    assert lines[:2] == ["publish: started", "  us-east5: 1 of 1 blobs sent, 5 B"]
    assert "\x1b" not in console.err.getvalue()


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_gets_a_bar_per_region_and_what_is_said_above_them(
    monkeypatch: pytest.MonkeyPatch, width: int, colour: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    with terminal() as (console, seen):
        tallies = [Tally(region=region, tell=console.event) for region in ("us-east5", "[b]")]
        layers = Layers()
        with console.phase("publish"), bars(console, tallies, layers):
            layers.add(5_000_000)
            tallies[0].expect()
            tallies[0].found(88_000_000)
            tallies[0].expect()
            tallies[0].lacks(10_000_000)
            tallies[0].move(2_500_000)
            console.say("something happened")
    text = seen()
    assert re.search(r"us-east5.*2\.5/10\.0 MB", text)
    assert "[b]" in text
    assert "compress" in text
    assert "something happened\r\n" in text
    assert ("88 MB were there" in text) == (width == 140)
    assert bool(re.search(r"\x1b\[3\d", text)) == colour


@contextmanager
def terminal() -> Iterator[tuple[Console, Callable[[], str]]]:
    """A console on a pseudo-terminal, and what it has shown."""
    parent, child = pty.openpty()
    shown: list[bytes] = []

    def seen() -> str:
        return b"".join(shown).decode()

    def read() -> None:
        while True:
            try:
                data = os.read(parent, 65536)
            except OSError:
                return
            shown.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(child, "w") as err:
        yield Console(out=io.StringIO(), err=err), seen
    reader.join(timeout=10)
    os.close(parent)
